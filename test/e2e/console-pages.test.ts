import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import type { Page } from 'playwright-core';
import { expectForEverybody, HAS_CHROMIUM, WIDE } from '../support/browser.ts';
import { AdminClient } from '../support/client.ts';
import type { TenantClient } from '../support/client.ts';
import { AuthServer } from '../support/auth-server.ts';
import { visitConsole } from '../support/console-visit.ts';
import type { ConsoleVisit } from '../support/console-visit.ts';
import { says, start } from '../support/example.ts';
import { PROGRAM } from '../support/program.ts';

/** What is managed at the console, in a real browser, by somebody with the key of the Host. */
const HOSTILE = '<img src=x onerror="document.title=1"> \u202Egpj.exe';

describe.runIf(HAS_CHROMIUM)('the pages of the console that manage', () => {
  let visit: ConsoleVisit;
  let page: Page;
  let tenant: TenantClient;

  beforeAll(async () => {
    visit = await visitConsole();
    ({ page, tenant } = visit);
    await page.setViewportSize(WIDE);
  });

  afterEach(() => {
    expect(visit.wrongs.splice(0)).toEqual([]);
  });

  afterAll(async () => {
    await visit?.[Symbol.asyncDispose]();
  });

  async function open(place: string, heading: string): Promise<void> {
    await page.goto(`${visit.url}${place}`);
    await page.getByRole('heading', { name: heading, level: 1 }).waitFor();
  }

  const forEverybody = async (name: string): Promise<void> => await expectForEverybody(page, name, visit.picture);

  test('an agent is made, changed with what is wrong shown where it is, compared with what it was, and archived', async () => {
    await tenant.saveAgent('other', { name: HOSTILE });
    await page.keyboard.press('g');
    await page.keyboard.press('a');
    await page.getByRole('heading', { name: 'Agents', level: 1 }).waitFor();
    await page.getByText('onerror=').waitFor();
    await forEverybody('agents');
    await page.getByRole('button', { name: 'New agent' }).click();
    await page.getByLabel('Id', { exact: true }).fill('cook');
    await page.getByText('As the schema of the API wants it.').waitFor();
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByRole('heading', { name: 'cook', level: 1 }).waitFor();
    await forEverybody('agent');

    await page.getByRole('link', { name: 'Edit' }).click();
    const editor = page.getByLabel('Definition, as JSON');
    const save = page.getByRole('button', { name: 'Save' });
    const write = async (manifest: unknown): Promise<void> => await editor.fill(JSON.stringify(manifest, null, 2));
    await editor.fill('{ "instructions": ');
    await page.getByText('JSON', { exact: false }).last().waitFor();
    expect(await save.isDisabled()).toBe(true);
    // What the schema says.
    await write({ instructions: 'Cook.', tools: [{ name: 'a b', inputSchema: {} }] });
    await page.locator('#manifest-issues').getByText('tools.0.name').waitFor();
    expect(await save.isDisabled()).toBe(true);
    await forEverybody('agent-edit');
    // What only the Host says.
    await write({ instructions: 'Cook.', colour: 'red' });
    await page.getByText('As the schema of the API wants it.').waitFor();
    await save.click();
    const refusal = page.getByRole('alert');
    await refusal.getByText('invalid_request').waitFor();
    await refusal.getByText('colour').first().waitFor();
    await write({ instructions: `Cook.\n${HOSTILE}`, limits: { maxSteps: 3 } });
    await save.click();

    const change = page.getByRole('region', { name: 'From version 1 to version 2' });
    await change.locator('[data-sign="+"]', { hasText: '"maxSteps": 3' }).waitFor();
    await change.locator('[data-sign="+"]', { hasText: 'onerror=' }).waitFor();
    await change.locator('[data-sign="-"]', { hasText: 'You help the customers' }).waitFor();
    await forEverybody('agent-versions');
    await page.getByLabel('After: version 1').check();
    await page.getByText('The same version').waitFor();
    expect(await tenant.request({ path: '/v1/agents/cook' })).toMatchObject({
      json: { version: 2, manifest: { limits: { maxSteps: 3 } } },
    });

    await page.getByRole('button', { name: 'Archive' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Archive' }).click();
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    await page.getByRole('link', { name: 'Definition' }).click();
    await page.getByText('archived', { exact: true }).waitFor();
    await open('/agents', 'Agents');
    await page.getByRole('link', { name: 'other' }).waitFor();
    expect(await page.getByRole('link', { name: 'cook' }).count()).toBe(0);
  });

  test('what was used is a picture and a table, by day, agent and model, and budgets are set beside it', async () => {
    await tenant.saveAgent('payer');
    await tenant.openSession('spent', { agentId: 'payer' });
    await tenant.play('spent', [{ text: 'done', usage: { inputTokens: 1_200, outputTokens: 34 } }]);
    await open('/usage?measure=tokens', 'Usage');
    const byDay = page.getByRole('region', { name: 'By day' });
    await byDay.getByRole('img', { name: 'Tokens by day: 30 days, at most 1,234 in one' }).waitFor();
    await byDay.getByText('As a table').click();
    await byDay.getByRole('row', { name: /1,234$/ }).waitFor();
    await page.getByRole('region', { name: 'By agent' }).getByRole('row', { name: 'payer 1,234' }).waitFor();
    await page
      .getByRole('region', { name: 'By model' })
      .getByRole('row', { name: /fixture.* 1,234/ })
      .waitFor();
    await page.getByLabel('Time').selectOption('The last 7 days');
    await byDay.getByRole('img', { name: /7 days/ }).waitFor();
    await page.getByLabel('What is shown').selectOption('Model calls');
    await page.getByRole('region', { name: 'By agent' }).getByRole('row', { name: 'payer 1' }).waitFor();

    const budgets = page.getByRole('region', { name: 'Budgets' });
    const dialog = page.getByRole('dialog');
    for (const [covers, tokens] of [
      ['the whole tenant', '5000'],
      ['one agent', '2000'],
    ] as const) {
      await budgets.getByRole('button', { name: 'New budget' }).click();
      await dialog.getByLabel('Covers').selectOption(covers);
      if (covers === 'one agent') await dialog.getByRole('combobox', { name: 'Agent' }).fill('payer');
      await dialog.getByLabel('Tokens (may be empty)').fill(tokens);
      await dialog.getByRole('button', { name: 'Save' }).click();
      await dialog.waitFor({ state: 'detached' });
    }
    await budgets.getByText('1,234 of 5,000 tokens').waitFor();
    await budgets.getByText('1,234 of 2,000 tokens').waitFor();
    await forEverybody('usage');
    await budgets.getByRole('button', { name: 'Change agent.payer.month' }).click();
    await dialog.getByLabel('US dollars (may be empty)').fill('2000000000');
    await dialog.getByRole('button', { name: 'Save' }).click();
    await dialog.getByRole('alert').getByText('limitUsd').first().waitFor();
    await dialog.getByLabel('US dollars (may be empty)').fill('3');
    await dialog.getByRole('button', { name: 'Save' }).click();
    await budgets.getByText('of $3.00').waitFor();
    await budgets.getByRole('button', { name: 'Remove tenant.month' }).click();
    await dialog.getByRole('button', { name: 'Remove' }).click();
    await dialog.waitFor({ state: 'detached' });
    await budgets.getByText('1,234 of 5,000 tokens').waitFor({ state: 'detached' });
    expect((await tenant.request({ path: '/v1/tenant/budgets' })).json).toMatchObject({
      budgets: [{ id: 'agent.payer.month', limitUsd: 3, limitTokens: 2_000 }],
    });
  });

  /** What is in the page, in its stores, and in what it typed. */
  async function everything(): Promise<string> {
    const stores = await page.evaluate('JSON.stringify({ ...localStorage, ...sessionStorage })');
    const fields = await page
      .locator('input, textarea')
      .evaluateAll((all) => all.map((one) => Reflect.get(one, 'value')));
    return [await page.content(), String(stores), ...fields].join(' ');
  }

  test('a key is shown once, replaced and deleted; what is typed as a secret stays nowhere', async () => {
    await open('/tenant', 'Tenant');
    await page.getByRole('row', { name: /^Keys 1 / }).waitFor();
    await forEverybody('tenant');
    await page.getByRole('link', { name: 'Keys' }).click();
    await page.getByRole('button', { name: 'New key' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Id', { exact: true }).fill('reports');
    await dialog.getByLabel('Role').selectOption('management');
    await dialog.getByRole('button', { name: 'Make' }).click();
    const shown = async (): Promise<string> => {
      const once = page.getByRole('dialog', { name: 'The new key' });
      const secret = await once.locator('pre').innerText();
      await once.getByRole('button', { name: 'I have it' }).click();
      await once.waitFor({ state: 'detached' });
      expect(await everything()).not.toContain(secret);
      return secret;
    };
    const { tenantId } = tenant.credentials;
    const status = async (key: string): Promise<number> => {
      const headers = { authorization: `Bearer ${key}`, 'svc-protocol': '8', 'svc-tenant': tenantId };
      return (await fetch(`${visit.host.url}/v1/agents`, { headers })).status;
    };
    const first = await shown();
    expect(await status(first)).toBe(200);
    await page.getByRole('button', { name: 'New secret for reports' }).click();
    await dialog.getByRole('button', { name: 'Make a new secret' }).click();
    const second = await shown();
    expect([await status(first), await status(second)]).toEqual([401, 200]);
    await forEverybody('tenant-keys');
    await page.getByRole('button', { name: 'Delete reports' }).click();
    await dialog.getByRole('button', { name: 'Delete' }).click();
    // What is behind a dialog is not there to whoever reads by roles.
    await dialog.waitFor({ state: 'detached' });
    await page.getByRole('button', { name: 'Delete reports' }).waitFor({ state: 'detached' });
    expect(await status(second)).toBe(401);

    await page.getByRole('link', { name: 'Models' }).click();
    await page.getByRole('button', { name: 'Store a key for OpenAI' }).click();
    await dialog.getByLabel('Key', { exact: true }).fill('sk-typed-here');
    await dialog.getByRole('button', { name: 'Store' }).click();
    await dialog.waitFor({ state: 'detached' });
    expect(await everything()).not.toContain('sk-typed-here');
    await page.getByRole('button', { name: 'New price' }).click();
    await dialog.getByRole('textbox', { name: 'Model' }).fill('own-model');
    await dialog.getByLabel('Input', { exact: true }).fill('2');
    await dialog.getByLabel('Output', { exact: true }).fill('8.5');
    await dialog.getByRole('button', { name: 'Save' }).click();
    await page.getByRole('row', { name: /own-model \$2\.00 \$8\.50/ }).waitFor();
    await page.getByRole('button', { name: 'Select' }).click();
    await dialog.getByLabel('Provider').selectOption('openai');
    await dialog.getByRole('combobox', { name: 'Model' }).fill('gpt-anything');
    await dialog.getByRole('button', { name: 'Select' }).click();
    await page.getByText('openai/gpt-anything').waitFor();
    await forEverybody('tenant-models');
    expect((await tenant.request({ path: '/v1/tenant/model/credentials/openai' })).json).toMatchObject({
      configured: true,
    });

    await page.getByRole('link', { name: 'Executors' }).click();
    await page.getByRole('button', { name: 'Register an executor' }).click();
    await dialog.getByRole('combobox', { name: 'Agent' }).fill('payer');
    await dialog.getByLabel('Token, at least').fill('too-short-token');
    await dialog.getByRole('button', { name: 'Register' }).click();
    await dialog.getByRole('alert').getByText('executors.0.token').first().waitFor();
    expect(await everything()).not.toContain('too-short-token');
    await dialog.getByRole('button', { name: 'Register' }).click();
    const token = page.getByRole('dialog', { name: 'The token of the executor' });
    expect(await token.locator('pre').innerText()).toMatch(/^[0-9a-f]{64}$/);
    await token.getByRole('button', { name: 'I have it' }).click();
    await page.getByRole('row', { name: /payer away/ }).waitFor();
    await forEverybody('tenant-executors');

    await page.getByRole('link', { name: 'Issuers' }).click();
    await page.getByRole('button', { name: 'New issuer' }).click();
    await dialog.getByLabel('Name', { exact: true }).fill('people');
    await dialog.getByLabel('Issuer, as its tokens name it').fill('https://login.example');
    await dialog.getByLabel('Audience').fill('agents');
    await dialog.getByRole('button', { name: 'Save' }).click();
    await dialog.getByRole('alert').getByText('invalid_request').waitFor();
    await dialog.getByLabel('Address of its keys (JWKS)').fill('https://login.example/keys');
    await dialog.getByRole('button', { name: 'Save' }).click();
    await page.getByRole('row', { name: /people https:\/\/login\.example/ }).waitFor();
    await forEverybody('tenant-issuers');

    await page.getByRole('link', { name: 'Audit trail' }).click();
    await page
      .getByRole('row', { name: /issuer.*people/ })
      .first()
      .waitFor();
    await forEverybody('tenant-audit');
  });

  test('a person signs in for a credential, and comes back to where it was begun', async () => {
    await using server = await AuthServer.start();
    await open('/tenant?view=vaults', 'Tenant');
    const dialog = page.getByRole('dialog');
    await page.getByRole('button', { name: 'New vault' }).click();
    await dialog.getByLabel('Name').fill(HOSTILE);
    await dialog.getByLabel('Subject, the person it is of').fill('ada');
    await dialog.getByRole('button', { name: 'Make' }).click();
    await page.getByRole('link', { name: /onerror=/ }).click();
    for (const [name, type] of [
      ['notes', 'bearer'],
      ['calendar', 'oauth'],
    ] as const) {
      await page.getByRole('button', { name: 'New credential' }).click();
      await dialog.getByLabel('Name').fill(name);
      await dialog.getByLabel('Address of the server').fill(`${server.origin}/mcp`);
      await dialog.getByLabel('Kind').selectOption(type);
      if (type === 'bearer') await dialog.getByLabel('Token (of bearer)').fill('typed-token');
      await dialog.getByRole('button', { name: 'Save' }).click();
      await dialog.waitFor({ state: 'detached' });
    }
    await page.getByRole('row', { name: /notes.* ready/ }).waitFor();
    await page.getByRole('row', { name: /calendar.* needs a sign-in/ }).waitFor();
    expect(await everything()).not.toContain('typed-token');
    await forEverybody('tenant-vault');
    // The server's own page, on which the person consents.
    await page.route(`${server.origin}/authorize**`, async (route) => {
      const asked = new URL(route.request().url());
      const back = new URL(asked.searchParams.get('redirect_uri') ?? '');
      for (const [key, value] of Object.entries({ ...server.consent(asked.href), iss: server.origin }))
        back.searchParams.set(key, value);
      const body = `<a href="${back.href.replaceAll('&', '&amp;')}">Consent</a>`;
      await route.fulfill({ contentType: 'text/html', body });
    });
    await page.getByRole('button', { name: 'Sign in: calendar' }).click();
    await dialog.getByRole('button', { name: 'Make a link' }).click();
    await dialog.getByRole('button', { name: 'Go there' }).click();
    await page.getByRole('link', { name: 'Consent' }).click();
    await page.getByRole('row', { name: /calendar.* ready/ }).waitFor();
    expect(page.url()).not.toContain('code=');
    expect(visit.wrongs.splice(0).map((wrong) => wrong.split('?')[0])).toEqual([`asked ${server.origin}/authorize`]);
  });

  test('the Host is shown to who has its key: nodes, dependencies, read models', async () => {
    await page.keyboard.press('g');
    await page.keyboard.press('h');
    await page.getByRole('heading', { name: 'Host', level: 1 }).waitFor();
    const rows = (name: string) => page.getByRole('region', { name }).locator('tbody tr');
    await rows('Nodes').first().waitFor();
    const { json } = await new AdminClient(visit.host).request({ path: '/v1/admin/status' });
    const status = json as { nodes: unknown[]; projections: { name: string }[] };
    expect([await rows('Nodes').count(), await rows('Read models').count()]).toEqual([
      status.nodes.length,
      status.projections.length,
    ]);
    await rows('Read models')
      .filter({ hasText: status.projections[0]?.name ?? '' })
      .first()
      .waitFor();
    await page.getByRole('list', { name: 'Dependencies' }).getByText('streams').waitFor();
    await rows('Tenants').filter({ hasText: tenant.credentials.tenantId }).waitFor();
    await forEverybody('host');

    const { tenantId, key } = tenant.credentials;
    const context = join(visit.host.dataDir, 'context.json');
    const kept = { url: visit.host.url, tenant: tenantId, key, agent: 'payer' };
    await writeFile(context, JSON.stringify(kept), { mode: 0o600 });
    await using program = start(process.execPath, [PROGRAM, 'console', '--port', '0'], { AGENT_HOST_CONTEXT: context });
    await says(program, 'Enter prints another link');
    const visitor = await visit.browser.newContext();
    const other = await visitor.newPage();
    await other.goto(/http:\S+token=\S+/.exec(program.said())?.[0] ?? '');
    await other.getByRole('link', { name: 'Tenant' }).waitFor();
    expect(await other.getByRole('link', { name: 'Host', exact: true }).count()).toBe(0);
    await other.goto(`${new URL(other.url()).origin}/host`);
    await other.getByText('This console has the key of one tenant').waitFor();
    await visitor.close();
  });
});

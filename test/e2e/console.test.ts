import { execFile } from 'node:child_process';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { gzipSync } from 'node:zlib';
import type { Browser, BrowserContext, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { expectForEverybody, HAS_CHROMIUM, PAGE_MS, startBrowser, violationsOf, WIDE } from '../support/browser.ts';
import { AdminClient } from '../support/client.ts';
import type { TenantClient } from '../support/client.ts';
import { says, start } from '../support/example.ts';
import type { Program } from '../support/example.ts';
import { freePort } from '../support/free-port.ts';
import { isRunning, startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { PROGRAM } from '../support/program.ts';
import { TcpProxy } from '../support/tcp-proxy.ts';

/** A person at the console, in a real browser: the program, its door, the pages as they are built, and a Host. */
const FIRST_PAGE_BYTES_MAX = 250_000;
/** Given a directory, each page is put there as a picture. */
const SCREENSHOTS = process.env['CONSOLE_SCREENSHOTS'];
const HOSTILE = [
  '<img src="http://127.0.0.1:9/x" onerror="document.title=\'run\'"><script>document.title="run"</script>',
  '[press](javascript:document.title="run") <iframe srcdoc="<script>parent.document.title=1</script>"></iframe>',
  'abc\u202Egpj.exe \u2066hidden\u2069 \u0007\u001B[31mred',
];

describe.runIf(HAS_CHROMIUM)('the console in a browser', () => {
  let host: Host;
  /** A node beside it, which the balancer prefers while there is one. */
  let other: Host | undefined;
  let balancer: TcpProxy;
  let tenant: TenantClient;
  let program: Program;
  let browser: Browser;
  let visitor: BrowserContext;
  let page: Page;
  let url: string;
  /** What a page may not do: throw, break its policy, ask anybody else. */
  const wrongs: string[] = [];
  const bodies: string[] = [];

  /** Links that the program has printed. */
  const links = (): readonly string[] => program.said().match(/http:\S+token=\S+/g) ?? [];

  function watch(opened: Page): Page {
    opened.on('pageerror', (error) => wrongs.push(String(error)));
    opened.on('console', (message) => {
      // What a browser says of each answer that is a refusal.
      if (message.type() === 'error' && !message.text().startsWith('Failed to load resource'))
        wrongs.push(message.text());
    });
    opened.on('request', (request) => {
      if (!request.url().startsWith(url)) wrongs.push(`asked ${request.url()}`);
    });
    return opened;
  }

  async function picture(name: string): Promise<void> {
    if (SCREENSHOTS === undefined) return;
    await mkdir(SCREENSHOTS, { recursive: true });
    await page.screenshot({ path: join(SCREENSHOTS, `${name}.png`) });
  }

  async function openSession(id: string): Promise<void> {
    await page.goto(`${url}/sessions/${encodeURIComponent(id)}`);
    await page.getByRole('heading', { name: id }).waitFor();
  }

  beforeAll(async () => {
    host = await startHost({
      env: { AGENT_HOST_LISTEN: `127.0.0.1:${await freePort()}`, AGENT_HOST_CONSOLE_LISTEN: '127.0.0.1:0' },
    });
    balancer = await TcpProxy.start(() => {
      const { port } = new URL(other !== undefined && isRunning(other) ? other.url : host.url);
      return Number(port);
    });
    tenant = await new AdminClient(host).createTenant();
    await tenant.saveAgent('helper', { tools: [{ name: 'pay', inputSchema: { type: 'object' }, approval: 'always' }] });
    const { tenantId, key } = tenant.credentials;
    const context = join(host.dataDir, 'context.json');
    await writeFile(
      context,
      JSON.stringify({ url: `http://127.0.0.1:${balancer.port}`, tenant: tenantId, key, agent: 'helper' }),
      {
        mode: 0o600,
      },
    );
    program = start(process.execPath, [PROGRAM, 'console', '--port', '0'], { AGENT_HOST_CONTEXT: context });
    await says(program, 'Enter prints another link');
    url = new URL(links()[0] ?? '').origin;
    browser = await startBrowser();
    visitor = await browser.newContext({ viewport: WIDE, colorScheme: 'light' });
    page = watch(await visitor.newPage());
    page.setDefaultTimeout(PAGE_MS);
    page.on('response', (response) => {
      if (response.url().includes('/assets/')) void response.text().then((text) => bodies.push(text));
    });
  });

  afterEach(() => {
    expect(wrongs.splice(0)).toEqual([]);
  });

  afterAll(async () => {
    await browser?.close();
    await program?.[Symbol.asyncDispose]();
    await balancer?.[Symbol.asyncDispose]();
    await other?.[Symbol.asyncDispose]();
    await host?.[Symbol.asyncDispose]();
  });

  test('a link signs one browser in, once, and the key stays where it is', async () => {
    const [link = ''] = links();
    await page.goto(link);
    await page.getByRole('heading', { name: 'Sessions', level: 1 }).waitFor();
    expect(new URL(page.url())).toMatchObject({ pathname: '/sessions', search: '' });
    const kept = JSON.stringify([
      await visitor.cookies(),
      await page.evaluate('({ ...localStorage, ...sessionStorage })'),
    ]);
    for (const text of [await page.content(), kept, ...bodies]) expect(text).not.toContain(tenant.credentials.key);
    expect(await page.evaluate('document.cookie')).toBe('');
    const scripts = bodies.reduce((sum, body) => sum + gzipSync(body).length, 0);
    expect(scripts).toBeGreaterThan(0);
    expect(scripts).toBeLessThan(FIRST_PAGE_BYTES_MAX);

    const other = await browser.newContext();
    const second = watch(await other.newPage());
    await second.goto(link);
    await second.getByRole('heading', { name: 'Sign in to the console' }).waitFor();
    await second.getByText('This link was used').waitFor();
    await picture('sessions-empty');
    await other.close();
  });

  test('a conversation begins, and its answer arrives word by word', async () => {
    await page.getByRole('button', { name: 'New session' }).first().click();
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Id (made when empty)').fill('talk');
    await dialog.getByRole('button', { name: 'Begin' }).click();
    await page.getByRole('heading', { name: 'talk' }).waitFor();
    await page.getByLabel('Message').fill('How are you?');
    await page.getByLabel('Message').press('Control+Enter');
    await page.getByText('How are you?').first().waitFor();
    const words = Array.from({ length: 60 }, (_, n) => `word-${n}`).join(' ');
    await page.getByText('echo: How are you?').waitFor();
    // Slow enough to be seen on a busy machine: the answer is there in part before it is there as a whole.
    await tenant.play('talk', [{ text: words, tokensPerSecond: 6 }]);
    await page.getByText(/^word-0(?!.*word-59)/).waitFor();
    const whole = page.getByText(/^word-0 .* word-59$/);
    await whole.waitFor();
    expect(await whole.count()).toBe(1);
    await picture('session');
  });

  test('what is shown as code does the same', async () => {
    await openSession('talk');
    await page.getByRole('textbox', { name: 'Message' }).fill("It's from a shell");
    await page.locator('.composer').getByRole('button', { name: 'As code' }).click();
    const dialog = page.getByRole('dialog');
    const command = await dialog.locator('pre').first().innerText();
    const env = { PATH: process.env['PATH'], AGENT_HOST_URL: host.url, AGENT_HOST_KEY: tenant.credentials.key };
    const { stdout } = await promisify(execFile)('/bin/sh', ['-c', command], { env });
    expect(JSON.parse(stdout)).toMatchObject({ status: 'accepted' });
    await dialog.getByRole('button', { name: 'Close' }).click();
    await page.getByText("echo: It's from a shell").waitFor();
  });

  test('what waits for a person is answered in place', async () => {
    await tenant.openSession('payment', { agentId: 'helper' });
    await openSession('payment');
    await tenant.play('payment', [{ toolCalls: [{ name: 'pay', input: { amount: 5 } }] }, { text: 'It is not paid.' }]);
    await page.getByText('Waits for your approval').waitFor();
    await picture('session-approval');
    await page.getByLabel('Reason (may be empty)').fill('too much');
    await page.getByRole('button', { name: 'Deny' }).click();
    await page.getByText('It is not paid.', { exact: true }).waitFor();
    const items = await tenant.items('payment');
    expect(items.find(({ type }) => type === 'command.approve')?.payload).toMatchObject({
      approved: false,
      reason: 'too much',
    });
  });

  test('the inbox has what waits in any session, and is where it is answered', async () => {
    for (const id of ['first', 'second']) {
      await tenant.openSession(id, { agentId: 'helper' });
      const input = { amount: 5, note: HOSTILE[0] };
      await tenant.play(id, [{ toolCalls: [{ name: 'pay', input }] }, { text: 'It is paid.' }]);
    }
    await page.goto(`${url}/sessions`);
    await page.getByRole('heading', { name: 'Sessions', level: 1 }).waitFor();
    await page.keyboard.press('g');
    await page.keyboard.press('i');
    await page.getByRole('heading', { name: 'Inbox' }).waitFor();
    const asks = page.getByRole('main').getByRole('listitem');
    const first = asks.filter({ has: page.getByRole('link', { name: 'first' }) });
    await first.getByText('onerror=').waitFor();
    await picture('inbox');
    await first.getByRole('button', { name: 'Approve' }).click();
    await first.waitFor({ state: 'detached' });
    expect(await asks.count()).toBe(1);
    const [answer] = (await tenant.items('first')).filter(({ type }) => type === 'command.approve');
    expect(answer?.payload).toMatchObject({ approved: true });
  });

  test('at any record a session is as it was, and goes on from there, also on another model', async () => {
    await tenant.openSession('story', { agentId: 'helper' });
    await openSession('story');
    for (const text of ['One', 'Two']) {
      await page.getByRole('textbox', { name: 'Message' }).fill(text);
      await page.getByRole('button', { name: 'Send' }).click();
      await page.getByText(`echo: ${text}`, { exact: true }).waitFor();
      await page
        .getByText('completed', { exact: true })
        .nth(text === 'One' ? 0 : 1)
        .waitFor();
    }
    await page.getByRole('link', { name: 'At any record' }).click();
    const then = page.getByRole('region', { name: 'Conversation as it was' });
    const seen = page.getByRole('region', { name: 'What the model saw' });
    await then.getByText('echo: Two').waitFor();
    await picture('session-moment');
    expect(await page.getByRole('navigation', { name: 'Views' }).locator('[aria-current]').count()).toBe(1);
    const slider = page.getByRole('slider', { name: 'Record' });
    await slider.press('Home');
    await then.getByText('echo: One').waitFor({ state: 'detached' });
    await slider.press('ArrowRight');
    await then.getByText('echo: One').waitFor();
    expect(await then.getByText('Two').count()).toBe(0);
    await seen.getByRole('heading', { name: 'Messages (1)' }).waitFor();
    await page.getByText(/ in 1 model calls$/).waitFor();
    const [, answer] = await tenant.items('story');
    await page.waitForURL((shown) => shown.searchParams.get('at') === answer?.cursor);
    await page.reload();
    await then.getByText('echo: One').waitFor();
    expect(await then.getByText('Two').count()).toBe(0);

    await page.getByRole('button', { name: 'Fork from here' }).click();
    await page.getByLabel('Id of the fork').fill('story-fork');
    await page.getByRole('button', { name: 'Fork', exact: true }).click();
    await page.getByRole('heading', { name: 'story-fork' }).waitFor();
    await page.getByText('echo: One', { exact: true }).waitFor();
    expect((await tenant.items('story-fork')).length).toBe(2);

    await page.goto(`${url}/sessions/story?view=moment&at=${encodeURIComponent(answer?.cursor ?? '')}`);
    await page.getByRole('button', { name: 'Another model from here' }).click();
    await page.getByLabel('Id of the fork').fill('story-model');
    await page.getByLabel('Model', { exact: true }).fill('another');
    expect(await page.getByLabel('Message that it answers').inputValue()).toBe('Two');
    await picture('session-moment-model');
    await page.getByRole('button', { name: 'Fork', exact: true }).click();
    await page.getByRole('heading', { name: 'story-model' }).waitFor();
    await page.getByText('echo: Two', { exact: true }).waitFor();
    const [message] = (await tenant.items('story-model')).slice(2);
    expect(message?.payload).toMatchObject({ content: 'Two', manifest: { model: { model: 'another' } } });
  });

  test('what a person or a model wrote is text, whatever it says', async () => {
    await tenant.openSession('hostile', { agentId: 'helper' });
    for (const text of HOSTILE) await tenant.play('hostile', [{ text }]);
    await tenant.message('hostile', HOSTILE.join('\n'));
    await openSession('hostile');
    await page.getByText('onerror=').first().waitFor();
    await page.getByText('iframe srcdoc').first().waitFor();
    for (const element of ['main img', 'main iframe', 'main script', 'main a[href^="javascript"]'])
      expect(await page.locator(element).count(), element).toBe(0);
    expect(await page.title()).not.toBe('run');
  });

  test('a node that goes and comes back is waited for', async () => {
    await openSession('talk');
    await page.getByText(/^word-0 .* word-59$/).waitFor();
    await host.kill();
    await host.restart();
    await tenant.play('talk', [{ text: 'said after the node came back' }]);
    const answer = page.getByText('said after the node came back', { exact: true });
    await answer.waitFor();
    expect(await answer.count()).toBe(1);
  });

  test('a node is killed while an answer is written: another one carries on, and nothing is lost or doubled', async () => {
    await tenant.openSession('killed', { agentId: 'helper' });
    other = await startHost({ join: host, env: { AGENT_HOST_ROLES: 'commands,reads' } });
    // What is open goes through the node that it began with.
    balancer.cutAll();
    const stream = page.waitForResponse((response) => response.url().includes('/killed/events'));
    await openSession('killed');
    expect((await stream).status()).toBe(200);
    const words = Array.from({ length: 120 }, (_, n) => `part-${n}`).join(' ');
    await tenant.play('killed', [{ text: words, tokensPerSecond: 6 }]);
    await page.getByText(/^part-0(?!.*part-119)/).waitFor();
    await other.kill();
    expect(await page.getByText(/^part-0 .* part-119$/).count()).toBe(0);
    for (const content of ['one', 'two', 'three'])
      expect((await tenant.command('killed', { type: 'message', content, whenBusy: 'queue' })).status).toBe(202);
    await page.getByText('echo: three', { exact: true }).waitFor({ timeout: 120_000 });
    expect(await page.getByText(/^part-0 .* part-119$/).count()).toBe(1);
    await page.getByRole('link', { name: 'Records beside it' }).click();
    const records = page.locator('[data-event]');
    const items = await tenant.items('killed');
    await expect.poll(async () => await records.count()).toBe(items.length);
    const shown = await Promise.all((await records.all()).map(async (one) => await one.getAttribute('data-event')));
    expect(shown).toEqual(items.map(({ eventId }) => eventId));
  });

  test('every page is for everybody: by axe-core, in both colours, on a phone', async () => {
    const places = [
      '/sessions',
      '/sessions/talk',
      '/sessions/payment',
      '/sessions/talk?view=records',
      '/sessions/payment?view=moment',
      '/inbox',
    ];
    for (const place of places) {
      await page.goto(`${url}${place}`);
      await page.getByRole('heading', { level: 1 }).waitFor();
      await page.waitForLoadState('load');
      await expectForEverybody(page, place.replaceAll(/[^a-z]+/g, '-').slice(1), picture);
    }
  });

  test('signing out ends it, in every tab', async () => {
    const tab = watch(await visitor.newPage());
    await tab.goto(`${url}/sessions`);
    await tab.getByRole('heading', { name: 'Sessions', level: 1 }).waitFor();
    await page.goto(`${url}/sessions`);
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.getByRole('heading', { name: 'Sign in to the console' }).waitFor();
    await tab.reload();
    await tab.getByRole('heading', { name: 'Sign in to the console' }).waitFor();
    program.type('');
    await expect.poll(() => links().length).toBe(2);
    await page.goto(links()[1] ?? '');
    await page.getByRole('heading', { name: 'Sessions', level: 1 }).waitFor();
  });

  test('the console of the Host itself shows each tenant, with a key of its own for each', async () => {
    const other = await new AdminClient(host).createTenant();
    await other.saveAgent('helper');
    await other.openSession('theirs', { agentId: 'helper' });
    await tenant.openSession('ours', { agentId: 'helper' });
    const env = { AGENT_HOST_DATA_DIR: host.dataDir };
    const asking = start(process.execPath, [PROGRAM, 'console', '--link'], env);
    expect(await asking.ended).toBe(0);
    const link = /http:\S+token=\S+/.exec(asking.said())?.[0] ?? '';
    const operator = await browser.newContext();
    const shown = await operator.newPage();
    await shown.goto(link);
    await shown.getByRole('button', { name: other.credentials.tenantId }).click();
    await shown.getByText('theirs').waitFor();
    await shown.getByRole('button', { name: 'Another tenant' }).click();
    await shown.getByRole('button', { name: tenant.credentials.tenantId }).click();
    await shown.getByText('ours').waitFor();
    expect(await shown.getByText('theirs').count()).toBe(0);
    expect(await violationsOf(shown)).toEqual([]);
    await operator.close();
  });

  test('a node that is a console and nothing else needs an address and a key', async () => {
    const env = {
      AGENT_HOST_ROLES: 'console',
      AGENT_HOST_CONSOLE_LISTEN: '127.0.0.1:0',
      AGENT_HOST_CONSOLE_HOST: host.url,
    };
    const refused = start(process.execPath, [PROGRAM], env);
    expect(await refused.ended).toBe(1);
    expect(refused.said()).toContain('needs AGENT_HOST_ADMIN_KEY');
    await using node = start(process.execPath, [PROGRAM], { ...env, AGENT_HOST_ADMIN_KEY: host.adminKey });
    await says(node, 'Console ');
    const link = /http:\S+token=\S+/.exec(node.said())?.[0] ?? '';
    const [cookie = ''] = (await fetch(link, { redirect: 'manual' })).headers.getSetCookie();
    // As a link of a page asks, which cannot send the headers of a program.
    const tenants = await fetch(`${new URL(link).origin}/api/v1/admin/tenants`, { headers: { cookie } });
    expect(await tenants.text()).toContain(tenant.credentials.tenantId);
    node.signal('SIGTERM');
    expect(await node.ended).toBe(0);
  });
});

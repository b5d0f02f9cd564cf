import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import type { Browser, BrowserContext, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { HAS_CHROMIUM, startBrowser, violationsOf } from '../support/browser.ts';
import { AdminClient } from '../support/client.ts';
import type { TenantClient } from '../support/client.ts';
import { says, start } from '../support/example.ts';
import type { Program } from '../support/example.ts';
import { freePort } from '../support/free-port.ts';
import { startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { PROGRAM } from '../support/program.ts';

/** A person at the console, in a real browser: the program, its door, the pages as they are built, and a Host. */
const FIRST_PAGE_BYTES_MAX = 250_000;
/** A phone. */
const NARROW = { width: 390, height: 844 };
const WIDE = { width: 1_280, height: 800 };
/** Given a directory, each page is put there as a picture. */
const SCREENSHOTS = process.env['CONSOLE_SCREENSHOTS'];
const HOSTILE = [
  '<img src="http://127.0.0.1:9/x" onerror="document.title=\'run\'"><script>document.title="run"</script>',
  '[press](javascript:document.title="run") <iframe srcdoc="<script>parent.document.title=1</script>"></iframe>',
  'abc\u202Egpj.exe \u2066hidden\u2069 \u0007\u001B[31mred',
];

describe.runIf(HAS_CHROMIUM)('the console in a browser', () => {
  let host: Host;
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
  const links = (): readonly string[] => program.said().match(/http:\S+#\S+/g) ?? [];

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
    host = await startHost({ env: { AGENT_HOST_LISTEN: `127.0.0.1:${await freePort()}` } });
    tenant = await new AdminClient(host).createTenant();
    await tenant.saveAgent('helper', { tools: [{ name: 'pay', inputSchema: { type: 'object' }, approval: 'always' }] });
    const { tenantId, key } = tenant.credentials;
    const context = join(host.dataDir, 'context.json');
    await writeFile(context, JSON.stringify({ url: host.url, tenant: tenantId, key, agent: 'helper' }), {
      mode: 0o600,
    });
    program = start(process.execPath, [PROGRAM, 'console', '--port', '0'], { AGENT_HOST_CONTEXT: context });
    await says(program, 'Enter prints another link');
    url = new URL(links()[0] ?? '').origin;
    browser = await startBrowser();
    visitor = await browser.newContext({ viewport: WIDE, colorScheme: 'light' });
    page = watch(await visitor.newPage());
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
    await host?.[Symbol.asyncDispose]();
  });

  test('a link signs one browser in, once, and the key stays where it is', async () => {
    const [link = ''] = links();
    await page.goto(link);
    await page.getByRole('heading', { name: 'Sessions', level: 1 }).waitFor();
    expect(new URL(page.url())).toMatchObject({ pathname: '/sessions', hash: '' });
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
    await tenant.play('talk', [{ text: words, tokensPerSecond: 40 }]);
    // The answer is there in part before it is there as a whole.
    const answer = page.getByText(/^word-0/);
    await answer.waitFor();
    expect(await answer.textContent()).not.toContain('word-59');
    await page.getByText(/^word-0 .* word-59$/).waitFor();
    await picture('session');
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

  test('every page is for everybody: by axe-core, in both colours, on a phone', async () => {
    const places = ['/sessions', '/sessions/talk', '/sessions/payment', '/sessions/talk?view=records'];
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme });
      for (const place of places) {
        await page.setViewportSize(WIDE);
        await page.goto(`${url}${place}`);
        await page.getByRole('heading', { level: 1 }).waitFor();
        await page.waitForLoadState('load');
        expect(await violationsOf(page), `${place}, ${colorScheme}`).toEqual([]);
        await picture(`${place.replaceAll(/[^a-z]+/g, '-').slice(1)}-${colorScheme}`);
        await page.setViewportSize(NARROW);
        const width = await page.evaluate('document.documentElement.scrollWidth');
        expect(width, `${place} is no wider than a phone`).toBeLessThanOrEqual(NARROW.width);
        await picture(`${place.replaceAll(/[^a-z]+/g, '-').slice(1)}-${colorScheme}-phone`);
      }
    }
    await page.setViewportSize(WIDE);
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
});

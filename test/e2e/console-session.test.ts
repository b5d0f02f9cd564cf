import { readFile } from 'node:fs/promises';
import type { Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { expectForEverybody, HAS_CHROMIUM, WIDE } from '../support/browser.ts';
import type { TenantClient } from '../support/client.ts';
import { visitConsole } from '../support/console-visit.ts';
import type { ConsoleVisit } from '../support/console-visit.ts';
import { done, executorOf } from '../support/executor.ts';
import type { Executor } from '../support/executor.ts';

/** What a session did, at the console in a real browser: its turns, its commands and its files. */
const HOSTILE = '<img src=x onerror="document.title=1"> \u202Egpj.exe';

const USED = { inputTokens: 40, outputTokens: 2 };
const FIND = JSON.stringify({ fixture: [{ text: 'found it', delayMs: 300, usage: USED }] });
/** A turn with a bit of everything: a failed attempt, a command, an agent, an executor, and an approval. */
const TURN = [
  { error: { code: 'overloaded', message: 'later', retryable: true } },
  {
    text: 'I look around.',
    delayMs: 200,
    usage: USED,
    toolCalls: [
      {
        name: 'bash',
        input: {
          command: `mkdir -p src outputs; printf 'one\\ntwo\\n' > src/a.txt; echo 1 > outputs/n; echo '${HOSTILE}' | tee note.txt`,
        },
      },
      { name: 'finder', input: { task: FIND } },
      { name: 'look', input: { at: HOSTILE } },
      { name: 'pay', input: { amount: 5 } },
    ],
  },
  { text: 'Done.' },
];
/** Changes a file, takes one away, and makes one. */
const CHANGES = `printf 'one\\nTWO\\n' > src/a.txt; echo 2 > outputs/n; rm note.txt; echo new > new.txt`;

describe.runIf(HAS_CHROMIUM)('a session at the console', () => {
  let visit: ConsoleVisit;
  let page: Page;
  let tenant: TenantClient;
  let executor: Executor;

  beforeAll(async () => {
    visit = await visitConsole();
    ({ page, tenant } = visit);
    await page.setViewportSize(WIDE);
    const tool = { inputSchema: { type: 'object' } };
    await tenant.saveAgent('finder');
    await tenant.saveAgent('coder', {
      sandboxTools: true,
      agents: [{ agentId: 'finder', description: 'finds' }],
      tools: [
        { name: 'look', ...tool },
        { name: 'pay', approval: 'always', ...tool },
      ],
    });
    executor = await executorOf(tenant, { nodes: [visit.host], agentId: 'coder', run: () => done({ seen: HOSTILE }) });
    await tenant.openSession('work', { agentId: 'coder', sandbox: { kind: 'virtual' } });
    await tenant.play('work', TURN);
  });

  afterEach(() => {
    expect(visit.wrongs.splice(0)).toEqual([]);
  });

  afterAll(async () => {
    await executor?.[Symbol.asyncDispose]();
    await visit?.[Symbol.asyncDispose]();
  });

  async function open(search: string): Promise<void> {
    await page.goto(`${visit.url}/sessions/work${search}`);
    await page.getByRole('heading', { name: 'work', level: 1 }).waitFor();
  }

  const forEverybody = async (name: string): Promise<void> => await expectForEverybody(page, name, visit.picture);

  test('a turn is a waterfall while it runs, and after', async () => {
    await open('?view=turns');
    const lanes = page.getByRole('region', { name: 'Waterfall' });
    const line = (name: string | RegExp) => lanes.getByRole('listitem').filter({ hasText: name });
    const wait = line('waits for approval of pay');
    await wait.getByText('open', { exact: true }).waitFor();
    await wait.getByText('goes on').waitFor();
    const { interactions } = (await tenant.request({ path: '/v1/interactions' })).json as {
      interactions: readonly { interactionId: string }[];
    };
    const interactionId = interactions[0]?.interactionId;
    await tenant.command('work', { type: 'approve', interactionId, approved: true });
    await wait.getByText('approved', { exact: true }).waitFor();
    await page.getByRole('region', { name: 'Turns' }).getByText('completed', { exact: true }).first().waitFor();

    // The failed attempt, and the one after it, which also has the record of its answer.
    await line('attempt 2').waitFor();
    expect(
      await line(/^model any/)
        .filter({ hasText: 'failed' })
        .count(),
    ).toBe(1);
    await line(/^agent finder/)
      .getByRole('listitem')
      .getByText('completed', { exact: true })
      .waitFor();
    for (const name of ['bash', 'look', 'pay'])
      await line(new RegExp(`^tool ${name}`))
        .getByText('completed', { exact: true })
        .waitFor();
    // The ledger is read again when the turn has ended.
    await expect.poll(async () => await line(/^model any/).count()).toBe(4);

    // By keyboard: a line opens to what is known of it, and leads to its record.
    const attempt = line('attempt 2').locator('summary');
    await attempt.focus();
    await page.keyboard.press('Enter');
    await line('attempt 2').getByText('40 in, 2 out, 0 from the cache').waitFor();
    await forEverybody('session-turns');
    await line('attempt 2').getByRole('link', { name: 'The session at this record' }).click();
    await page.getByRole('region', { name: 'The session at a record' }).waitFor();
    expect(new URL(page.url()).searchParams.get('view')).toBe('moment');

    const { turnId } = await tenant.play('work', [
      { toolCalls: [{ name: 'bash', input: { command: CHANGES } }] },
      { text: 'Changed.' },
    ]);
    await tenant.turnEnd('work', turnId);
    await open('?view=turns');
    await lanes.getByRole('listitem').first().waitFor();
    await page.getByRole('button', { name: 'Turn before' }).click();
    await line('attempt 2').waitFor();
    await page.reload();
    await line('attempt 2').waitFor();
  });

  test('a command is there with what it said, as text', async () => {
    await open('');
    const call = page.getByRole('article', { name: 'Call' }).filter({ hasText: 'mkdir -p src' });
    await call.locator('summary').click();
    await call.getByText('exit code 0').waitFor();
    await call
      .locator('figure')
      .filter({ has: page.getByText('Output', { exact: true }) })
      .getByText('onerror=')
      .waitFor();
    expect(await page.locator('main img').count()).toBe(0);
    await visit.picture('session-command');
  });

  test('the files are there as they are, and as they were at a record, with what has changed since', async () => {
    await open('?view=files');
    const files = page.getByRole('list', { name: 'Files', exact: true });
    await files.getByRole('button', { name: /^src\/a\.txt/ }).click();
    await page.getByRole('region', { name: 'File src/a.txt' }).getByText('TWO').waitFor();
    expect(await files.getByRole('button', { name: /^note\.txt/ }).count()).toBe(0);
    await forEverybody('session-files');

    const first = (await tenant.items('work')).find(({ type }) => type === 'turn.completed');
    await open(`?view=moment&at=${encodeURIComponent(first?.cursor ?? '')}`);
    const then = page.getByRole('region', { name: 'Files as they were' });
    await then.getByRole('button', { name: /^note\.txt/ }).click();
    const note = then.getByRole('region', { name: 'File note.txt' });
    await note.getByText('onerror=').waitFor();
    await note.getByText('U+202E').waitFor();
    expect(await page.locator('main img').count()).toBe(0);
    await then.getByLabel('Changes since').check();
    const changes = then.getByRole('list', { name: 'Files that have changed since' });
    for (const name of ['note.txt removed', 'new.txt added 4 B', 'src/a.txt changed 8 B'])
      await changes.getByRole('button', { name }).waitFor();
    await changes.getByRole('button', { name: /^src\/a\.txt/ }).click();
    const diff = then.getByRole('region', { name: 'File src/a.txt' }).locator('[data-sign]');
    await diff.first().waitFor();
    expect((await diff.allInnerTexts()).map((text) => text.trim())).toEqual(['one', '- two', '+ TWO', '']);
    await forEverybody('session-files-then');
  });

  test('artifacts are compared by their versions, and downloaded', async () => {
    const upload = async (path: string, body: string) =>
      (await tenant.request({ method: 'POST', path, body: Buffer.from(body) })).json;
    const { artifact } = (await upload('/v1/artifacts?name=report.txt&sessionId=work', 'a\nb\n')) as {
      artifact: { artifactId: string };
    };
    await upload(`/v1/artifacts/${artifact.artifactId}/versions`, `a\n${HOSTILE}\n`);
    const asked: string[] = [];
    page.on('request', (request) => asked.push(new URL(request.url()).pathname));
    await open('?view=files');
    const artifacts = page.getByRole('region', { name: 'Artifacts' });
    await artifacts.locator('summary').nth(1).waitFor();
    // What is behind a line is asked for when somebody opens it.
    expect(asked.filter((path) => /\/v1\/artifacts\/./.test(path))).toEqual([]);
    for (const [name, file] of [
      ['report.txt', 'report.txt'],
      ['outputs', 'n'],
    ] as const) {
      const one = artifacts.locator('details').filter({ has: page.locator('summary', { hasText: name }) });
      await one.locator('summary').click();
      await one.getByLabel('Compared with').selectOption('1');
      await one.getByRole('button', { name: `${file} changed` }).click();
      await one.locator('[data-sign="-"]').waitFor();
      await one.locator('[data-sign="+"]').waitFor();
    }
    expect(await page.locator('main img').count()).toBe(0);
    await forEverybody('session-artifacts');
    const report = artifacts.locator('details').filter({ has: page.locator('summary', { hasText: 'report.txt' }) });
    const [download] = await Promise.all([
      page.waitForEvent('download'),
      report.getByRole('link', { name: 'Download' }).first().click(),
    ]);
    expect(download.suggestedFilename()).toBe('report.txt');
    expect(await readFile(await download.path(), 'utf8')).toBe(`a\n${HOSTILE}\n`);
  });

  test('a message waits behind the turn that runs, or takes its place', async () => {
    await tenant.openSession('busy', { agentId: 'coder' });
    await tenant.play('busy', [{ text: 'never said', delayMs: 600_000 }]);
    await page.goto(`${visit.url}/sessions/busy`);
    const whenBusy = page.getByLabel('While a turn is active');
    await whenBusy.selectOption('queue');
    await page.getByRole('textbox', { name: 'Message' }).fill('after it');
    await page.getByRole('button', { name: 'Send' }).click();
    await page.getByText('waits for the turn before').waitFor();
    await whenBusy.selectOption('interrupt');
    await page.getByRole('textbox', { name: 'Message' }).fill('at once');
    await page.getByRole('button', { name: 'Send' }).click();
    await page.getByText('echo: at once', { exact: true }).waitFor();
    await page.getByText('cancelled', { exact: true }).first().waitFor();
    const messages = (await tenant.items('busy')).filter(({ type }) => type === 'command.message');
    expect(messages.map(({ payload }) => Reflect.get(payload, 'whenBusy'))).toEqual([undefined, 'queue', 'interrupt']);
  });
});

import { execFileSync, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { mkdtemp, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { commandLine } from '#src/lib/process-identity.ts';
import { bareEnvironment } from '#src/embedded/run-command.ts';
import { ROOT } from '../tidy/tree.ts';
import { startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { PROGRAM } from '../support/program.ts';
import { until } from '../support/wait-until.ts';
import { unzipped } from '../support/zip.ts';

interface Ran {
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
}

const SCRIPT = {
  pays: { fixture: [{ toolCalls: [{ name: 'pay', input: { amount: 5 } }] }, { text: 'It is not paid.' }] },
  waits: { fixture: [{ delayMs: 120_000, text: 'late' }] },
};
const PAYER = {
  instructions: 'Pay.',
  model: { provider: 'fixture', model: 'any' },
  tools: [{ name: 'pay', inputSchema: { type: 'object' }, approval: 'always' }],
};

describe('at the terminal', () => {
  let host: Host;
  let env: Record<string, string>;

  async function run(argv: readonly string[], input = '', over: Record<string, string> = {}): Promise<Ran> {
    const child = spawn(process.execPath, argv, { cwd: host.dataDir, env: { ...env, ...over } });
    let [out, err] = ['', ''];
    child.stdout.setEncoding('utf8').on('data', (text: string) => (out += text));
    child.stderr.setEncoding('utf8').on('data', (text: string) => (err += text));
    child.stdin.end(input);
    return await new Promise((resolve) => child.on('close', (code) => resolve({ code, out, err })));
  }
  const agentHost = async (args: readonly string[], input = ''): Promise<Ran> => await run([PROGRAM, ...args], input);

  beforeAll(async () => {
    host = await startHost();
    env = {
      ...bareEnvironment(['NODE_COMPILE_CACHE']),
      AGENT_HOST_DATA_DIR: host.dataDir,
      AGENT_HOST_CONTEXT: join(host.dataDir, 'contexts/mine.json'),
    };
    const early = await agentHost(['chat']);
    expect(early).toMatchObject({
      code: 4,
      err: expect.stringMatching(/^agent-host: there is no context at .*init makes one, .*\n$/),
    });
    const made = await agentHost(['init']);
    expect(made, made.err).toMatchObject({ code: 0, out: expect.stringContaining('Next: agent-host chat') });
    await writeFile(join(host.dataDir, 'payer.json'), JSON.stringify(PAYER));
    const applied = await agentHost(['agents', 'apply', 'payer', 'payer.json']);
    expect(applied, applied.err).toMatchObject({ code: 0, out: expect.stringMatching(/^payer: version 1, /m) });
  });

  afterAll(async () => {
    await host[Symbol.asyncDispose]();
  });

  test('init keeps the key where its owner alone reads it', async () => {
    const path = env['AGENT_HOST_CONTEXT'] ?? '';
    expect((await stat(path)).mode & 0o777).toBe(0o600);
    const { key } = JSON.parse(await readFile(path, 'utf8')) as { key: string };
    const again = await agentHost(['init']);
    expect(again).toMatchObject({
      code: 1,
      err: expect.stringMatching(/^agent-host: .*mine\.json has a key that works, .* makes another beside it\n$/),
    });
    const { out } = await run([PROGRAM, 'init', '--json'], '', { AGENT_HOST_CONTEXT: `${path}.other` });
    expect(JSON.parse(out)).toMatchObject({ url: host.url, agent: 'helper' });
    expect(out).not.toContain(key);
  });

  test('a conversation from a file: each line after the answer to the one before', async () => {
    const { code, out, err } = await agentHost(['chat'], 'Hello\nHow are you?\n');
    expect(err).toBe('');
    expect(out.split('\n').slice(1)).toEqual(['echo: Hello', 'echo: How are you?', '']);
    expect(code).toBe(0);
  });

  test('what an agent asks is asked, and the next line is the answer', async () => {
    const { out, code } = await agentHost(['chat', 'payer'], `${JSON.stringify(SCRIPT.pays)}\nno\nThanks\n`);
    expect(out).toContain('Allow pay {"amount":5}? [y/n]\n[pay failed: ');
    expect(out).toContain('It is not paid.\necho: Thanks\n');
    expect(code).toBe(0);
  });

  test('a question that somebody else has answered needs no answer here, and the talk goes on', async () => {
    const child = spawn(process.execPath, [PROGRAM, 'chat', 'payer'], { cwd: host.dataDir, env });
    let out = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => (out += text));
    const ended = new Promise((resolve) => child.on('close', resolve));
    const shown = async (text: string): Promise<boolean> =>
      await until(`it shows ${text}`, () => out.includes(text), 120_000);
    const asked = async (): Promise<void> => {
      out = '';
      child.stdin.write(`${JSON.stringify(SCRIPT.pays)}\n`);
      await shown('Allow pay {"amount":5}? [y/n]');
    };
    try {
      await shown('Session ');
      const [, session = ''] = /^Session (\S+)\. /m.exec(out) ?? [];
      const elsewhere = async (): Promise<void> => {
        const { waits } = JSON.parse((await agentHost(['api', 'getSession', `sessionId=${session}`])).out) as {
          waits: readonly { id: string }[];
        };
        const answer = { type: 'approve', interactionId: waits[0]?.id, approved: false };
        const body = JSON.stringify({ ...answer, requestId: randomUUID(), idempotencyKey: randomUUID() });
        await agentHost(['api', 'sendCommand', `sessionId=${session}`, '--body', '-'], body);
      };
      await asked();
      await elsewhere();
      await shown('[that has been answered already');
      child.stdin.write('Thanks\n');
      await shown('echo: Thanks\n');
      await asked();
      // It hears of the answer and reads the line at once, in whichever order.
      child.kill('SIGSTOP');
      await elsewhere();
      child.stdin.write('y\n');
      child.kill('SIGCONT');
      await shown('[that has been answered already');
      child.stdin.end('Thanks again\n');
      await shown('echo: Thanks again\n');
      expect(await ended).toBe(0);
    } finally {
      child.kill('SIGKILL');
    }
  });

  test('one message for a script, its records as lines, and the lists', async () => {
    expect(await agentHost(['run', 'one two'])).toMatchObject({ code: 0, out: 'echo: one two\n' });
    const { out } = await agentHost(['run', 'one two', '--json']);
    const records = out
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as { type: string; sessionId: string });
    expect(records.map(({ type }) => type)).toEqual(['message.assistant', 'turn.completed']);
    const session = records[0]?.sessionId ?? '';
    const paused = await agentHost(['run', JSON.stringify(SCRIPT.pays), '--agent', 'payer']);
    expect(paused).toMatchObject({ code: 1, err: expect.stringContaining('agent-host: paused: ') });
    expect((await agentHost(['sessions', 'list'])).out).toContain(session);
    expect((await agentHost(['sessions', 'show', session])).out).toBe('> one two\necho: one two\n');
    expect((await agentHost(['inbox'])).out).toMatch(/approval .* pay \{"amount":5\}/);
    expect((await agentHost(['usage'])).out).toMatch(/^fixture\/any +\d+/m);
  });

  test('any operation of the document, and what is wrong with a call in one line', async () => {
    expect((await agentHost(['api'])).out).toContain('openSession');
    const agent = await agentHost(['api', 'getAgent', 'agentId=payer']);
    expect(JSON.parse(agent.out)).toMatchObject({ agentId: 'payer' });
    const body = JSON.stringify({ agentId: 'helper' });
    const opened = await agentHost(['api', 'openSession', 'sessionId=by/hand', '--body', '-'], body);
    expect(JSON.parse(opened.out)).toMatchObject({ id: 'by/hand', status: 'idle' });
    expect((await agentHost(['api', 'listTenants', 'limit=1'])).out).toContain('"tenants":');
    const refused = await agentHost(['api', 'getSession', 'sessionId=none']);
    expect(refused).toMatchObject({ code: 1, out: expect.stringContaining('"code":"not_found"') });
    for (const [args, says, exitCode] of [
      [['api', 'nothing'], /^agent-host: no operation is named nothing/, 2],
      [['api', 'getSession'], /^agent-host: getSession needs sessionId=…\n$/, 2],
      [['api', 'getSession', 'id=x'], /^agent-host: getSession has no parameter id; it has sessionId\n$/, 2],
      [['run'], /^agent-host: say what to send/, 2],
      [['chat', 'nobody-there'], /^agent-host: not_found: /, 1],
      [['chat', '--loud'], /^agent-host: Unknown option '--loud'/, 2],
    ] as const) {
      const { code, err } = await agentHost(args);
      expect(err).toMatch(says);
      expect(code).toBe(exitCode);
    }
  });

  test('the steps of the README: a program is written and run, its output is downloaded, and compared', async () => {
    const page = await readFile(join(ROOT, 'README.md'), 'utf8');
    const [, steps = ''] = /^## An agent that writes a program\n[\s\S]*?^```sh\n([\s\S]*?)^```$/m.exec(page) ?? [];
    const script = steps.replaceAll('npx agent-host', `'${process.execPath}' '${PROGRAM}'`);
    const options = { encoding: 'utf8', cwd: host.dataDir, env: { ...process.env, ...env } } as const;
    const said = execFileSync('/bin/bash', ['-eu', '-c', script], options);
    const zip = await unzipped(await readFile(join(host.dataDir, 'outputs.zip')));
    const [numbers = '', lines] = [zip.get('fib.txt'), zip.get('lines.txt')];
    expect(numbers.split('\n').slice(0, 21).join()).toBe(
      '0,1,1,2,3,5,8,13,21,34,55,89,144,233,377,610,987,1597,2584,4181,',
    );
    expect(lines).toMatch(/^ *20 outputs\/fib.txt\n$/);
    expect(said).toContain('Ten numbers.\nTwenty numbers.\n');
    expect(JSON.parse(said.trim().split('\n').at(-1) ?? '')).toMatchObject({
      ...{ from: 1, to: 2, added: [{ path: 'lines.txt' }], removed: [] },
      changed: [{ path: 'fib.txt', from: { size: 23 }, to: { size: numbers.length } }],
    });
  });

  test('npx starts the same program, with whatever Node the machine has', async () => {
    const { stdout } = await new Promise<{ stdout: string }>((resolve, reject) => {
      const child = spawn(join(ROOT, 'scripts/agent-host.mjs'), ['run', 'by hand'], {
        cwd: host.dataDir,
        env: { ...process.env, ...env },
      });
      let out = '';
      child.stdout.setEncoding('utf8').on('data', (text: string) => (out += text));
      child.on('error', reject).on('close', () => resolve({ stdout: out }));
    });
    expect(stdout).toBe('echo: by hand\n');
  });

  /**
   * A chat in a terminal of its own. So is its socket: a server told to end listens for a moment longer, and takes
   * the next one's session down with it (55 of 300, by hand).
   */
  async function checkInTerminal(args: readonly string[], talk: (terminal: Terminal) => Promise<void>): Promise<void> {
    const socket = join(await mkdtemp(join(host.dataDir, 'tmux-')), 'socket');
    const tmux = (...words: readonly string[]): string =>
      execFileSync('tmux', ['-S', socket, '-f', '/dev/null', ...words], {
        encoding: 'utf8',
        env: { ...env, PATH: process.env['PATH'] ?? '', TERM: 'xterm' },
      });
    const screen = (): string => tmux('capture-pane', '-p', '-S', '-');
    tmux('new-session', '-d', '-x', '200', '-y', '50', process.execPath, PROGRAM, ...args);
    tmux('set-option', 'remain-on-exit', 'on');
    const pid = Number(tmux('display-message', '-p', '#{pane_pid}'));
    try {
      await talk({
        screen,
        key: (name) => void tmux('send-keys', name),
        type: (text) => {
          tmux('send-keys', '-l', text);
          tmux('send-keys', 'Enter');
        },
        checkShows: async (text) =>
          void (await until(`the terminal shows ${text}`, () => screen().includes(text), 120_000)),
      });
      // Not `Pane is dead`: tmux sometimes never asks for the status of a process that has ended.
      await until('the chat has ended', () => commandLine(pid) === '', 120_000);
    } finally {
      tmux('kill-server');
    }
  }

  const isRunning = async (): Promise<boolean> => (await agentHost(['sessions', 'list'])).out.includes('running');

  test.each(hasTmux() ? ['chat'] : [])(
    'in a terminal: %s, an approval, and Ctrl-C in the middle of a turn',
    async (chat) => {
      await checkInTerminal([chat, 'payer'], async ({ checkShows, type, key }) => {
        await checkShows('Ctrl-D ends the chat.\n>');
        type('Hello');
        await checkShows('echo: Hello\n>');
        type(JSON.stringify(SCRIPT.pays));
        await checkShows('Allow pay {"amount":5}? [y/n]\n>');
        type('n');
        await checkShows('It is not paid.\n>');
        type(JSON.stringify(SCRIPT.waits));
        await until('its turn runs', isRunning, 120_000);
        key('C-c');
        await checkShows('[cancelled]\n>');
        key('C-d');
      });
    },
  );

  test.each(hasTmux() ? ['chat'] : [])('in a terminal: %s --json has records and no prompts', async (chat) => {
    await checkInTerminal([chat, 'payer', '--json'], async ({ screen, checkShows, type, key }) => {
      type('Hello');
      await checkShows('"type":"turn.completed"');
      expect(screen()).not.toMatch(/^>/m);
      type(JSON.stringify(SCRIPT.waits));
      await until('its turn runs', isRunning, 120_000);
      key('C-c');
      await checkShows('"type":"turn.cancelled"');
      key('C-d');
    });
  });
});

/** Of a person: what is on it, and what is typed. */
interface Terminal {
  readonly screen: () => string;
  readonly key: (name: string) => void;
  readonly type: (text: string) => void;
  readonly checkShows: (text: string) => Promise<void>;
}

function hasTmux(): boolean {
  try {
    execFileSync('tmux', ['-V']);
    return true;
  } catch {
    return false;
  }
}

test('the steps with curl do what they say', async () => {
  await using host = await startHost();
  const page = await readFile(join(ROOT, 'docs/http.md'), 'utf8');
  const steps = [...page.matchAll(/^```sh\n([\s\S]*?)^```$/gm)].map(([, step = '']) => step);
  expect(steps.length).toBeGreaterThan(7);
  const script = steps
    .join('\n')
    .replaceAll('http://127.0.0.1:7070', host.url)
    .replaceAll('.data/', `${host.dataDir}/`);
  const said = execFileSync('/bin/bash', ['-eu', '-c', script], { encoding: 'utf8', cwd: host.dataDir });
  expect(said).not.toContain('"status":"rejected"');
  expect(said.match(/"status":"accepted"/g)).toHaveLength(4);
  // The first words may be on their way before it watches, the last ones not.
  expect(said).toMatch(/^event: preview\ndata: .*"text":/m);
  for (const shown of [
    '"status":"ready"',
    '"applicationKey":"',
    'Hello, file',
    '"path":"/v1/artifact-links/',
    '"calls":[',
  ]) {
    expect(said).toContain(shown);
  }
});

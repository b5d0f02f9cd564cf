import { execFileSync, spawn, spawnSync } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { exportTree } from '#src/commands/artifact/export-tree.ts';
import { bareEnvironment } from '#src/embedded/run-command.ts';
import { chunks } from '../conformance/objects.ts';
import { artifactDepsOf } from '../support/artifact-deps.ts';
import { AuthServer } from '../support/auth-server.ts';
import { startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { PROGRAM } from '../support/program.ts';
import { TcpProxy } from '../support/tcp-proxy.ts';
import { until } from '../support/wait-until.ts';

const SOON_MS = 120_000;
/** What a terminal would obey. */
const HOSTILE = 'a\u001B]52;c;cm0=\u0007b\u009B2J\u202Ec';

interface Running {
  readonly child: ChildProcess;
  readonly out: () => string;
  readonly err: () => string;
  readonly ended: Promise<number | null>;
}

describe('the commands of a caller', () => {
  let host: Host;
  let env: Record<string, string>;
  const running: Running[] = [];

  function start(args: readonly string[], over: Record<string, string> = {}): Running {
    const child = spawn(process.execPath, [PROGRAM, ...args], { cwd: host.dataDir, env: { ...env, ...over } });
    let [out, err] = ['', ''];
    child.stdout.setEncoding('utf8').on('data', (text: string) => (out += text));
    child.stderr.setEncoding('utf8').on('data', (text: string) => (err += text));
    const ended = once(child, 'close').then(([code]) => code as number | null);
    const one = { child, out: () => out, err: () => err, ended };
    running.push(one);
    return one;
  }

  /** To its end; it must end with 0, unless another code is expected. */
  async function run(args: readonly string[], input = '', code = 0): Promise<string> {
    const one = start(args);
    one.child.stdin?.end(input);
    expect(await one.ended, `${args.join(' ')}: ${one.err()}`).toBe(code);
    return code === 0 ? one.out() : one.err();
  }

  const json = async <T>(args: readonly string[], input = ''): Promise<T[]> =>
    (await run([...args, '--json'], input))
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => JSON.parse(line) as T);

  beforeAll(async () => {
    host = await startHost();
    const context = join(host.dataDir, 'people/contexts.json');
    env = {
      ...bareEnvironment(['NODE_COMPILE_CACHE']),
      AGENT_HOST_DATA_DIR: host.dataDir,
      AGENT_HOST_CONTEXT: context,
    };
    await run(['init']);
  });

  afterAll(async () => {
    for (const { child } of running) if (child.exitCode === null) child.kill('SIGKILL');
    await host[Symbol.asyncDispose]();
  });

  test('contexts: several, one of them current, in a file of their owner, and no key is shown', async () => {
    const path = env['AGENT_HOST_CONTEXT'] ?? '';
    expect(await run(['init'], '', 1)).toContain('has a key that works');
    await run(['init', '--context', 'second']);
    const file = JSON.parse(await readFile(path, 'utf8')) as { tenant: string; key: string; others: object };
    const keys = [file.key, ...Object.values(file.others).map(({ key }: { key: string }) => key)];
    expect(keys).toHaveLength(2);
    const login = ['login', '--url', host.url, '--tenant', file.tenant, '--context', 'third', '--agent', 'none'];
    expect(await run(login, `${file.key}\n`)).toContain(`Signed in to ${file.tenant} as context third`);
    expect(await run(login, 'not-a-key-of-any-one', 4)).toMatch(/^agent-host: credential_invalid: /);
    expect(await run(login, '\n', 2)).toContain('standard input');
    expect((await stat(path)).mode & 0o777).toBe(0o600);
    expect(await readdir(join(host.dataDir, 'people'))).toEqual(['contexts.json']);

    expect(await run(['context', 'list'])).toMatch(/^\* +third +http\S+ +\S+ +none$/m);
    expect(await json(['context', 'list'])).toMatchObject([
      { name: 'default', current: false },
      { name: 'second', current: false },
      { name: 'third', current: true },
    ]);
    await run(['context', 'use', 'default']);
    expect(await json(['context', 'show'])).toMatchObject([{ name: 'default', agent: 'helper' }]);
    expect(await run(['run', 'Hello', '--context', 'second'])).toBe('echo: Hello\n');
    await run(['context', 'remove', 'third']);
    expect(await run(['context', 'remove', 'default'], '', 1)).toContain('is the current context');
    const shown = await Promise.all([
      ...[
        ['context', 'list'],
        ['context', 'show'],
        ['context', 'show', 'second'],
        ['context', 'list', '--json'],
      ].map(async (args) => await run(args)),
      run(['context', 'show', 'third'], '', 4),
    ]);
    for (const key of keys) expect(shown.join('')).not.toContain(key);
  });

  test('what is wrong has an exit code of its own, and is JSON for a program', async () => {
    expect(await run(['run'], '', 2)).toMatch(/^agent-host: say what to send/);
    expect(await run(['sessions'], '', 2)).toMatch(/^agent-host sessions list/);
    expect(await run(['nothing'], '', 2)).toMatch(/^agent-host: there is no command nothing;/);
    expect(await run(['sessions', 'list', '--limit', 'x'], '', 2)).toContain('--limit must be');
    const refused = JSON.parse(await run(['sessions', 'show', 'absent', '--json'], '', 1)) as unknown;
    expect(refused).toMatchObject({ error: { code: 'not_found', exitCode: 1 } });
    const nowhere = ['login', '--url', 'http://127.0.0.1:9', '--tenant', 't', '--context', 'x'];
    expect(await run(nowhere, 'some-key-of-mine', 3)).toContain('no Host answers');
    const none = start(['inbox'], { AGENT_HOST_CONTEXT: join(host.dataDir, 'absent.json') });
    expect(await none.ended).toBe(4);
  });

  test('agents are applied from YAML, with what changes shown before', async () => {
    const file = join(host.dataDir, 'agents.yaml');
    const agent = (id: string, text: string): string =>
      `agentId: ${id}\nmanifest:\n  instructions: ${text}\n  model: { provider: fixture, model: any }\n`;
    await writeFile(file, `${agent('one', 'Be brief.')}---\n${agent('two', 'Be long.')}`);
    expect(await run(['agents', 'apply', '-f', file, '--dry-run'])).toContain('one: new, not saved');
    expect(await run(['agents', 'list'])).not.toMatch(/^one /m);
    expect(await run(['agents', 'apply', '-f', file])).toMatch(/^one: version 1, .*\ntwo: version 1, /m);
    await writeFile(file, `${agent('one', 'Be brief.')}---\n${agent('two', 'Be kind.')}`);
    const changed = await run(['agents', 'apply', '-f', file]);
    expect(changed).toContain('-instructions: Be long.\n+instructions: Be kind.\n');
    expect(changed).toMatch(/^one: version 1, .*, unchanged\ntwo: version 2, /m);
    const shown = await run(['agents', 'show', 'two']);
    expect(shown).toMatch(/^agentId: two\nmanifest:\n {2}instructions: Be kind\.\n/);
    expect(await json(['agents', 'apply', '-f', '-'], shown)).toMatchObject([{ agentId: 'two', changed: false }]);
    await writeFile(
      file,
      JSON.stringify({ instructions: `${HOSTILE}\nnext`, model: { provider: 'fixture', model: 'any' } }),
    );
    await run(['agents', 'apply', 'hostile', file]);
    const neutral = await run(['agents', 'show', 'hostile']);
    // oxlint-disable-next-line eslint/no-control-regex -- these are what must not be there
    expect(neutral).not.toMatch(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202e]/);
    expect(await json(['agents', 'apply', '-f', '-'], neutral)).toMatchObject([{ agentId: 'hostile', changed: false }]);
    await writeFile(file, 'a: [');
    expect(await run(['agents', 'apply', '-f', file], '', 1)).toContain('is neither YAML nor JSON');
    expect(await run(['agents', 'apply', '-f', file, 'x', 'y'], '', 2)).toContain('name the file once');
  });

  test('sessions are tailed, forked and exported, and nothing in them is obeyed by a terminal', async () => {
    const [ended] = await json<{ sessionId: string }>(['run', HOSTILE]);
    const session = ended?.sessionId ?? '';
    const tail = start(['sessions', 'tail', session, '--from', 'start']);
    await until('the tail shows the turn', () => tail.out().includes('echo: '), SOON_MS);
    await run(['run', 'More', '--session', session]);
    await until('and what follows', () => tail.out().includes('echo: More'), SOON_MS);
    tail.child.kill('SIGINT');
    expect(await tail.ended).toBe(130);
    const texts = [tail.out(), await run(['sessions', 'show', session]), await run(['run', HOSTILE])];
    for (const text of texts) {
      expect(text).toContain('a␛]52;c;cm0=␇b\\u009b2J\\u202ec');
      // oxlint-disable-next-line eslint/no-control-regex -- these are what must not be there
      expect(text).not.toMatch(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202e]/);
    }
    const lines = await json<{ type: string; payload: { content?: string } }>(['sessions', 'show', session]);
    expect(lines[0]?.payload.content).toBe(HOSTILE);

    expect(await run(['sessions', 'fork', session, 'forked'])).toContain('forked continues');
    expect(await run(['run', 'Again', '--session', 'forked'])).toBe('echo: Again\n');
    expect(await run(['sessions', 'export', session, '--out', 'history.jsonl'])).toMatch(/: \d+ records\n$/);
    const exported = (await readFile(join(host.dataDir, 'history.jsonl'), 'utf8')).trim().split('\n');
    expect(exported.map((line) => (JSON.parse(line) as { type: string }).type)).toEqual(lines.map(({ type }) => type));
    expect(await run(['sessions', 'export', session, '--out', 'history.jsonl'], '', 1)).toContain('exists');
    expect(await run(['sessions', 'export', session])).toBe(`${exported.join('\n')}\n`);
    await until('its cost is known', async () => /\|.*█.*\|\n$/.test(await run(['usage', '--by', 'agent'])), SOON_MS);
  });

  test('files go up and come down, and a folder is compared and packed', async () => {
    await writeFile(join(host.dataDir, 'report.txt'), 'one');
    const [put] = await json<{ artifact: { artifactId: string } }>([
      'artifacts',
      'put',
      'report.txt',
      '--label',
      'a=b=c',
    ]);
    const id = put?.artifact.artifactId ?? '';
    expect(put).toMatchObject({ artifact: { name: 'report.txt', labels: { a: 'b=c' } } });
    await writeFile(join(host.dataDir, 'report.txt'), 'two!');
    expect(await run(['artifacts', 'put', 'report.txt', '--of', id])).toBe(`${id}: version 2, 4 B\n`);
    expect(await run(['artifacts', 'versions', id])).toMatch(/^1 +3 B [\s\S]*\n2 +4 B /m);
    expect(await run(['artifacts', 'get', id, '--version', '1', '-o', '-'])).toBe('one');
    expect(await run(['artifacts', 'get', id], '', 1)).toContain('report.txt exists');
    expect(await run(['artifacts', 'get', id, '--out', 'copy.txt'])).toBe('copy.txt: 4 B\n');
    expect(await readFile(join(host.dataDir, 'copy.txt'), 'utf8')).toBe('two!');
    expect(await run(['artifacts', 'get', 'absent'], '', 1)).toMatch(/^agent-host: not_found: /);
    expect(await interruptedGet()).toEqual({ code: 130, isLeft: false });
    expect(await run(['artifacts', 'put', 'absent.txt'], '', 1)).toContain('absent.txt cannot be read');

    await run(['api', 'openSession', 'sessionId=folders', '--body', '-'], '{"agentId":"helper"}');
    const folder = await folderOf('folders', [{ 'a.txt': 'x' }, { 'a.txt': 'xy', 'b.txt': 'z' }]);
    expect(await run(['artifacts', 'list'])).toContain(folder);
    expect(await run(['artifacts', 'diff', folder])).toMatch(/^\+ +b\.txt +1 B\n~ +a\.txt +1 B → 2 B\n/m);
    expect(await run(['artifacts', 'get', folder, '--path', 'a.txt', '-o', '-'])).toBe('xy');
    expect(await run(['artifacts', 'zip', folder])).toMatch(/^outputs\.zip: /);
    expect((await readFile(join(host.dataDir, 'outputs.zip'))).subarray(0, 2).toString()).toBe('PK');
  });

  /** A download that stands still in the middle, until Ctrl-C. */
  async function interruptedGet(): Promise<{ readonly code: number | null; readonly isLeft: boolean }> {
    await writeFile(join(host.dataDir, 'large.bin'), Buffer.alloc(4_000_000));
    const [put] = await json<{ artifact: { artifactId: string } }>(['artifacts', 'put', 'large.bin']);
    await using proxy = await TcpProxy.start(Number(new URL(host.url).port));
    const known = JSON.parse(await readFile(env['AGENT_HOST_CONTEXT'] ?? '', 'utf8')) as object;
    const file = join(host.dataDir, 'people/by-proxy.json');
    await writeFile(file, JSON.stringify({ ...known, url: `http://127.0.0.1:${proxy.port}` }));
    proxy.dropReplies(1_000_000);
    const get = start(['artifacts', 'get', put?.artifact.artifactId ?? '', '--out', 'part.bin'], {
      AGENT_HOST_CONTEXT: file,
    });
    const path = join(host.dataDir, 'part.bin');
    const bytes = async (): Promise<number> => (await stat(path).catch(() => null))?.size ?? 0;
    await until('a part is there', async () => (await bytes()) > 100_000, SOON_MS);
    get.child.kill('SIGINT');
    return { code: await get.ended, isLeft: (await stat(path).catch(() => null)) !== null };
  }

  /** As a sandbox's `/workspace/outputs` becomes one. */
  async function folderOf(sessionId: string, versions: readonly Readonly<Record<string, string>>[]): Promise<string> {
    await using deps = await artifactDepsOf(host);
    const { tenant } = JSON.parse(await readFile(env['AGENT_HOST_CONTEXT'] ?? '', 'utf8')) as { tenant: string };
    const { state } = await deps.sessions.refresh({ tenant, kind: 'session', id: sessionId });
    const sessionPosition = state.status === 'absent' ? 0 : state.createdPosition;
    let id = '';
    for (const tree of versions) {
      const files = Object.entries(tree).map(([path, text]) => ({
        path,
        contentType: 'text/plain',
        open: () => chunks(Buffer.from(text)),
      }));
      const made = await exportTree(deps, {
        tenant,
        owner: { sessionId, sessionPosition, subject: null, agentId: 'helper' },
        ...{ name: 'outputs', files, turnId: null, actor: 'worker:wk_1', causation: 'turn' },
        signal: new AbortController().signal,
      });
      if (made.kind !== 'done' || made.artifactId === null) throw new Error('no folder was made');
      id = made.artifactId;
    }
    return id;
  }

  test('budgets are set one by one', async () => {
    await run(['budgets', 'set', '--usd', '5']);
    await run(['budgets', 'set', '--agent', 'helper', '--period', 'day', '--tokens', '1000']);
    const budgets = await json<{ id: string; scope: string; limitUsd?: number }>(['budgets', 'set', '--usd', '7.5']);
    const limits = new Map(budgets.map(({ scope, limitUsd }) => [scope, limitUsd]));
    expect([budgets.length, limits.get('tenant'), limits.get('agent')]).toEqual([2, 7.5, undefined]);
    expect(await run(['budgets', 'list'])).toMatch(/ tenant +month +0\.00 USD +7\.50 USD$/m);
    for (const { id } of budgets) await run(['budgets', 'remove', id]);
    expect(await json(['budgets', 'list'])).toEqual([]);
    expect(await run(['budgets', 'set'], '', 2)).toContain('name a limit');
    expect(await run(['budgets', 'remove', 'none'], '', 1)).toContain('there is no budget');
  });

  test('vaults: a token that no argument has, and a sign-in that the browser ends', async () => {
    await using server = await AuthServer.start();
    const [vault] = await json<{ id: string }>(['vaults', 'create', 'Ann', '--subject', 'ann']);
    const id = vault?.id ?? '';
    const SECRET = 'token-that-is-not-shown';
    const added = await run(['vaults', 'add', id, 'Tickets', `${server.origin}/tickets`], `${SECRET}\n`);
    expect(added).toMatch(/: ready\n$/);
    const [mail] = await json<{ id: string }>(['vaults', 'add', id, 'Mail', `${server.origin}/mcp`, '--sign-in']);
    const signIn = start(['vaults', 'sign-in', id, mail?.id ?? '']);
    await until('it prints the address', () => signIn.out().includes('\n'), SOON_MS);
    const address = new URL(signIn.out().trim());
    expect(address.origin).toBe(server.origin);
    const { code, state } = server.consent(address.href);
    const back = new URL(address.searchParams.get('redirect_uri') ?? '');
    expect((await fetch(new URL('/other', back))).status).toBe(404);
    // Any page of that browser may call this address, and does not know the state.
    expect((await fetch(`${back.href}?code=forged&state=forged`)).status).toBe(400);
    expect((await fetch(`${back.href}?error=forged`)).status).toBe(400);
    const brought = new URLSearchParams({ code, state, iss: server.origin }).toString();
    expect((await fetch(`${back.href}?${brought}`)).status).toBe(200);
    expect(await signIn.ended, signIn.err()).toBe(0);
    expect(signIn.out()).toMatch(/: ready\n$/);

    const refused = start(['vaults', 'sign-in', id, mail?.id ?? '', '--redirect', 'https://app.example/back']);
    refused.child.stdin?.end('https://app.example/back?error=access_denied\n');
    expect(await refused.ended).toBe(1);
    expect(refused.err()).toContain('access_denied');
    const foreign = start(['vaults', 'sign-in', id, mail?.id ?? '', '--redirect', 'https://app.example/back']);
    foreign.child.stdin?.end('https://app.example/back?code=x&state=of-another\n');
    expect(await foreign.ended).toBe(1);
    expect(foreign.err()).toContain('the address of another sign-in');
    const listed = await run(['vaults', 'credentials', id]);
    expect(listed).toMatch(/ Tickets +bearer +ready /);
    expect(listed).toMatch(/ Mail +oauth +ready /);
    expect(await run(['vaults', 'list', '--subject', 'ann'])).toContain(id);
    expect(`${added}${listed}${await run(['api', 'listVaults'])}`).not.toContain(SECRET);
  });

  test('an executor runs the functions of a file until it is stopped', async () => {
    const tools = join(host.dataDir, 'tools.ts');
    await writeFile(tools, 'export const add = ({ a, b }: { a: number; b: number }): number => a + b;\n');
    const manifest = { instructions: 'Add.', model: { provider: 'fixture', model: 'any' } };
    const adder = { ...manifest, tools: [{ name: 'add', inputSchema: { type: 'object' } }] };
    await writeFile(join(host.dataDir, 'adder.json'), JSON.stringify(adder));
    await run(['agents', 'apply', 'adder', 'adder.json']);
    const executor = start(['executor', 'run', tools, 'adder']);
    await until('it runs', () => executor.out().includes('Runs add for adder.'), SOON_MS);
    const script = { fixture: [{ toolCalls: [{ name: 'add', input: { a: 2, b: 3 } }] }, { text: 'done' }] };
    const records = await run(['run', JSON.stringify(script), '--agent', 'adder', '--json']);
    expect(records).toContain('"output":5');
    expect(executor.out()).toMatch(/ add completed\n/);
    executor.child.kill('SIGTERM');
    expect(await executor.ended, executor.err()).toBe(0);
    expect(await run(['executor', 'run', 'absent.ts'], '', 1)).toContain('absent.ts cannot be loaded');
    await writeFile(tools, 'export const word = "add";\n');
    expect(await run(['executor', 'run', tools], '', 1)).toContain('exports no functions');
  });

  test('every command has help with an example, and the shells complete it', async () => {
    const names = (await run(['help'])).match(/^agent-host [a-z][a-z -]*[a-z]/gm) ?? [];
    expect(names.length).toBeGreaterThan(40);
    for (const name of ['sessions fork', 'agents apply', 'vaults add']) {
      expect(await run([...name.split(' '), '--help'])).toMatch(/\nExamples?:\n {2}agent-host /);
    }
    const complete = `${await run(['completion', 'bash'])}
for line in "se" "sessions f" "artifacts put --la" "completion z"; do
  COMP_WORDS=(agent-host $line) COMP_CWORD=$(wc -w <<< "$line"); _agent_host; echo "\${COMPREPLY[*]}"
done`;
    const completed = execFileSync('/bin/bash', ['--norc', '-c', complete], { encoding: 'utf8' });
    expect(completed).toBe('sessions\nfork\n--label\nzsh\n');
    const home = join(host.dataDir, 'home');
    await mkdir(home, { recursive: true });
    for (const [shell, args] of [
      ['zsh', ['-f', '-c', 'autoload -Uz compinit; compinit -u; source script.zsh; print $_comps[agent-host]']],
      ['fish', ['--no-config', '-c', 'source script.fish; complete -C "agent-host sessions f"']],
    ] as const) {
      await writeFile(join(home, `script.${shell}`), await run(['completion', shell]));
      const ran = spawnSync(shell, args, { cwd: home, encoding: 'utf8', env: { ...process.env, HOME: home } });
      if (ran.error !== undefined) continue;
      expect(ran.stderr).toBe('');
      expect(ran.stdout).toMatch(shell === 'zsh' ? /_agent_host/ : /^fork\t/m);
    }
  });
});

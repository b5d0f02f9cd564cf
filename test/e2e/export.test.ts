import { generateKeyPairSync } from 'node:crypto';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { expect, test } from 'vitest';
import { EVENT_SCHEMAS } from '#src/app/event-schemas.ts';
import { UPCASTERS } from '#src/app/events.ts';
import { writeBundle } from '#src/archive/export/bundle-file.ts';
import { checkBundle } from '#src/archive/export/check-bundle.ts';
import type { Checked } from '#src/archive/export/check-bundle.ts';
import { line as lineSchema } from '#src/archive/export/format.ts';
import type { Line } from '#src/archive/export/format.ts';
import { exportTree } from '#src/commands/artifact/export-tree.ts';
import { createCodec } from '#src/streams/codec.ts';
import { chunks } from '../conformance/objects.ts';
import { agentHost } from '../support/agent-host.ts';
import type { Ended } from '../support/agent-host.ts';
import { artifactDepsOf } from '../support/artifact-deps.ts';
import { ArtifactClient } from '../support/artifacts.ts';
import { AdminClient } from '../support/client.ts';
import type { TenantClient } from '../support/client.ts';
import { startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';

const check = async (file: string, key: string | null = null): Promise<Checked> =>
  await checkBundle(file, { codec: createCodec(UPCASTERS), schemas: EVENT_SCHEMAS, key });

/** A session that was forked from one whose id had belonged to another session, with artifacts of every kind. */
async function fill(host: Host, tenant: TenantClient): Promise<void> {
  await tenant.saveAgent();
  const turn = async (id: string): Promise<void> =>
    void (await tenant.turnEnd(id, (await tenant.message(id, 'ä "€" 😀')).turnId));
  await tenant.openSession('an/ancestor');
  await turn('an/ancestor');
  await tenant.request({ method: 'DELETE', path: '/v1/sessions/an%2Fancestor' });
  await tenant.openSession('an/ancestor');
  const files = new ArtifactClient(tenant);
  const { artifact } = await files.upload({ name: 'file', sessionId: 'an/ancestor' }, Buffer.alloc(200_000, 'bytes'));
  await files.sendVersion(artifact.artifactId, Buffer.alloc(0));
  await turn('an/ancestor');
  const [record] = await tenant.items('an/ancestor', { order: 'desc', limit: 1 });
  await turn('an/ancestor');
  const body = { requestId: 'r', idempotencyKey: 'k', id: 'a/fork', cursor: record?.cursor };
  const forked = await tenant.request({ method: 'POST', path: '/v1/sessions/an%2Fancestor/fork', body });
  expect(forked.status, forked.text).toBe(201);
  const gone = await files.upload({ name: 'gone', sessionId: 'a/fork' }, Buffer.from('gone'));
  await files.remove(gone.artifact.artifactId);
  await using parts = await artifactDepsOf(host);
  const { state } = await parts.sessions.refresh({ tenant: tenant.tenantId, kind: 'session', id: 'a/fork' });
  const sessionPosition = state.status === 'absent' ? 0 : state.createdPosition;
  await exportTree(parts, {
    ...{ tenant: tenant.tenantId, name: 'outputs', turnId: null, actor: 'worker:wk_1', causation: 'turn' },
    owner: { sessionId: 'a/fork', sessionPosition, subject: null, agentId: 'agent' },
    files: ['a', 'b/c', 'empty'].map((path) => ({
      ...{ path, contentType: 'text/plain' },
      open: () => chunks(Buffer.from(path === 'empty' ? '' : `content of ${path}`)),
    })),
    signal: new AbortController().signal,
  });
  await turn('a/fork');
}

test(
  'an export says what the log holds, and everything of it is checked without the Host',
  { timeout: 360_000 },
  async () => {
    const directory = await mkdtemp(join(tmpdir(), 'agent-host-export-'));
    await using disposables = new AsyncDisposableStack();
    disposables.defer(async () => await rm(directory, { recursive: true, force: true }));
    const host = disposables.use(await startHost());
    const tenant = await new AdminClient(host).createTenant();
    await fill(host, tenant);
    const env = { AGENT_HOST_DATA_DIR: host.dataDir };
    const [packed, plain] = [join(directory, 'fork.jsonl.gz'), join(directory, 'fork.jsonl')];
    const name = `${tenant.tenantId}/a/fork`;
    const run = async (...args: string[]): Promise<Ended> => await agentHost(env, 'export', ...args);
    const first = await run('session', name, '--out', packed, '--with-bytes');
    expect(first.code, first.text).toBe(0);
    expect(await run('session', name, '--out', packed)).toMatchObject({
      code: 1,
      text: expect.stringMatching(/^agent-host: .*fork.jsonl.gz exists; name another file, or remove it\n$/) as string,
    });
    expect(await run('session', `${tenant.tenantId}/none`)).toMatchObject({
      code: 1,
      text: `agent-host: there is no session none in tenant ${tenant.tenantId}\n`,
    });
    expect((await run('session', name, '--out', plain)).code).toBe(0);
    expect((await readdir(directory)).toSorted()).toEqual(['fork.jsonl', 'fork.jsonl.gz']);
    const key = (await run('public-key')).text.trim();
    const kek = await host.file('kek');
    await host.stop();

    // From here on there is nothing but the files.
    const whole = await agentHost({ AGENT_HOST_DATA_DIR: directory }, 'verify-export', packed, '--key', key);
    expect(whole.code, whole.text).toBe(0);
    expect(whole.text).toMatch(/checked: signature: by the key that was given/);
    expect(whole.text).toMatch(/checked: artifacts: 4 versions are those that the commits name, 3 have the bytes/);
    expect(whole.text).toMatch(/nothing is wrong\n$/);
    const unknown = await agentHost({}, 'verify-export', plain);
    expect(unknown.code, unknown.text).toBe(0);
    expect(unknown.text).toMatch(/not checked: whose signature it is: without --key/);
    expect(unknown.text).toMatch(/not checked: bytes of 4 versions/);
    const other = (await check(packed, 'A'.repeat(43))).problems;
    expect(other).toEqual(['it is signed with another key than the one that was given']);

    const text = gunzipSync(await readFile(packed)).toString();
    for (const secret of [host.adminKey, kek, tenant.credentials.key]) expect(text).not.toContain(secret);
    await everyChangeIsFound(directory, text);
    await forgedOnesAreFound(directory, text);
  },
);

/** Each line left out, doubled, exchanged with the next, or with one character changed. */
async function everyChangeIsFound(directory: string, text: string): Promise<void> {
  const lines = text.trimEnd().split('\n');
  const file = join(directory, 'changed');
  const problemsOf = async (changed: readonly string[], end = '\n'): Promise<readonly string[]> => {
    await writeFile(file, `${changed.join('\n')}${end}`);
    return (await check(file)).problems;
  };
  expect(await problemsOf(lines)).toEqual([]);
  for (const [n, line] of lines.entries()) {
    const at = Math.floor(line.length / 2);
    const changed = `${line.slice(0, at)}${line[at] === 'x' ? 'y' : 'x'}${line.slice(at + 1)}`;
    expect(await problemsOf(lines.with(n, changed)), `line ${n} changed`).not.toEqual([]);
    expect(await problemsOf(lines.toSpliced(n, 1)), `line ${n} left out`).not.toEqual([]);
    expect(await problemsOf(lines.toSpliced(n, 0, line)), `line ${n} doubled`).not.toEqual([]);
  }
  for (const [n, line] of lines.slice(1).entries()) {
    const moved = lines.with(n, line).with(n + 1, lines[n] ?? '');
    expect(await problemsOf(moved), `line ${n} moved`).not.toEqual([]);
  }
  expect(await problemsOf(lines, '')).toEqual(['its last line is cut off']);
}

/** Who signs what he has changed, with a key of his own, still has no history that hangs together. */
async function forgedOnesAreFound(directory: string, text: string): Promise<void> {
  const lines = text
    .trimEnd()
    .split('\n')
    .slice(0, -1)
    .map((one) => lineSchema.parse(JSON.parse(one)));
  const { privateKey } = generateKeyPairSync('ed25519');
  const problemsOf = async (name: string, change: (line: Line, n: number) => readonly Line[]): Promise<string> => {
    const file = join(directory, name);
    const changed = lines.flatMap(change);
    await writeBundle(
      file,
      (async function* () {
        yield* changed;
        await Promise.resolve();
      })(),
      privateKey,
    );
    return (await check(file)).problems.join('\n');
  };
  const commits = lines.flatMap((line, n) => (line.kind === 'commit' ? [n] : []));
  const same = await problemsOf('resigned', (line) => [line]);
  expect(same).toBe('it names another installation than the one that signed it');
  for (const at of commits) {
    const without = await problemsOf(`without-${at}`, (line, n) => (n === at ? [] : [line]));
    expect(without, `commit ${at} left out`).toMatch(/commit \d+ follows commit|does not hold what/);
    const altered = await problemsOf(`altered-${at}`, (line, n) =>
      n === at && line.kind === 'commit' ? [{ ...line, text: line.text.replace('"actor":"', '"actor":"x') }] : [line],
    );
    expect(altered, `commit ${at} altered`).toMatch(/is not the one that commit|does not hold what/);
  }
  const bytes = await problemsOf('bytes', (line) =>
    line.kind === 'bytes' ? [{ ...line, data: line.data.replace(/^./, (c) => (c === 'A' ? 'B' : 'A')) }] : [line],
  );
  expect(bytes.match(/has other bytes than its digest says/g)).toHaveLength(3);
  const parent = await problemsOf('orphan', (line, n) =>
    n >= 1 && n < lines.findLastIndex(({ kind }) => kind === 'chain') ? [] : [line],
  );
  expect(parent).toMatch(/does not hold the histories that the session reads through/);
}

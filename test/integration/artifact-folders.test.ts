import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { exportTree } from '#src/commands/artifact/export-tree.ts';
import type { Exported, ExportInput } from '#src/commands/artifact/export-tree.ts';
import type { ArtifactDeps } from '#src/commands/artifact/deps.ts';
import { ArtifactGoneError, findArtifact, openFile, treeOf, versionOf } from '#src/commands/artifact/read.ts';
import type { Rejection } from '#src/domain/kernel/rejection.ts';
import { SESSION_ARTIFACTS_MAX } from '#src/domain/session/artifacts.ts';
import type { SessionEvent } from '#src/domain/session/events.ts';
import { newId } from '#src/lib/ids.ts';
import { problemOf } from '#src/http/errors.ts';
import { chunks, listed } from '../conformance/objects.ts';
import { newSession, refused } from '../conformance/http/target.ts';
import { artifactDepsOf } from '../support/artifact-deps.ts';
import { ArtifactClient, sha256 } from '../support/artifacts.ts';
import { AdminClient, send } from '../support/client.ts';
import { startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { until } from '../support/wait-until.ts';
import { unzipped } from '../support/zip.ts';

type Tree = Readonly<Record<string, string>>;

let host: Host;
let deps: ArtifactDeps & AsyncDisposable;
let files: ArtifactClient;

beforeAll(async () => {
  host = await startHost();
  deps = await artifactDepsOf(host);
  files = new ArtifactClient(await new AdminClient(host).createTenant());
  await files.tenant.saveAgent();
});

afterAll(async () => {
  await deps[Symbol.asyncDispose]();
  await host[Symbol.asyncDispose]();
});

/** As the exporter of a session's sandbox will do it. */
async function exported(sessionId: string, tree: Tree, over: Partial<ExportInput> = {}): Promise<Exported | Rejection> {
  const tenant = files.tenant.tenantId;
  const { state } = await deps.sessions.refresh({ tenant, kind: 'session', id: sessionId });
  const sessionPosition = state.status === 'absent' ? 0 : state.createdPosition;
  return await exportTree(deps, {
    tenant,
    owner: { sessionId, sessionPosition, subject: null, agentId: 'agent' },
    name: 'outputs',
    files: Object.entries(tree).map(([path, text]) => ({
      path,
      contentType: 'text/plain',
      open: () => chunks(Buffer.from(text)),
    })),
    turnId: null,
    actor: 'worker:wk_1',
    causation: 'turn',
    signal: new AbortController().signal,
    ...over,
  });
}

async function done(
  outcome: Promise<Exported | Rejection>,
): Promise<{ id: string; version: number; changed: boolean }> {
  const result = await outcome;
  if (result.kind === 'rejected' || result.artifactId === null)
    throw new Error(`not exported: ${JSON.stringify(result)}`);
  return { id: result.artifactId, version: result.version, changed: result.changed };
}

const shown = (tree: Tree) =>
  Object.keys(tree)
    .toSorted((a, b) => (a < b ? -1 : 1))
    .map((path) => ({
      path,
      size: Buffer.byteLength(tree[path] ?? ''),
      sha256: sha256(tree[path] ?? ''),
      contentType: 'text/plain',
    }));

test('a folder has a new version when it changed, and none when it did not', async () => {
  const session = await newSession(files.tenant);
  expect(await exported(session, {})).toEqual({ kind: 'done', artifactId: null, version: 0, changed: false });
  const first = await done(exported(session, { 'a.txt': 'one', 'b/c.txt': 'two' }));
  expect(first).toMatchObject({ version: 1, changed: true });
  const { id } = first;
  expect(await done(exported(session, { 'b/c.txt': 'two', 'a.txt': 'one' }))).toEqual({
    id,
    version: 1,
    changed: false,
  });
  expect(await done(exported(session, { 'a.txt': 'one', 'b/c.txt': 'three' }))).toEqual({
    id,
    version: 2,
    changed: true,
  });
  expect(await done(exported(session, {}))).toEqual({ id, version: 3, changed: true });
  expect(await done(exported(session, {}))).toEqual({ id, version: 3, changed: false });
  const { versions = [], ...artifact } = await files.get(id);
  expect(artifact).toMatchObject({ kind: 'folder', name: 'outputs', sessionId: session, latestVersion: 3 });
  expect(versions.map(({ source, size }) => [source, size])).toEqual([
    ['export', 6],
    ['export', 8],
    ['export', 0],
  ]);
  expect(await files.told(session)).toEqual([1, 2, 3].map((n) => `artifact.created outputs ${n}`));
  expect((await files.tree(id, 2)).files).toEqual(shown({ 'a.txt': 'one', 'b/c.txt': 'three' }));
  const [, changed] = shown({ 'a.txt': '', 'b/c.txt': 'three' });
  const [, before] = shown({ 'a.txt': '', 'b/c.txt': 'two' });
  const nothing = { artifactId: id, added: [], removed: [], changed: [] };
  expect(await files.diff(id, 2)).toEqual({
    ...nothing,
    from: 1,
    to: 2,
    changed: [{ path: 'b/c.txt', from: before, to: changed }],
  });
  expect((await files.diff(id, 'latest')).removed).toEqual(shown({ 'a.txt': 'one', 'b/c.txt': 'three' }));
  expect((await files.diff(id, 2, '?from=latest')).added).toEqual(shown({ 'a.txt': 'one', 'b/c.txt': 'three' }));
});

test('bytes that an earlier version has are stored and counted once', async () => {
  const session = await newSession(files.tenant);
  const before = (await files.use()).usedBytes;
  const { id } = await done(exported(session, { a: 'x'.repeat(1_000), copy: 'x'.repeat(1_000), b: 'y'.repeat(10) }));
  expect((await files.use()).usedBytes).toBe(before + 1_010);
  await done(exported(session, { moved: 'x'.repeat(1_000), b: 'z'.repeat(10) }));
  expect((await files.use()).usedBytes).toBe(before + 1_020);
  const objects = (await listed(deps.objects, files.tenant.tenantId)).filter(({ owner }) => owner === id);
  expect(objects.filter(({ name }) => !name.endsWith('-tree')).map(({ bytes }) => bytes)).toHaveLength(3);
  await files.remove(id);
  expect((await files.use()).usedBytes).toBe(before);
  expect((await listed(deps.objects, files.tenant.tenantId)).filter(({ owner }) => owner === id)).toEqual([]);
  // Its successor is another artifact.
  const next = await done(exported(session, { a: 'again' }));
  expect(next).toMatchObject({ version: 1, changed: true });
  expect(next.id).not.toBe(id);
});

test('what a turn leaves in its sandbox is a folder without a byte of it being copied', async () => {
  await files.tenant.saveAgent('coder', { sandboxTools: ['write'] });
  const session = await newSession(files.tenant, { agentId: 'coder' });
  const call = { name: 'write', input: { path: 'outputs/a.txt', content: 'x'.repeat(1_000) } };
  const { turnId } = await files.tenant.play(session, [{ toolCalls: [call] }, { text: 'done' }]);
  expect((await files.tenant.turnEnd(session, turnId)).type).toBe('turn.completed');
  const [outputs] = await files.list(`?sessionId=${session}`);
  const objects = (await listed(deps.objects, files.tenant.tenantId)).filter(
    ({ owner }) => owner === outputs?.artifactId,
  );
  expect(objects.map(({ name }) => name)).toEqual([expect.stringMatching(/-tree$/)]);
  const archive = await files.tenant.request({
    path: `/v1/artifacts/${outputs?.artifactId ?? ''}/versions/latest/zip`,
  });
  expect(await unzipped(archive.bytes)).toEqual(new Map([['a.txt', 'x'.repeat(1_000)]]));
});

test('a folder is read as a tree, file by file, as an archive and by a link, never as one content', async () => {
  const session = await newSession(files.tenant);
  const tree = { 'отчёт/данные 1.csv': 'a;b', '報告書.md': '# x', 'C:drive': 'no drive', 'deep/er/still': '' };
  const { id } = await done(exported(session, tree));
  const base = `/v1/artifacts/${id}/versions/latest`;
  for (const [path, text] of Object.entries(tree)) {
    for (const encoded of [encodeURIComponent(path), path.split('/').map(encodeURIComponent).join('/')]) {
      const file = await files.tenant.request({ path: `${base}/files/${encoded}` });
      expect([file.status, file.text]).toEqual([200, text]);
    }
  }
  const archive = new Map(Object.entries(tree).map(([path, text]) => [path.replace('C:', 'C_'), text]));
  const zip = await files.tenant.request({ path: `${base}/zip` });
  expect(await unzipped(zip.bytes)).toEqual(archive);
  const { path } = await files.link(id);
  const linked = await send(host.url, { path });
  expect(await unzipped(linked.bytes)).toEqual(archive);
  for (const wrong of ['content', 'files/..%2F..%2Fsecret', 'files/a//b']) {
    expect((await files.tenant.request({ path: `${base}/${wrong}` })).status, wrong).toBe(400);
  }
  const upload = await files.sendVersion(id, Buffer.from('x'));
  expect([upload.status, upload.json]).toMatchObject([409, { code: 'conflict' }]);
});

test('what a deleted session has left is not shown for a session that has its id now', async () => {
  const session = await newSession(files.tenant);
  const tenant = files.tenant.tenantId;
  const { state } = await deps.sessions.refresh({ tenant, kind: 'session', id: session });
  const sessionPosition = state.status === 'absent' ? 0 : state.createdPosition;
  const path = `/v1/sessions/${encodeURIComponent(session)}`;
  expect((await files.tenant.request({ method: 'DELETE', path })).status).toBe(200);
  // It was on its way when the session was deleted, so the deletion did not find it.
  const owner = { sessionId: session, sessionPosition, subject: null, agentId: 'agent' };
  const { id } = await done(exported(session, { a: 'late' }, { owner }));
  await until('the list has it, unless the keeper was faster', async () => {
    const isListed = (await files.list()).some(({ artifactId }) => artifactId === id);
    return isListed || (await files.tenant.request({ path: `/v1/artifacts/${id}` })).status === 404;
  });
  expect(await files.list(`?sessionId=${session}`)).toEqual([]);
  await files.tenant.openSession(session);
  expect(await files.list(`?sessionId=${session}`)).toEqual([]);
  await files.upload({ name: 'new', sessionId: session }, Buffer.from('x'));
  expect((await files.list(`?sessionId=${session}`)).map(({ name }) => name)).toEqual(['new']);
});

test('a session that has had too many artifacts takes no new one, but new versions of those it has', async () => {
  const session = await newSession(files.tenant);
  const { artifact } = await files.upload({ name: 'kept', sessionId: session }, Buffer.from('one'));
  const ref = { tenant: files.tenant.tenantId, kind: 'session', id: session } as const;
  const createdOne = (n: number): SessionEvent => ({
    type: 'artifact.created',
    data: {
      ...{ turnId: null, artifactId: newId('af'), kind: 'file', name: `n${n}`, contentType: 'a/b' },
      ...{ version: 1, size: 0, sha256: sha256(''), source: 'upload' },
    },
  });
  for (let n = 1; n < SESSION_ARTIFACTS_MAX; n += 1_000) {
    const events = Array.from({ length: Math.min(1_000, SESSION_ARTIFACTS_MAX - n) }, (_, i) => createdOne(n + i));
    const decide = () => ({ kind: 'accepted', events, reply: null }) as const;
    await deps.loop.execute(deps.sessions, ref, { actor: 'test', causation: 'test', decide });
  }
  const answer = await files.send({ name: 'one more', sessionId: session }, Buffer.from('x'));
  const { details, message } = refused(answer, 409, 'limit_exceeded');
  expect(details).toEqual({ limit: 'artifacts', count: SESSION_ARTIFACTS_MAX });
  expect(message).toContain('new session');
  expect((await files.sendVersion(artifact.artifactId, Buffer.from('two'))).status).toBe(201);
});

const segment = fc.string({ minLength: 1, maxLength: 4, unit: fc.constantFrom('a', 'b', 'ß', '字', ' ', '.', 'x') });
const path = fc
  .array(
    segment.filter((name) => name !== '.' && name !== '..'),
    { minLength: 1, maxLength: 3 },
  )
  .map((names) => names.join('/'));
const anyTree = fc
  .dictionary(path, fc.string({ maxLength: 40 }), { maxKeys: 8, noNullPrototype: true })
  // A path cannot be a file and a folder.
  .map((tree) =>
    Object.fromEntries(
      Object.entries(tree).filter(([one]) => !Object.keys(tree).some((two) => two.startsWith(`${one}/`))),
    ),
  );

test('random trees come back as they were: as trees, in archives, and in what changed between any two', async () => {
  const session = await newSession(files.tenant);
  const model: Tree[] = [];
  let id = '';
  await fc.assert(
    fc.asyncProperty(anyTree, fc.nat(), async (tree, pick) => {
      const wellFormed = Object.fromEntries(Object.entries(tree).map(([name, text]) => [name, text.toWellFormed()]));
      if (model.length === 0 && Object.keys(wellFormed).length === 0) return;
      const outcome = await done(exported(session, wellFormed));
      id = outcome.id;
      const same = JSON.stringify(shown(wellFormed)) === JSON.stringify(shown(model.at(-1) ?? {}));
      expect(outcome.changed).toBe(model.length === 0 || !same);
      if (outcome.changed) model.push(wellFormed);
      expect(outcome.version).toBe(model.length);
      expect((await files.tree(id)).files).toEqual(shown(wellFormed));
      const zip = await files.tenant.request({ path: `/v1/artifacts/${id}/versions/latest/zip` });
      expect(await unzipped(zip.bytes)).toEqual(new Map(Object.entries(wellFormed)));
      const from = 1 + (pick % model.length);
      const old = model[from - 1] ?? {};
      const diff = await files.diff(id, 'latest', `?from=${from}`);
      const names = (list: readonly { path: string }[]): string[] => list.map((one) => one.path);
      expect(names(diff.added)).toEqual(names(shown(wellFormed)).filter((name) => !Object.hasOwn(old, name)));
      expect(names(diff.removed)).toEqual(names(shown(old)).filter((name) => !Object.hasOwn(wellFormed, name)));
      const kept = names(shown(wellFormed)).filter((name) => Object.hasOwn(old, name));
      expect(names(diff.changed)).toEqual(kept.filter((name) => old[name] !== wellFormed[name]));
    }),
    { numRuns: 40 },
  );
  expect((await files.get(id)).latestVersion).toBe(model.length);
});

test('a folder past a limit, or of paths that cannot be, leaves nothing', async () => {
  const session = await newSession(files.tenant);
  const { usedBytes } = await files.use();
  expect(await exported(session, { big: 'x'.repeat(1_000_001) })).toMatchObject({
    code: 'limit_exceeded',
    details: { limit: 'file' },
  });
  const many = Object.fromEntries(
    Array.from({ length: 11 }, (_, i) => [`n${i}`, String(i).repeat(1_000_000).slice(0, 1_000_000)]),
  );
  expect(await exported(session, many)).toMatchObject({ code: 'limit_exceeded', details: { limit: 'total' } });
  for (const bad of ['../a', '/a', 'a//b', 'a\\b', 'a\nb']) {
    expect(await exported(session, { [bad]: 'x' })).toMatchObject({ code: 'invalid_request' });
  }
  expect(await exported(session, { a: 'x', 'a/b': 'y' })).toMatchObject({ code: 'invalid_request' });
  expect(await files.list(`?sessionId=${session}`)).toEqual([]);
  expect((await files.use()).usedBytes).toBe(usedBytes);
});

test('a reader whose artifact is deleted before its bytes are opened is told that it is not there', async () => {
  const session = await newSession(files.tenant);
  const { id: artifactId } = await done(exported(session, { 'a.txt': 'one' }, { name: 'doomed' }));
  const tenant = files.tenant.tenantId;
  const found = await findArtifact(deps, { tenant, artifactId, outOfReach: () => null });
  const version = found.kind === 'rejected' ? found : versionOf(found, 'latest');
  if (version.kind === 'rejected') throw new Error(version.message);
  const [file] = await treeOf(deps, version);
  if (file === undefined) throw new Error('the folder has a file');
  const failures = async (): Promise<unknown[]> => {
    const reads = await Promise.allSettled([treeOf(deps, version), openFile(deps, version, file)]);
    return reads.map((read) => (read.status === 'rejected' ? read.reason : null));
  };
  // Bytes that are lost are not the same: the artifact is there.
  await deps.objects.removeOwner(tenant, artifactId);
  for (const failure of await failures()) {
    expect(failure).toMatchObject({ dependency: 'objects' });
    expect(failure).not.toBeInstanceOf(ArtifactGoneError);
    expect(problemOf(failure, 1)).toMatchObject({ code: 'unavailable', details: { dependency: 'objects' } });
  }
  expect((await files.remove(artifactId)).status).toBe(200);
  for (const failure of await failures()) expect(problemOf(failure, 1)?.code).toBe('not_found');
});

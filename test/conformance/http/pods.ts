import { createHash } from 'node:crypto';
import { beforeAll, describe, expect, test } from 'vitest';
import * as artifacts from '#src/http/wire/artifacts.ts';
import * as boxes from '#src/http/wire/sandboxes.ts';
import * as wire from '#src/http/wire/schemas.ts';
import type { Answer, EventRecord, TenantClient } from '../../support/client.ts';
import { SseReader } from '../../support/sse.ts';
import { until } from '../../support/wait-until.ts';
import { fresh, newTenant, refused, shaped } from './target.ts';
import type { HttpTarget } from './target.ts';

const TURN_MS = 90_000;

/** Pods as clients see them, at two nodes that share their volumes. */
export function podSuite(backend: 'bubblewrap' | 'kubernetes', target: () => HttpTarget): void {
  let tenant: TenantClient;
  let there: TenantClient;

  beforeAll(async () => {
    tenant = await newTenant(target());
    there = tenant.at(target().nodes[1]);
    await tenant.saveAgent('machinist', { sandboxTools: true, sandbox: { kind: 'pod', spec: { memory: '256Mi' } } });
  });

  const at = (id: string, rest = ''): string => `/v1/sandboxes/${encodeURIComponent(id)}${rest}`;
  const put = async (id: string, spec: object = {}): Promise<Answer> =>
    await tenant.request({ method: 'PUT', path: at(id), body: { kind: 'pod', spec } });
  const get = async (id: string, rest = ''): Promise<Answer> => await there.request({ path: at(id, rest) });
  const post = async (id: string, rest: string): Promise<Answer> =>
    await there.request({ method: 'POST', path: at(id, rest), body: {} });
  const shown = async (id: string) => shaped(await get(id), 200, boxes.sandbox);
  const call = (name: string, input: object) => ({ toolCalls: [{ name, input }] });
  const bash = (command: string, timeoutSeconds?: number) => call('bash', { command, timeoutSeconds });

  async function played(id: string, steps: readonly unknown[], of = tenant): Promise<EventRecord[]> {
    const { turnId } = await of.play(id, steps);
    const end = await of.turnEnd(id, turnId, TURN_MS);
    expect(end.type, JSON.stringify(end.payload)).toBe('turn.completed');
    return (await of.items(id)).filter((item) => item.turnId === turnId);
  }

  const outcomes = (items: readonly EventRecord[]) =>
    items.flatMap((item) => (item.type === 'action.completed' ? [item.payload.outcome] : []));

  test('the tenant is told that it can have pods', async () => {
    const answer = shaped(await tenant.request({ path: '/v1/tenant/sandbox' }), 200, boxes.tenantSandbox);
    expect(answer.pod).toEqual({ available: true, backend });
  });

  test('a pod runs, is stopped, started, reset and deleted', async () => {
    const id = fresh('pod');
    const made = shaped(await put(id, { ttl: '1h' }), 200, boxes.sandbox);
    const running = { desired: 'running', observed: 'running', volumeGeneration: 1, hostEpoch: 1 };
    expect(made).toMatchObject({ id, kind: 'pod', state: 'running', pod: running });
    expect(Date.parse(made.pod?.expiresAt ?? '') - Date.parse(made.createdAt)).toBe(3_600_000);
    refused(await put(id, { ttl: '2h' }), 409, 'conflict');
    const bytes = Buffer.from('kept\n');
    shaped(await tenant.request({ method: 'PUT', path: at(id, '/files/d/f'), body: bytes }), 200, boxes.fileWritten);

    const stopped = shaped(await post(id, '/stop'), 200, boxes.sandbox);
    expect(stopped).toMatchObject({
      state: 'stopped',
      pod: { desired: 'suspended', observed: 'suspended', hostEpoch: 2 },
    });
    expect(shaped(await post(id, '/stop'), 200, boxes.sandbox)).toEqual(stopped);
    const sha256 = createHash('sha256').update(bytes).digest('hex');
    const tree = shaped(await get(id, '/tree'), 200, boxes.tree);
    expect(tree.files).toEqual([{ path: 'd/f', size: 5, sha256, contentType: 'application/octet-stream' }]);
    expect((await shown(id)).state).toBe('stopped');
    const listed = await tenant.request({ path: '/v1/sandboxes?state=stopped' });
    expect(shaped(listed, 200, boxes.sandboxList).sandboxes.map((one) => one.id)).toEqual([id]);

    expect(shaped(await put(id, { ttl: '1h' }), 200, boxes.sandbox)).toMatchObject({
      ...{ state: 'running', pod: { ...running, hostEpoch: 3 } },
    });
    const part = await there.request({ path: at(id, '/files/d%2Ff'), headers: { range: 'bytes=1-2' } });
    expect([part.status, part.text]).toEqual([206, 'ep']);
    const reset = shaped(await post(id, '/reset'), 200, boxes.sandbox);
    expect(reset).toMatchObject({ state: 'running', pod: { volumeGeneration: 2 } });
    expect(shaped(await get(id, '/tree'), 200, boxes.tree).files).toEqual([]);
    refused(await get(id, '/files/d/f'), 404, 'not_found');
    shaped(await there.request({ method: 'DELETE', path: at(id) }), 200, boxes.sandboxDeleted);
    refused(await get(id), 404, 'not_found');
    expect(shaped(await put(id), 200, boxes.sandbox).pod).toMatchObject({ volumeGeneration: 1, hostEpoch: 1 });
    expect(shaped(await get(id, '/tree'), 200, boxes.tree).files).toEqual([]);
  });

  test('a pod that this Host cannot give is refused, and says why', async () => {
    for (const spec of [{ image: 'debian:12' }, { cpus: 999 }, { memory: '999Gi' }, { storage: '999999Gi' }]) {
      const { message } = refused(await put(fresh('pod'), spec), 409, 'sandbox_unavailable');
      expect(message, JSON.stringify(spec)).toMatch(/image|Ask for less/);
    }
    if (backend !== 'kubernetes') return;
    const { message } = refused(
      await put(fresh('pod'), { network: { allow: ['a.test'] } }),
      409,
      'sandbox_unavailable',
    );
    expect(message).toContain('AGENT_HOST_POD_PROXY_LISTEN is not set');
  });

  test('files are put in, replaced and removed; a link leads nowhere', async () => {
    const { id, sandboxId } = await opened();
    const write = async (path: string, body: string) =>
      await tenant.request({ method: 'PUT', path: at(sandboxId, `/files/${path}`), body: Buffer.from(body) });
    const remove = async (path: string) =>
      await tenant.request({ method: 'DELETE', path: at(sandboxId, `/files/${path}`) });
    shaped(await write('a/b', 'one'), 200, boxes.fileWritten);
    shaped(await write('a/b', 'two'), 200, boxes.fileWritten);
    refused(await write('a', 'x'), 400, 'invalid_request');
    refused(await write('a/b/c', 'x'), 400, 'invalid_request');
    await played(id, [bash('cat a/b > seen; ln -s /etc/passwd link; ln -s / root; echo x > a/c'), { text: 'done' }]);
    expect((await get(sandboxId, '/files/seen')).text).toBe('two');
    for (const path of ['link', 'root/etc/passwd', 'none'])
      refused(await get(sandboxId, `/files/${path}`), 404, 'not_found');
    refused(await write('root/x', 'x'), 400, 'invalid_request');
    refused(await remove('root/tmp'), 404, 'not_found');
    shaped(await remove('a'), 200, boxes.fileDeleted);
    const left = shaped(await get(sandboxId, '/tree'), 200, boxes.tree).files;
    expect(left.map(({ path }) => path)).toEqual(['seen']);
  });

  async function opened(body: object = {}): Promise<{ id: string; sandboxId: string }> {
    const id = fresh('s');
    const { sandboxId } = await tenant.openSession(id, { agentId: 'machinist', ...body });
    return { id, sandboxId: sandboxId ?? '' };
  }

  describe('turns', () => {
    test('work in a pod from call to call, from turn to turn, and from node to node', async () => {
      const { id, sandboxId } = await opened();
      const items = await played(id, [
        call('write', { path: 'a.sh', content: 'echo "$1"; echo $USER\n' }),
        bash('bash a.sh one > out; cat out; exit 3'),
        call('grep', { pattern: 'on.' }),
        bash('while true; do :; done', 1),
        { text: 'done' },
      ]);
      expect(outcomes(items)).toMatchObject([
        { kind: 'completed', output: { path: 'a.sh', size: 22 } },
        { kind: 'completed', output: { stdout: 'one\nagent\n', stderr: '', exitCode: 3 } },
        { kind: 'completed', output: { matches: [{ path: 'out', line: 1, text: 'one' }] } },
        { kind: 'failed', code: 'timeout' },
      ]);
      const execs = items.flatMap((item) => (item.type === 'sandbox.exec' ? [item.payload] : []));
      expect(execs).toMatchObject([
        { sandboxId, tool: 'write', outcome: 'completed' },
        { tool: 'bash', exitCode: 3, outcome: 'completed' },
        { tool: 'grep', outcome: 'completed' },
        { tool: 'bash', outcome: 'timeout' },
      ]);
      const later = await played(id, [bash('cat out'), { text: 'done' }], there);
      expect(outcomes(later)).toMatchObject([{ output: { stdout: 'one\nagent\n' } }]);
    });

    test('start a stopped pod, which no one stops while they run', async () => {
      const { id, sandboxId } = await opened();
      await played(id, [bash('echo kept > f'), { text: 'done' }]);
      await until('the pod is free', async () => (await post(sandboxId, '/stop')).status === 200, TURN_MS);
      const { turnId } = await tenant.play(id, [bash('echo begun > begun; sleep 600'), { text: 'done' }]);
      const begun = async () => (await get(sandboxId, '/files/begun')).status === 200;
      await until('the command runs', begun, TURN_MS);
      expect(await shown(sandboxId)).toMatchObject({ state: 'running', pod: { desired: 'running', hostEpoch: 3 } });
      for (const rest of ['/stop', '/reset']) {
        const busy = refused(await post(sandboxId, rest), 409, 'sandbox_busy');
        expect(busy.activeTurnId).toBe(turnId);
      }
      refused(await there.request({ method: 'DELETE', path: at(sandboxId, '/files/f') }), 409, 'sandbox_busy');
      refused(await there.request({ method: 'DELETE', path: at(sandboxId) }), 409, 'sandbox_busy');
      await tenant.cancel(id);
      await tenant.turnEnd(id, turnId, TURN_MS);
      await until('the pod is free', async () => (await post(sandboxId, '/stop')).status === 200, TURN_MS);
      expect((await get(sandboxId, '/files/f')).text).toBe('kept\n');
    });

    test('run a command once that their deadline ended, also when they are taken up again', async () => {
      const { id, sandboxId } = await opened();
      await played(id, [bash('true'), { text: 'done' }]);
      const model = { provider: 'fixture', model: 'any' };
      const manifest = { instructions: 'Answer.', model, sandboxTools: true, limits: { maxTurnSeconds: 6 } };
      const steps = [bash('echo run >> sent; sleep 60'), { text: 'done' }];
      const content = JSON.stringify({ fixture: steps });
      const { json } = await tenant.command(id, { type: 'message', content, manifest });
      const turnId = String(Reflect.get(Object(json), 'turnId'));
      const end = await tenant.turnEnd(id, turnId, TURN_MS);
      expect(end).toMatchObject({ type: 'turn.failed', payload: { error: { code: 'turn_timeout' } } });
      expect((await get(sandboxId, '/files/sent')).text).toBe('run\n');
      const again = await there.command(id, { type: 'retry' });
      const resumed = String(Reflect.get(Object(again.json), 'turnId'));
      expect((await tenant.turnEnd(id, resumed, TURN_MS)).type).toBe('turn.completed');
      expect((await get(sandboxId, '/files/sent')).text).toBe('run\n');
      const effects = (await tenant.items(id)).filter(({ type }) => type === 'effect.uncertain');
      expect(effects).toMatchObject([{ turnId, payload: { kind: 'sandbox', reason: 'cancelled' } }]);
    });

    test('find the files of their source', async () => {
      const upload = { method: 'POST', path: '/v1/artifacts?name=hello.sh', body: Buffer.from('echo hello\n') };
      const { artifactId } = shaped(await tenant.request(upload), 201, artifacts.uploaded).artifact;
      const sandbox = { kind: 'pod', spec: { source: { artifactId } } };
      const { id } = await opened({ sandbox });
      const items = await played(id, [bash('bash hello.sh'), { text: 'done' }]);
      expect(outcomes(items)).toMatchObject([{ output: { stdout: 'hello\n' } }]);
    });
  });

  test('a fork works in a pod of its own, which begins as that of its parent did', async () => {
    const upload = { method: 'POST', path: '/v1/artifacts?name=first.txt', body: Buffer.from('first\n') };
    const { artifactId } = shaped(await tenant.request(upload), 201, artifacts.uploaded).artifact;
    const spec = { memory: '256Mi', source: { artifactId } };
    const { id, sandboxId } = await opened({ sandbox: { kind: 'pod', spec } });
    await played(id, [bash('echo changed > first.txt; echo new > new.txt'), { text: 'done' }]);
    const child = fresh('f');
    const body = { requestId: 'r', idempotencyKey: child, id: child };
    const asked = await there.request({ method: 'POST', path: `/v1/sessions/${id}/fork`, body });
    const fork = shaped(asked, 201, wire.session);
    expect(fork.sandboxId).not.toBe(sandboxId);
    expect(await shown(fork.sandboxId ?? '')).toMatchObject({ kind: 'pod', spec });
    const items = await played(child, [bash('cat *; echo own > own.txt'), { text: 'done' }]);
    expect(outcomes(items)).toMatchObject([{ output: { stdout: 'first\n' } }]);
    expect((await get(sandboxId, '/files/new.txt')).text).toBe('new\n');
    refused(await get(sandboxId, '/files/own.txt'), 404, 'not_found');
  });

  test('a fork of a session whose pod was deleted works in a pod, too, as its agent asks for', async () => {
    const [agentId, id, child] = [fresh('agent'), fresh('s'), fresh('f')];
    const upload = { method: 'POST', path: '/v1/artifacts?name=first.txt', body: Buffer.from('first\n') };
    const { artifactId } = shaped(await tenant.request(upload), 201, artifacts.uploaded).artifact;
    const sandbox = { kind: 'pod', spec: { memory: '256Mi', source: { artifactId } } };
    await tenant.saveAgent(agentId, { sandbox, sandboxTools: true });
    const { sandboxId } = await tenant.openSession(id, { agentId });
    expect((await tenant.request({ method: 'DELETE', path: at(sandboxId ?? '') })).status).toBe(200);
    const body = { requestId: 'r', idempotencyKey: child, id: child };
    const asked = await there.request({ method: 'POST', path: `/v1/sessions/${id}/fork`, body });
    const fork = shaped(asked, 201, wire.session);
    const { kind, spec } = await shown(fork.sandboxId ?? '');
    expect({ kind, spec }).toEqual({ kind: 'pod', spec: { memory: '256Mi' } });
  });

  test('files of a message are below inputs before the first call, and a turn may change them', async () => {
    const { id, sandboxId } = await opened();
    const artifactOf = async (name: string, body: Buffer) => {
      const answer = await tenant.request({ method: 'POST', path: `/v1/artifacts?name=${name}`, body });
      return shaped(answer, 201, artifacts.uploaded).artifact.artifactId;
    };
    const data = await artifactOf('data.csv', Buffer.from('1\n2\n'));
    const large = await artifactOf('large.bin', Buffer.alloc(10_485_761));
    const ask = async (steps: readonly object[], artifactIds: readonly string[]) => {
      const parts = artifactIds.map((artifactId) => ({ type: 'file', artifactId }));
      const text = { type: 'text', text: JSON.stringify({ fixture: steps }) };
      const { json } = await tenant.command(id, { type: 'message', parts: [text, ...parts] });
      const turnId = String(Reflect.get(Object(json), 'turnId'));
      expect((await tenant.turnEnd(id, turnId, TURN_MS)).type).toBe('turn.completed');
      return (await tenant.items(id)).filter((item) => item.turnId === turnId);
    };
    const twice = [
      call('read', { path: 'inputs/data.csv' }),
      bash('echo 3 >> inputs/data.csv'),
      bash('cat inputs/data.csv'),
      { text: 'done' },
    ];
    const items = await ask(twice, [data, large]);
    expect(outcomes(items)).toMatchObject([
      { output: { content: '1\n2\n' } },
      { output: { exitCode: 0 } },
      { output: { stdout: '1\n2\n3\n' } },
    ]);
    const [state] = items.flatMap((item) => (item.type === 'sandbox.state' ? [item.payload] : []));
    expect(state).toMatchObject({
      reason: expect.stringMatching(/^inputs were left out: inputs\/large.bin has 10485761 bytes/) as string,
    });
    // Without files there are those of before; with them, they are as the message has them.
    expect(outcomes(await ask([bash('cat inputs/data.csv'), { text: 'done' }], []))).toMatchObject([
      { output: { stdout: '1\n2\n3\n' } },
    ]);
    await ask([bash('true'), { text: 'done' }], [data]);
    expect((await get(sandboxId, '/files/inputs/data.csv')).text).toBe('1\n2\n');
  });

  test('what a turn leaves in outputs is kept as an artifact', async () => {
    const { id, sandboxId } = await opened();
    const made = 'mkdir -p outputs/d; echo one > outputs/d/a.txt; ln -s /etc/passwd outputs/link; echo no > else';
    const items = await played(id, [bash(made), { text: 'done' }]);
    const created = items.flatMap((item) => (item.type === 'artifact.created' ? [item.payload] : []));
    expect(created).toMatchObject([{ kind: 'folder', name: 'outputs', version: 1 }]);
    const path = `/v1/artifacts/${created[0]?.artifactId ?? ''}/versions/1`;
    const tree = shaped(await there.request({ path: `${path}/tree` }), 200, artifacts.tree);
    expect(tree.files).toMatchObject([{ path: 'd/a.txt', size: 4 }]);
    shaped(await there.request({ method: 'DELETE', path: `/v1/sessions/${id}` }), 200, wire.deleted);
    refused(await get(sandboxId), 404, 'not_found');
  });

  test('a pod that is not used is suspended, and one whose time is over expires', async () => {
    const [idle, short] = [fresh('idle'), fresh('short')];
    shaped(await put(idle, { idle: '1s' }), 200, boxes.sandbox);
    shaped(await put(short, { ttl: '2s' }), 200, boxes.sandbox);
    const session = fresh('s');
    shaped(
      await tenant.request({
        ...{ method: 'PUT', path: `/v1/sessions/${session}` },
        body: { agentId: 'machinist', sandbox: { id: short } },
      }),
      200,
      wire.session,
    );
    await until('it is suspended', async () => (await shown(idle)).pod?.desired === 'suspended', TURN_MS);
    await until('it has expired', async () => (await shown(short)).pod?.observed === 'expired', TURN_MS);
    expect(await shown(short)).toMatchObject({ state: 'stopped', pod: { desired: 'deleted' } });
    refused(await put(short, { ttl: '2s' }), 409, 'conflict');
    refused(await post(short, '/reset'), 409, 'conflict');
    refused(await get(short, '/tree'), 409, 'sandbox_lost');
    const items = await played(session, [bash('echo x'), { text: 'done' }]);
    expect(outcomes(items)).toMatchObject([{ kind: 'failed', code: 'sandbox_lost' }]);
    const stream = await SseReader.open(target().nodes[1].url, at(short, '/events'), { headers: tenant.headers });
    await stream.find(({ data }) => data.includes('"expired"'), TURN_MS);
    const states = stream.frames.flatMap(({ event, data }) => {
      return event === 'sandbox.state' ? [JSON.parse(data) as { payload: object }] : [];
    });
    const wanted = [{ state: 'creating' }, { state: 'running' }, { state: 'stopped', reason: 'expired' }];
    expect(states.map(({ payload }) => payload)).toMatchObject(wanted);
    stream.close();
  });
}

import { jetstreamManager } from '@nats-io/jetstream';
import { expect, test } from 'vitest';
import { closeNats, connectNats } from '#src/streams/jetstream/connection.ts';
import { encodeCursor } from '#src/streams/cursor.ts';
import { NEW_LOG_SHARDS } from '#src/streams/jetstream/shard-streams.ts';
import { bucketOf, streamName, streamOf, subjectOf } from '#src/streams/subjects.ts';
import type { AggregateRef } from '#src/streams/subjects.ts';
import { ArtifactClient } from '../support/artifacts.ts';
import { agentHost } from '../support/agent-host.ts';
import type { Ended } from '../support/agent-host.ts';
import { AdminClient } from '../support/client.ts';
import { newRef } from '../support/commits.ts';
import { startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { settledReadModels, withDatabase } from '../support/read-models.ts';
import { until } from '../support/wait-until.ts';

const audit = async (host: Host, ...args: string[]): Promise<Ended> =>
  await agentHost({ AGENT_HOST_DATA_DIR: host.dataDir }, 'audit', ...args);

test('a replay equals the live rows, and shows every row that somebody has changed', async () => {
  await using host = await startHost();
  const tenant = await new AdminClient(host).createTenant();
  await tenant.saveAgent('agent');
  for (const id of ['a', 'b', 'c']) {
    await tenant.openSession(id);
    const { turnId } = await tenant.play(id, [{ text: 'x', toolCalls: [{ name: 'none', input: 1 }] }, { text: 'y' }]);
    await tenant.turnEnd(id, turnId);
  }
  await settledReadModels(tenant, 'c');
  const whole = await audit(host, 'replay');
  expect(whole).toMatchObject({
    code: 0,
    text: expect.stringMatching(/sessions: \d+ rows compared in .* 0 differ/) as string,
  });

  await withDatabase(host, async (client) => {
    await client.query(`update sessions_3.session set subject = 'mallory' where id = 'a'`);
    await client.query(`delete from sessions_3.history where session_id = 'b' and records > 1`);
    await client.query(`update tenants_2.audit set doc = '' where true`);
  });
  const changed = await audit(host, 'replay');
  expect(changed.code, changed.text).toBe(1);
  expect(changed.text).toMatch(/sessions_3\.session: only live: /);
  expect(changed.text).toMatch(/sessions_3\.session: only replayed: /);
  expect(changed.text.match(/sessions_3\.history: only replayed: /g)?.length).toBeGreaterThan(0);
  expect(changed.text).toMatch(/tenants_2\.audit: only live: /);
  expect(changed.text).toMatch(/agents: \d+ rows compared in .* 0 differ/);
  // Nothing of it stays behind, and what is asked for wrongly is said plainly.
  const left = await withDatabase(host, async (client) => {
    const { rows } = await client.query(`select nspname from pg_namespace where nspname like '%_audit'`);
    return rows;
  });
  expect(left).toEqual([]);
  expect((await audit(host, 'replay', 'nothing')).text).toMatch(/there is no projection nothing/);
  const asJson = await audit(host, 'replay', 'agents', '--json');
  expect(JSON.parse(asJson.text)).toMatchObject({ projection: 'agents', differences: 0 });
  // Up to a time before anything happened there was nothing: every live row is one too many.
  const before = await audit(host, 'replay', 'agents', '--until', '2020-01-01T00:00:00Z');
  expect(before.text).toMatch(/agents_3\.agent: only live: /);
  expect((await audit(host, 'replay', '--until', 'soon')).text).toMatch(/--until needs a time/);
  // Up to a record: what its session had by then is there on both sides, and nothing of the session that came after.
  const [record] = await tenant.items('a', { order: 'desc', limit: 1 });
  const upTo = await audit(host, 'replay', 'sessions', '--until', record?.cursor ?? '');
  expect(upTo.text).not.toMatch(/sessions\.history: only (live|replayed): \([^,]+,a,/);
  expect(upTo.text).toMatch(/sessions_3\.session: only live: \([^,]+,c,/);
  const foreign = encodeCursor(newRef(), { shard: 0, position: 3, index: 0 });
  expect((await audit(host, 'replay', '--until', foreign)).text).toMatch(/a cursor of which the log has no record/);
});

test('a replay says that a session was deleted which the read models still have', async () => {
  await using host = await startHost();
  const tenant = await new AdminClient(host).createTenant();
  await tenant.saveAgent('agent');
  for (const id of ['gone', 'kept']) {
    await tenant.openSession(id);
    await tenant.turnEnd(id, (await tenant.message(id, 'hello')).turnId);
    await settledReadModels(tenant, id);
  }
  const connections = await connectNats(await host.file('nats-url'), 'test');
  const manager = await jetstreamManager(connections.appends);
  const ref: AggregateRef = { tenant: tenant.tenantId, kind: 'session', id: 'gone' };
  const stream = streamName(streamOf(bucketOf(ref), NEW_LOG_SHARDS));
  await withDatabase(host, async (client) => {
    // As a swap does: no projector applies a commit meanwhile.
    await client.query(`select pg_advisory_lock(hashtextextended('swap.sessions_3', 0))`);
    expect((await tenant.request({ method: 'DELETE', path: '/v1/sessions/gone' })).status).toBeLessThan(300);
    await until('only the fact of the deletion is left in the log', async () => {
      const { state } = await manager.streams.info(stream, { subjects_filter: subjectOf(ref) });
      return state.subjects?.[subjectOf(ref)] === 1;
    });
    const { code, text } = await audit(host, 'replay', 'sessions');
    expect(code, text).toBe(0);
    expect(text).toMatch(/sessions: \d+ rows compared in .* 0 differ/);
    expect(text).toMatch(/sessions that were deleted meanwhile: 1; their rows and the sums of their tenants were not/);
  });
  await closeNats(connections);
});

test('the log is verified: a commit that nobody sealed, one that was moved and a gap are found and named', async () => {
  await using host = await startHost();
  const tenant = await new AdminClient(host).createTenant();
  await tenant.saveAgent('agent');
  for (const id of ['a', 'b', 'c']) {
    await tenant.openSession(id);
    await tenant.turnEnd(id, (await tenant.message(id, 'hello')).turnId);
  }
  await tenant.request({ method: 'DELETE', path: '/v1/sessions/c' });
  // Every kind of aggregate that there is, or a kind that the verifier does not know would not be noticed.
  await new ArtifactClient(tenant).upload({ name: 'file', sessionId: 'a' }, Buffer.from('bytes'));
  const budgets = [{ scope: 'tenant', period: 'total', limitTokens: 1_000 }];
  await tenant.request({ method: 'PUT', path: '/v1/tenant/budgets', body: { budgets } });
  await tenant.turnEnd('b', (await tenant.message('b', 'again')).turnId);
  expect(await audit(host, 'verify')).toMatchObject({
    code: 0,
    text: expect.stringMatching(
      /\d+ commits of \d+ aggregates verified \(\d+ commits\/s, \d+ events\/s\), 0 erased, 0 problems/,
    ) as string,
  });

  const connections = await connectNats(await host.file('nats-url'), 'test');
  const connection = connections.appends;
  const manager = await jetstreamManager(connection);
  const ref = (id: string): AggregateRef => ({ tenant: tenant.tenantId, kind: 'session', id });
  const subject = (id: string): string => subjectOf(ref(id));
  const stream = streamName(streamOf(bucketOf(ref('a')), NEW_LOG_SHARDS));
  const moved = await manager.streams.getMessage(stream, { last_by_subj: subject('a') });
  await connection.request(subject('b'), moved?.data ?? new Uint8Array());
  await connection.request(subject('b'), '{"v":1,"rev":99}');
  await manager.streams.purge(stream, { filter: subject('a'), keep: 1 });
  await closeNats(connections);
  const { code, text } = await audit(host, 'verify');
  expect(code, text).toBe(1);
  expect(text.match(new RegExp(`${subject('b')} at \\d+: cannot be read`, 'g'))).toHaveLength(2);
  expect(text).toMatch(
    new RegExp(`${subject('a')} at \\d+ \\(co_\\w+\\): commit \\d+ follows commit 0 at 0: \\d+ missing`),
  );
  expect(text).toMatch(/3 problems/);
});

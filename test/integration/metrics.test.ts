import { jetstream } from '@nats-io/jetstream';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { delay } from '#src/lib/backoff.ts';
import { closeNats, connectNats } from '#src/streams/jetstream/connection.ts';
import { NEW_LOG_SHARDS } from '#src/streams/jetstream/shard-streams.ts';
import { subjectOf } from '#src/streams/subjects.ts';
import * as wire from '#src/http/wire/schemas.ts';
import { refused, shaped } from '../conformance/http/target.ts';
import { AdminClient, send, TenantClient } from '../support/client.ts';
import { startHost } from '../support/host.ts';
import type { Host, HostOptions } from '../support/host.ts';
import { Scrape } from '../support/scrape.ts';
import { SseReader } from '../support/sse.ts';
import { until } from '../support/wait-until.ts';

const disposables = new AsyncDisposableStack();
const EXECUTOR_KEY = 'an-executor-token-of-our-own';
/** Requests a second of a credential, in the tests twice that at once. */
const RATE = 60;

/** One feeds read models and serves pages, the other runs turns; both take commands. */
let reader: Host;
let runner: Host;
let tenant: TenantClient;

beforeAll(async () => {
  const env = { AGENT_HOST_RATE_PER_CREDENTIAL: String(RATE), AGENT_HOST_STREAMS_PER_TENANT: '2' };
  const start = async (options: HostOptions): Promise<Host> =>
    disposables.use(await startHost({ ...options, singleProcess: true }));
  reader = await start({ env: { ...env, AGENT_HOST_ROLES: 'projector,reads,commands' } });
  runner = await start({ join: reader, env: { AGENT_HOST_ROLES: 'commands,engine', AGENT_HOST_TURNS: '1' } });
  tenant = await new AdminClient(reader).createTenant();
  await tenant.saveAgent();
  await tenant.saveAgent('finder', { tools: [{ name: 'find', inputSchema: {} }] });
});
afterAll(async () => await disposables.disposeAsync());

/** How much a metric of a node changes while something is done. */
async function change(
  node: Host,
  names: readonly (readonly [name: string, labels?: Readonly<Record<string, string>>])[],
  work: () => Promise<unknown>,
): Promise<number[]> {
  const before = await Scrape.of(node);
  await work();
  const after = await Scrape.of(node);
  return names.map(([name, labels]) => after.value(name, labels) - before.value(name, labels));
}

async function shows(node: Host, what: string, look: (seen: Scrape) => boolean, withinMs = 40_000): Promise<void> {
  await until(what, async () => look(await Scrape.of(node)), withinMs);
}

const ended = async (session: string): Promise<void> => {
  await until('the turn has ended', async () => (await tenant.session(session)).status === 'idle');
};

describe('the log', () => {
  test('appends, their time and round trips are counted exactly', async () => {
    await tenant.openSession('counted');
    const counted = [
      ['log_append_seconds_count', { outcome: 'appended' }],
      ['log_append_seconds_count', { outcome: 'conflict' }],
      ['log_append_seconds_bucket', { outcome: 'appended', le: '+Inf' }],
      ['log_round_trips_total', { operation: 'append' }],
      ['http_request_seconds_count', { route: '/v1/sessions/:sessionId/commands', status: '202' }],
      ['cache_lookups_total', { cache: 'sessions', result: 'miss' }],
      ['log_append_retries_total'],
    ] as const;
    const changed = await change(runner, counted, async () => {
      for (let i = 0; i < 10; i++) await tenant.at(runner).cancel('counted');
    });
    // The first of them loads the fold, the others find it. What a slow disk did not confirm in time was sent again.
    expect(changed.slice(0, 6)).toEqual([10, 0, 10, 10 + (changed[6] ?? NaN), 10, 1]);
    const seen = await Scrape.of(runner);
    expect(seen.value('log_connected')).toBe(1);
    expect(seen.value('cache_lookups_total', { cache: 'sessions', result: 'hit' })).toBeGreaterThanOrEqual(9);
    expect(seen.value('cache_entries', { cache: 'sessions' })).toBeGreaterThanOrEqual(1);
    expect(seen.value('cache_bytes', { cache: 'sessions' })).toBeGreaterThan(0);
    expect(seen.value('data_disk_free_bytes')).toBeGreaterThan(0);
    expect(seen.value('data_disk_size_bytes')).toBeGreaterThan(seen.value('data_disk_free_bytes'));
  });

  test('of writers on two nodes the one that comes second is counted as a conflict', async () => {
    await tenant.openSession('contested');
    const before = await Promise.all([reader, runner].map(async (node) => await Scrape.of(node)));
    const sum = async (outcome: string): Promise<number> => {
      const after = await Promise.all([reader, runner].map(async (node) => await Scrape.of(node)));
      const of = (seen: Scrape): number => seen.value('log_append_seconds_count', { outcome });
      return after.reduce((total, seen, i) => total + of(seen) - of(before[i] ?? seen), 0);
    };
    let sent = 0;
    await until('two have met', async () => {
      await Promise.all([reader, runner].map(async (node) => await tenant.at(node).cancel('contested')));
      sent += 2;
      return (await sum('conflict')) > 0;
    });
    expect(await sum('appended')).toBe(sent);
  });
});

describe('turns', () => {
  test('model calls, tokens, spend and ends of turns are counted where they are made', async () => {
    await tenant.openSession('told');
    const usage = { inputTokens: 10, outputTokens: 5 };
    const play = async (steps: readonly unknown[]): Promise<void> => {
      await tenant.at(runner).play('told', steps);
      await ended('told');
    };
    const of = { provider: 'fixture' };
    const counted = [
      ['model_call_seconds_count', { ...of, outcome: 'completed' }],
      ['model_call_seconds_count', { ...of, outcome: 'failed' }],
      ['model_tokens_total', { ...of, kind: 'input' }],
      ['model_tokens_total', { ...of, kind: 'output' }],
      ['turns_ended_total', { outcome: 'completed' }],
      ['turns_ended_total', { outcome: 'failed' }],
    ] as const;
    const changed = await change(runner, counted, async () => {
      await play([
        { text: 'a', toolCalls: [{ name: 'none', input: {} }], usage },
        { text: 'b', usage },
      ]);
      await play([{ error: { code: 'broken', message: 'Broken.' }, usage: { inputTokens: 1, outputTokens: 1 } }]);
    });
    expect(changed).toEqual([2, 1, 21, 11, 1, 1]);
    // What is free is known to cost nothing, and that is said.
    expect((await Scrape.of(runner)).has('model_spend_usd_total', of)).toBe(true);
  });

  test('a call that is given up is counted as that', async () => {
    await tenant.openSession('given-up');
    const givenUp = { provider: 'fixture', outcome: 'cancelled' };
    const givenUpBefore = (await Scrape.of(runner)).value('model_call_seconds_count', givenUp);
    let turns = 0;
    const counted = [
      ['model_call_seconds_count', givenUp],
      ['turns_ended_total', { outcome: 'cancelled' }],
    ] as const;
    const [calls, cancelled] = await change(runner, counted, async () => {
      // A turn may be cancelled before it has called anybody.
      await until('a call is given up', async () => {
        const seen = (await tenant.items('given-up')).length;
        await tenant
          .at(runner)
          .play('given-up', [{ text: 'a', toolCalls: [{ name: 'none', input: {} }] }, { delayMs: 600_000 }]);
        await until('it runs', async () => (await tenant.items('given-up')).length >= seen + 2);
        await tenant.at(runner).cancel('given-up');
        await ended('given-up');
        turns++;
        return (await Scrape.of(runner)).value('model_call_seconds_count', givenUp) > givenUpBefore;
      });
    });
    expect([calls, cancelled]).toEqual([1, turns]);
  });

  test('a call that a budget does not let start is counted, and its question waits', async () => {
    const budgets = [{ id: 'b', scope: 'session', sessionId: 'poor', period: 'total', limitTokens: 1 }];
    await tenant.openSession('poor');
    const step = [{ text: 'ok', usage: { inputTokens: 10, outputTokens: 5 } }];
    expect((await tenant.request({ method: 'PUT', path: '/v1/tenant/budgets', body: { budgets } })).status).toBe(200);
    const [refused] = await change(runner, [['budget_refusals_total']], async () => {
      await until('a budget stands in the way', async () => {
        await tenant.at(runner).play('poor', step);
        return await until('it has ended or pauses', async () => {
          const { status } = await tenant.session('poor');
          return (status === 'paused' && 'paused') || (status === 'idle' && 'idle');
        }).then((status) => status === 'paused');
      });
    });
    expect(refused).toBe(1);
    await shows(reader, 'the question is shown', (seen) => {
      const { open, age } = { open: seen.value('interactions_open'), age: 'oldest_open_interaction_seconds' };
      return open === 1 && seen.value('turns', { state: 'paused' }) === 1 && seen.value(age) > 0;
    });
    await tenant.cancel('poor');
  });

  test('an action waits, and its executor is seen', async () => {
    await tenant.openSession('asking', { agentId: 'finder' });
    const body = { executors: [{ agentId: 'finder', token: EXECUTOR_KEY }] };
    expect((await tenant.request({ method: 'PUT', path: '/v1/executors', body })).status).toBe(200);
    const executor = new TenantClient({ ...tenant.credentials, key: EXECUTOR_KEY });
    await until(
      'the node knows the executor',
      async () => (await executor.request({ path: '/v1/actions' })).status === 200,
    );
    const stream = await SseReader.open(reader.url, '/v1/executors/connect', { headers: executor.headers });
    await shows(reader, 'it is connected', (seen) => seen.value('executors_connected') === 1);
    stream.close();
    await shows(reader, 'it has left', (seen) => seen.value('executors_connected') === 0);
    await tenant.at(runner).play('asking', [{ toolCalls: [{ name: 'find', input: {} }] }, { text: 'done' }]);
    await shows(reader, 'the action is shown', (seen) => {
      const age = seen.value('oldest_pending_action_seconds');
      return seen.value('actions_pending') === 1 && age > 0 && seen.value('turns', { state: 'waiting' }) === 1;
    });
    await tenant.cancel('asking');
    await shows(reader, 'it is gone', (seen) => seen.value('actions_pending') === 0);
    expect((await Scrape.of(reader)).value('oldest_pending_action_seconds')).toBe(0);
  });
});

describe('readers', () => {
  test('open streams, their lag, their reading of the log, and the one too many', async () => {
    await tenant.openSession('read');
    // Something that they have to be read to.
    await tenant.cancel('read');
    const counted = [
      ['event_streams_open'],
      ['tail_lag_seconds_count'],
      ['tail_backfills_total', { reason: 'opened' }],
      ['http_refusals_total', { reason: 'streams' }],
    ] as const;
    const first = await tenant.events('read');
    const second = await tenant.events('read');
    for (const stream of [first, second]) await stream.collect(1);
    const changed = await change(reader, counted, async () => {
      expect((await tenant.request({ path: '/v1/sessions/read/events' })).status).toBe(429);
      await tenant.cancel('read');
      for (const stream of [first, second]) await stream.collect(2);
    });
    expect(changed).toEqual([0, 2, 0, 1]);
    const seen = await Scrape.of(reader);
    expect(seen.value('event_streams_open')).toBe(2);
    expect(seen.value('tail_backfills_total', { reason: 'opened' })).toBeGreaterThanOrEqual(2);
    expect(seen.value('tail_lag_seconds_sum')).toBeLessThan(10);
    first.close();
    second.close();
    await shows(reader, 'they are closed', (now) => now.value('event_streams_open') === 0);
  });

  test('uploads go to the object store', async () => {
    const counted = [['object_store_operation_seconds_count', { operation: 'put', outcome: 'done' }]] as const;
    const changed = await change(reader, counted, async () => {
      const path = '/v1/artifacts?name=a.txt&sessionId=read';
      const headers = { 'content-type': 'text/plain' };
      const { status, text } = await tenant.request({ method: 'POST', path, headers, body: 'bytes' });
      expect(status, text).toBe(201);
    });
    expect(changed).toEqual([1]);
  });

  test('who asks too often is refused, and that is counted', async () => {
    const hurried = await new AdminClient(reader).createTenant();
    const isRefused = async (): Promise<boolean> => (await hurried.request({ path: '/v1/me' })).status === 429;
    const [refused] = await change(reader, [['http_refusals_total', { reason: 'credential' }]], async () => {
      // A machine that stands still in the middle of them gives the rate time to come back.
      const ask = async () => await Promise.all(Array.from({ length: 4 * RATE }, isRefused));
      await until('some are refused', async () => (await ask()).includes(true));
    });
    expect(refused).toBeGreaterThan(0);
  });
});

describe('the installation', () => {
  test('is told of by the node that projects: dependencies, projections, statements', async () => {
    await shows(reader, 'everything is projected', (seen) => {
      const isThere = seen.has('projection_lag_seconds', { group: 'sessions', shard: '0' });
      return isThere && seen.value('projection_lag_seconds') === 0 && seen.value('projection_lag_commits') === 0;
    });
    const seen = await Scrape.of(reader);
    for (const dependency of ['database', 'engine', 'streams', 'objects']) {
      expect(seen.value('dependency_up', { dependency }), dependency).toBe(1);
    }
    const positions = [...Array(NEW_LOG_SHARDS).keys()].map((shard) =>
      seen.value('projection_position', { group: 'sessions', shard: String(shard) }),
    );
    expect(Math.max(...positions), 'in some stream there are sessions').toBeGreaterThan(0);
    expect(seen.value('projection_parked_commits')).toBe(0);
    expect(seen.value('sql_statements_total')).toBeGreaterThan(0);
    // The other node does not ask for what is the same everywhere.
    const other = await Scrape.of(runner);
    expect(other.names.has('agent_host_turns_stuck')).toBe(true);
    expect(other.has('turns_stuck')).toBe(false);
    expect(other.has('dependency_up')).toBe(false);
  });

  test('however often anybody asks whether it is ready, the dependencies are asked once a second', async () => {
    const statements = async (work: () => Promise<unknown>): Promise<number> => {
      const [count = NaN] = await change(reader, [['sql_statements_total']], work);
      return count;
    };
    let tookMs = performance.now();
    const asked = await statements(async () => {
      const answers = Array.from({ length: 300 }, async () => await send(reader.url, { path: '/ready' }));
      for (const { status } of await Promise.all(answers)) expect(status).toBe(200);
    });
    tookMs = performance.now() - tookMs;
    // The scrapes themselves and the idle projectors make some; each call making one would be 300 beside them.
    expect(asked - (await statements(async () => await delay(tookMs)))).toBeLessThan(100);
  });

  test('no label says whose, which or where', async () => {
    for (const node of [reader, runner]) {
      const labels = [...(await Scrape.of(node)).labels].join('\n');
      for (const id of [tenant.tenantId, 'counted', 'finder', '127.0.0.1']) expect(labels).not.toContain(id);
    }
  });

  test(
    'turns that nobody takes, and those whose worker is paused, are shown until they go on',
    { timeout: 240_000 },
    async () => {
      const late = [{ text: 'late', delayMs: 600_000 }];
      // The runner has one place: the others are offered to it again and again, and wait there.
      const sessions = ['held', 'asked', 'queued'];
      for (const session of sessions) await tenant.openSession(session);
      await tenant.at(runner).play('held', late);
      for (const session of ['asked', 'queued']) await tenant.play(session, late);
      await shows(runner, 'they have been offered in vain', (seen) => seen.value('turns_unattended') === 2);
      const before = await Scrape.of(reader);
      expect(before.value('turns', { state: 'running' })).toBe(3);
      expect(before.value('turns_stuck')).toBe(0);
      process.kill(runner.pid, 'SIGSTOP');
      try {
        await shows(reader, 'all are stuck', (seen) => {
          return seen.value('turns_stuck') === 3 && seen.value('dependency_up', { dependency: 'engine' }) === 0;
        });
      } finally {
        process.kill(runner.pid, 'SIGCONT');
      }
      for (const session of sessions) await tenant.cancel(session);
      await shows(reader, 'nothing is stuck', (seen) => seen.value('turns_stuck') === 0 && seen.value('turns') === 0);
      await shows(runner, 'nothing waits', (seen) => seen.value('turns_unattended') === 0);
    },
  );
});

describe('what goes wrong', () => {
  test('what the log holds and nobody can read is parked, and shown', async () => {
    await tenant.openSession('broken');
    const ref = { tenant: tenant.tenantId, kind: 'session', id: 'broken' } as const;
    const connections = await connectNats(await reader.file('nats-url'), 'test');
    const [parked] = await change(reader, [['projection_parked_total', { group: 'sessions' }]], async () => {
      await jetstream(connections.appends).publish(subjectOf(ref), 'no commit of ours');
      await shows(reader, 'it is parked', (now) => now.value('projection_parked_commits', { group: 'sessions' }) === 1);
    });
    expect(parked).toBe(1);
    // Every answer that would lack it says so, and so do readiness and status; requests need not go elsewhere for it.
    const items = await tenant.request({ path: '/v1/sessions/broken/items' });
    expect(refused(items, 503, 'unavailable').message).toContain('parked');
    for (const path of ['', '/calls/model']) {
      refused(await tenant.request({ path: `/v1/sessions/broken${path}` }), 503, 'unavailable');
    }
    const listed = shaped(await tenant.request({ path: '/v1/sessions' }), 200, wire.sessionList);
    const [asked, answered] = [Date.parse(listed.asOf), Date.now()];
    const { asOf } = shaped(await tenant.request({ path: '/v1/sessions' }), 200, wire.sessionList);
    expect(asOf, 'it stands still at what is lacking').toBe(listed.asOf);
    expect(asked).toBeLessThan(answered);
    const database = await until('readiness says so', async () => {
      const { checks } = shaped(await send(reader.url, { path: '/ready' }), 200, wire.ready);
      return checks.database.detail === undefined ? undefined : checks.database;
    });
    expect(database).toEqual({ ok: true, detail: expect.stringContaining('1 parked commit') });
    const admin = new AdminClient(reader);
    const status = shaped(await admin.request({ path: '/v1/admin/status' }), 200, wire.hostStatus);
    expect(status.projections.map(({ name, parked: lacks }) => [name, lacks])).toEqual(
      expect.arrayContaining([
        ['sessions', 1],
        ['agents', 0],
      ]),
    );
    await closeNats(connections);
    await tenant.openSession('next');
    await until('what comes after it is shown', async () => (await tenant.session('next')).status === 'idle');
  });

  test('an append that is sent again, and one that is given up', { timeout: 180_000 }, async () => {
    await tenant.openSession('cut-off');
    const nats = Number(await reader.file('nats/nats-server.pid'));
    const counted = [
      ['log_append_retries_total'],
      ['log_append_seconds_count', { outcome: 'appended' }],
      ['log_append_seconds_count', { outcome: 'failed' }],
    ] as const;
    const whilePaused = async (work: (resume: () => void) => Promise<void>): Promise<number[]> =>
      await change(reader, counted, async () => {
        process.kill(nats, 'SIGSTOP');
        try {
          await work(() => process.kill(nats, 'SIGCONT'));
        } finally {
          process.kill(nats, 'SIGCONT');
        }
      });
    const before = (await Scrape.of(reader)).value('log_append_retries_total');
    const [retries = 0, ...late] = await whilePaused(async (resume) => {
      const sent = tenant.cancel('cut-off');
      await shows(reader, 'it is sent again', (seen) => seen.value('log_append_retries_total') > before);
      resume();
      await sent;
    });
    expect(retries).toBeGreaterThan(0);
    expect(late).toEqual([1, 0]);
    const [again = 0, ...given] = await whilePaused(async () => {
      await expect(tenant.cancel('cut-off')).rejects.toMatchObject({ answer: { status: 503 } });
    });
    expect(again).toBeGreaterThan(5);
    expect(given).toEqual([0, 1]);
  });
});

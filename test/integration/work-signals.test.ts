import { expect, test } from 'vitest';
import { WorkSignals } from '#src/app/work-signals.ts';
import type { SessionEvent } from '#src/domain/session/events.ts';
import { newId } from '#src/lib/ids.ts';
import { OpenActions } from '#src/projections/actions/open-actions.ts';
import type { ExecutorRef, OpenAction } from '#src/projections/actions/open-actions.ts';
import { actionIndex } from '#src/projections/actions/queries.ts';
import type { ActionView } from '#src/projections/actions/views.ts';
import type { StoredCommit } from '#src/streams/commit.ts';
import { LiveCommitSource } from '#src/streams/live-source.ts';
import { newCommit } from '../support/commits.ts';
import { startContinuity } from '../support/continuity.ts';
import { FaultyFeed } from '../support/faulty-feed.ts';
import { openLog } from '../support/jetstream.ts';
import { capturedLog } from '../support/logger.ts';
import { TestNats } from '../support/nats.ts';
import { TestPostgres } from '../support/postgres.ts';
import { seededRandom } from '../support/random.ts';
import { followed, groupOf, project, unshared } from '../support/read-side.ts';
import { created } from '../support/sessions.ts';
import { until } from '../support/wait-until.ts';

const ROUNDS = 40;

/** All are of one moment, so their ids say which is older. */
const nameOf = (n: number): string => `ac_${String(n).padStart(3, '0')}`;

/** A new session whose first commit offers an action to an agent. */
function offer(tenant: string, agentId: string, n: number): Pick<StoredCommit, 'ref' | 'commit'> {
  const turnId = newId('tu');
  const pending = {
    turnId,
    actionId: nameOf(n),
    generation: 1,
    kind: 'tool',
    agentId,
    callId: 'c',
    input: { n },
  } as const;
  const events: SessionEvent[] = [created({ agentId }), { type: 'action.pending', data: pending }];
  const made = events.map(({ type, data }) => ({ id: newId('ev'), type, v: 1, data: { ...data } }));
  return { ref: { tenant, kind: 'session', id: `s/${n}` }, commit: { ...newCommit(1), events: made } };
}

/** As far as this test looks at it, an action is its place. */
const show = async ({ agentId }: ExecutorRef, actions: readonly OpenAction[]): Promise<readonly ActionView[]> =>
  await Promise.resolve(
    actions.map((action) => ({ ...action, agentId, kind: 'tool', turnId: 'tu', callId: 'c', input: {} })),
  );

test('whatever the feed loses, executors hear of each new action, and the list has it when they do', async () => {
  const random = seededRandom('work signals');
  await using nats = await TestNats.start();
  await using log = await openLog(nats.url);
  const feed = new FaultyFeed(log.feed, random);
  const { logger } = capturedLog();
  const continuity = await startContinuity(feed, log.source, { silenceMs: 300 });
  const source = new LiveCommitSource(log.source, continuity);
  const seed = async () => await Promise.resolve({ positions: new Map<number, number>(), actions: [] });
  const open = new OpenActions({ source, seed, logger });
  await open.start();
  const signals = new WorkSignals({ open, show, logger });
  const tenant = newId('tn');
  const told: Record<string, Set<string>> = { a: new Set(), b: new Set() };
  const early: string[] = [];
  const listening = Object.entries(told).map(([agentId, names]) => {
    const executor = { tenantId: tenant, agentId };
    return signals.listen(executor, (actions) => {
      expect(actions.length).toBeLessThanOrEqual(20);
      const listed = open.pending(executor, 200).map(({ actionId }) => actionId);
      for (const { actionId } of actions) {
        if (!listed.includes(actionId)) early.push(actionId);
        names.add(actionId);
      }
    });
  });
  try {
    for (let n = 0; n < ROUNDS; n++) {
      const agentId = n % 3 === 0 ? 'b' : 'a';
      const dropped = [0, 30, 60][random.int(0, 2)] ?? 0;
      feed.faults = { dropped, doubled: 10, delayed: 10, delayMs: 20 };
      const { ref, commit } = offer(tenant, agentId, n);
      const result = await log.store.append(ref, 0, commit);
      if (result.kind !== 'appended') throw new Error('a conflict with nobody');
      if (random.int(0, 9) === 0) feed.disrupt();
      if (n % 8 !== 7) continue;
      const all = Array.from({ length: n + 1 }, (_, m) => nameOf(m));
      const isTold = (name: string): boolean => Object.values(told).some((names) => names.has(name));
      await until(`executors are told of ${n + 1} actions`, () => all.every(isTold));
    }
    expect(early).toEqual([]);
    expect(feed.dropped).toBeGreaterThan(0);
    const pending = (agentId: string) => open.pending({ tenantId: tenant, agentId }, 200).map((one) => one.actionId);
    const named = (agentId: string) =>
      Array.from({ length: ROUNDS }, (_, n) => n).flatMap((n) => {
        return (n % 3 === 0 ? 'b' : 'a') === agentId ? [nameOf(n)] : [];
      });
    expect([pending('a'), pending('b')]).toEqual([named('a'), named('b')]);
    expect(open.pending({ tenantId: newId('tn'), agentId: 'a' }, 200)).toEqual([]);
    // One that begins to listen hears at once of the oldest ones that are there.
    const late: string[][] = [];
    const unlisten = signals.listen({ tenantId: tenant, agentId: 'a' }, (actions) =>
      late.push(actions.map(({ actionId }) => actionId)),
    );
    await until('the late one is told', () => late.length > 0);
    expect(late[0]).toEqual(named('a').slice(0, 20));
    unlisten();
  } finally {
    for (const unlisten of listening) unlisten();
    signals.stop();
    continuity.stop();
    await open.stop();
  }
});

test('a list that begins with the rows of the read model goes on from where they end, and equals one from the log', async () => {
  await using nats = await TestNats.start();
  await using postgres = await TestPostgres.start();
  await using log = await openLog(nats.url);
  await using database = await postgres.migrated();
  const pool = await database.pool();
  const { logger, lines } = capturedLog();
  const tenant = newId('tn');
  let from = 0;
  const append = async (n: number): Promise<void> => {
    const { ref, commit } = offer(tenant, 'a', n);
    const result = await log.store.append(ref, 0, commit);
    if (result.kind !== 'appended') throw new Error('a conflict with nobody');
    // The read model has the first ones only.
    if (n >= 5) return;
    const stored = { ref, commit, shard: 0, position: result.position, hash: result.hash };
    from = await project(pool, groupOf('sessions'), { from, commits: [followed(stored)], seals: log.seals });
  };
  for (let n = 0; n < 10; n++) await append(n);
  const away = async () => await Promise.reject(new Error('away'));
  const lists: string[][] = [];
  for (const seed of [async () => await actionIndex({ pool, reads: unshared(pool), seals: log.seals }).open(), away]) {
    const open = new OpenActions({ source: log.source, seed, logger });
    await open.start();
    await open.reached();
    lists.push(open.pending({ tenantId: tenant, agentId: 'a' }, 200).map(({ actionId }) => actionId));
    await open.stop();
  }
  const all = Array.from({ length: 10 }, (_, n) => nameOf(n));
  expect(lists).toEqual([all, all]);
  expect(lines.filter(({ msg }) => msg.includes('from its beginning'))).toHaveLength(1);
});

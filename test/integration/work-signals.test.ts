import { expect, test } from 'vitest';
import { WorkSignals } from '#src/app/work-signals.ts';
import type { SessionEvent } from '#src/domain/session/events.ts';
import { newId } from '#src/lib/ids.ts';
import { actionIndex } from '#src/projections/actions/queries.ts';
import { ProjectionProgress } from '#src/projections/progress.ts';
import type { StoredCommit } from '#src/streams/commit.ts';
import { newCommit } from '../support/commits.ts';
import { FaultyFeed } from '../support/faulty-feed.ts';
import { openLog } from '../support/jetstream.ts';
import { capturedLog } from '../support/logger.ts';
import { TestNats } from '../support/nats.ts';
import { TestPostgres } from '../support/postgres.ts';
import { seededRandom } from '../support/random.ts';
import { followed, groupOf, project } from '../support/read-side.ts';
import { created } from '../support/sessions.ts';
import { until } from '../support/wait-until.ts';

const ROUNDS = 40;

/** A new session whose first commit offers an action to an agent. */
function offer(tenant: string, agentId: string, n: number): Pick<StoredCommit, 'ref' | 'commit'> {
  const turnId = newId('tu');
  const pending = {
    turnId,
    actionId: `ac_${n}`,
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

test('whatever the feed loses, executors hear of new work, and the read model has it when they do', async () => {
  const random = seededRandom('work signals');
  await using nats = await TestNats.start();
  await using postgres = await TestPostgres.start();
  await using log = await openLog(nats.url);
  await using database = await postgres.migrated();
  const pool = await database.pool();
  const feed = new FaultyFeed(log.feed, random);
  const actions = actionIndex(pool);
  const { logger } = capturedLog();
  const progress = new ProjectionProgress(pool);
  const signals = new WorkSignals({ feed, source: log.source, progress, actions, logger, silenceMs: 300 });
  signals.start();
  const tenant = newId('tn');
  /** What the read model had when its executor was told, newest last. */
  const told: Record<string, Promise<number>[]> = { a: [], b: [] };
  const listening = Object.keys(told).map((agentId) => {
    const executor = { tenantId: tenant, agentId };
    return signals.listen(executor, () =>
      told[agentId]?.push(actions.pending(executor, 200).then((all) => all.length)),
    );
  });
  const offered: Record<string, number> = { a: 0, b: 0 };
  try {
    let from = 0;
    for (let n = 0; n < ROUNDS; n++) {
      const agentId = n % 3 === 0 ? 'b' : 'a';
      const dropped = [0, 50, 100][random.int(0, 2)] ?? 0;
      feed.faults = { dropped, doubled: 10, delayed: 10, delayMs: 20 };
      const { ref, commit } = offer(tenant, agentId, n);
      const result = await log.store.append(ref, 0, commit);
      if (result.kind !== 'appended') throw new Error('a conflict with nobody');
      offered[agentId] = (offered[agentId] ?? 0) + 1;
      if (random.int(0, 9) === 0) feed.disrupt();
      // Only now: an executor that were told before this would find nothing.
      const stored = { ref, commit, shard: 0, position: result.position, hash: result.hash };
      from = await project(pool, groupOf('sessions'), { from, commits: [followed(stored)] });
      await until(`the executor of ${agentId} is told of action ${n}`, async () => {
        return (await told[agentId]?.at(-1)) === offered[agentId];
      });
    }
    const firsts = await Promise.all([told['a']?.[0], told['b']?.[0]]);
    expect(firsts).toEqual([1, 1]);
    expect(feed.dropped).toBeGreaterThan(0);
    // One that begins to listen hears at once of what is there.
    let late = 0;
    const unlisten = signals.listen({ tenantId: tenant, agentId: 'a' }, () => late++);
    await until('the late one is told', () => late > 0);
    unlisten();
  } finally {
    for (const unlisten of listening) unlisten();
    await signals.stop();
  }
});

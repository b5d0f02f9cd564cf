import { jetstream } from '@nats-io/jetstream';
import { connect } from '@nats-io/transport-node';
import { expect, test } from 'vitest';
import { closeNats, connectNats } from '#src/streams/jetstream/connection.ts';
import { ShardSplit } from '#src/streams/jetstream/shard-split.ts';
import { ensureTopology } from '#src/streams/jetstream/topology.ts';
import { BUCKETS, bucketOf, streamOf } from '#src/streams/subjects.ts';
import type { AggregateRef } from '#src/streams/subjects.ts';
import { appendAll, newCommit, newCommits, newRef } from '../support/commits.ts';
import { openLog } from '../support/jetstream.ts';
import type { TestLog } from '../support/jetstream.ts';
import { TestNats } from '../support/nats.ts';

const AGGREGATES = 60;
const COMMITS = 5;
const ignore = (): void => undefined;

async function whole(log: TestLog, ref: AggregateRef) {
  const { commits } = await log.store.read(ref, { after: 0, limit: 100 });
  return commits.map(({ position, hash, commit }) => ({ position, hash, rev: commit.rev }));
}

/** Histories that are mixed in their stream. */
async function fill(log: TestLog): Promise<readonly AggregateRef[]> {
  const refs = Array.from({ length: AGGREGATES }, () => newRef());
  await Promise.all(refs.map(async (ref) => await appendAll(log.store, ref, newCommits(COMMITS))));
  return refs;
}

async function splitOf(url: string, work: (split: ShardSplit) => Promise<void>): Promise<void> {
  const connections = await connectNats(url, 'test');
  try {
    await work(await ShardSplit.open(connections.consumers));
  } finally {
    await closeNats(connections);
  }
}

function countsOf(refs: readonly AggregateRef[], shards: number): number[] {
  const counts = Array.from({ length: shards }, () => 0);
  for (const ref of refs) {
    const shard = streamOf(bucketOf(ref), shards);
    counts[shard] = (counts[shard] ?? 0) + COMMITS;
  }
  return counts;
}

test('every history has its positions in the stream that it moves to, once, and appends continue it', async () => {
  await using nats = await TestNats.start();
  await using one = await openLog(nats.url);
  const refs = await fill(one);
  const before = await Promise.all(refs.map(async (ref) => await whole(one, ref)));
  const steps: readonly (readonly [from: number, to: number])[] = [
    [1, 2],
    [2, 6],
  ];
  for (const [from, to] of steps) {
    await splitOf(nats.url, async (split) => {
      expect(await split.shards()).toBe(from);
      const begun = await split.begin(from, to);
      await split.copy(begun, ignore);
      const decided = await split.decide(begun, countsOf(refs, to));
      expect(await split.begun()).toEqual(decided);
      await split.separate(decided);
      // Whatever a killed command has done already.
      await split.separate(decided);
      const states = Array.from({ length: to }, async (_, shard) => (await split.stateOf(shard)).messages);
      expect(await Promise.all(states)).toEqual(decided.expected);
      await split.end();
      expect(await split.begun()).toBeNull();
      expect(await split.shards()).toBe(to);
    });
  }
  await using six = await openLog(nats.url, { shards: 6 });
  expect(await Promise.all(refs.map(async (ref) => await whole(six, ref)))).toEqual(before);
  for (const [n, ref] of refs.entries()) {
    const last = before[n]?.at(-1);
    const next = { ...newCommit(COMMITS + 1), prev: last?.hash ?? '' };
    expect(await six.store.append(ref, (last?.position ?? 0) - 1, next)).toEqual({ kind: 'conflict' });
    const appended = await six.store.append(ref, last?.position ?? 0, next);
    expect(appended).toMatchObject({ kind: 'appended' });
    expect(await six.store.head(ref)).toBeGreaterThan(last?.position ?? 0);
  }
});

test('meanwhile no node starts and nothing is added to what moves; taken back, everything is as before', async () => {
  await using nats = await TestNats.start();
  await using one = await openLog(nats.url);
  const refs = await fill(one);
  const before = await Promise.all(refs.map(async (ref) => await whole(one, ref)));
  await splitOf(nats.url, async (split) => {
    const begun = await split.begin(1, BUCKETS);
    await split.copy(begun, ignore);
    await split.copy(begun, ignore);
    const { hostname, port, username, password } = new URL(nats.url);
    const connection = await connect({ servers: `${hostname}:${port}`, user: username, pass: password });
    await expect(ensureTopology(connection, { shards: 1, replicas: 1 })).rejects.toThrow(/moving to 64 log shards/);
    // What the client says when no stream has the subject.
    await expect(jetstream(connection).publish('evt.5.tn.session.x', 'late')).rejects.toThrow(
      /jetstream is not enabled/,
    );
    await connection.close();
    await split.takeBack(begun);
    expect(await split.shards()).toBe(1);
  });
  await using again = await openLog(nats.url);
  expect(await Promise.all(refs.map(async (ref) => await whole(again, ref)))).toEqual(before);
  const fresh = newRef();
  await appendAll(again.store, fresh, newCommits(2));
  expect(await whole(again, fresh)).toHaveLength(2);
});

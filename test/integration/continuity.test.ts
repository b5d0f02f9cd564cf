import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Repository } from '#src/commands/repository.ts';
import { sessionType } from '#src/commands/aggregate.ts';
import type { Gap } from '#src/streams/continuity.ts';
import type { Continuity } from '#src/streams/continuity.ts';
import { appendAll, newCommit, newCommits, newRef } from '../support/commits.ts';
import { startContinuity } from '../support/continuity.ts';
import { FaultyFeed } from '../support/faulty-feed.ts';
import { openLog } from '../support/jetstream.ts';
import type { TestLog } from '../support/jetstream.ts';
import { TestNats } from '../support/nats.ts';
import { overriding } from '../support/overriding.ts';
import { seededRandom } from '../support/random.ts';
import { TcpProxy } from '../support/tcp-proxy.ts';
import { until } from '../support/wait-until.ts';

const random = seededRandom('continuity');
const disposables = new AsyncDisposableStack();
const SHARDS = 2;
let proxy: TcpProxy;
/** Writes; nothing happens to its connections. */
let writer: TestLog;
/** A node whose connections are cut. */
let node: TestLog;

beforeAll(async () => {
  const nats = disposables.use(await TestNats.start());
  proxy = disposables.use(await TcpProxy.start(nats.port));
  writer = disposables.use(await openLog(nats.url, { shards: SHARDS }));
  node = disposables.use(await openLog(nats.urlThrough(proxy.port), { shards: SHARDS, codec: writer.codec }));
});

afterAll(async () => {
  await disposables.disposeAsync();
});

/** What a listener was told of each stream, as ranges that touch. */
function heardOf(continuity: Continuity) {
  const upTo = Array.from({ length: SHARDS }, (_, shard) => continuity.positionOf(shard) ?? Number.NaN);
  const heard = { upTo, gaps: [] as Gap[], commits: 0, wrong: [] as string[] };
  continuity.listen({
    onCommit: ({ shard, position }) => {
      if (position !== (upTo[shard] ?? 0) + 1) heard.wrong.push(`commit ${position} after ${upTo[shard]}`);
      upTo[shard] = position;
      heard.commits++;
    },
    onGap: (gap) => {
      if (gap.after !== upTo[gap.shard]) heard.wrong.push(`gap after ${gap.after}, not ${upTo[gap.shard]}`);
      upTo[gap.shard] = gap.upTo;
      heard.gaps.push(gap);
    },
  });
  return heard;
}

async function reached(heard: { readonly upTo: readonly number[] }): Promise<void> {
  for (let shard = 0; shard < SHARDS; shard++) {
    const newest = await writer.source.newest(shard, 'all');
    await until('the stream is known to its end', () => heard.upTo[shard] === newest);
  }
}

describe('over real connections', () => {
  test('that are cut while others write, each position is a commit or part of a gap, in order', async () => {
    const continuity = await startContinuity(node.feed, node.source, { silenceMs: 200 });
    const heard = heardOf(continuity);
    let all = 0;
    let cuts = 0;
    const write = async (): Promise<void> => {
      const ref = newRef();
      for (let position = 0, rev = 1; rev <= 300; rev++) {
        const result = await writer.store.append(ref, position, newCommit(rev));
        if (result.kind === 'appended') position = result.position;
        if (++all % random.int(100, 250) === 0) {
          proxy.cutAll();
          cuts++;
        }
      }
    };
    await Promise.all(Array.from({ length: 6 }, write));
    await reached(heard);
    expect(heard.wrong).toEqual([]);
    const missed = heard.gaps.reduce((sum, { after, upTo }) => sum + upTo - after, 0);
    expect([all, heard.commits > 0, heard.gaps.length > 0]).toEqual([1_800, true, true]);
    expect(heard.commits + missed).toBeGreaterThanOrEqual(all);
    process.stdout.write(`${cuts} cuts: ${heard.commits} commits, ${heard.gaps.length} gaps of ${missed}\n`);
    continuity.stop();
  });

  test('a cut in which nothing was stored is no gap', async () => {
    const answered = new Set<number>();
    let isBack = false;
    const source = overriding(node.source, {
      newest: async (shard, kinds) => {
        const wasBack = isBack;
        const newest = await node.source.newest(shard, kinds);
        if (wasBack) answered.add(shard);
        return newest;
      },
    });
    const unlisten = node.feed.listen({ onCommit: () => undefined, onDisruption: () => (isBack = true) });
    const continuity = await startContinuity(node.feed, source, { silenceMs: 100 });
    // Its first questions may have been lost with a connection that was cut before: then where a stream begins is a gap.
    await until('it knows each stream', () => continuity.positionOf(0) !== null && continuity.positionOf(1) !== null);
    const heard = heardOf(continuity);
    proxy.cutAll();
    await until('each stream was asked over the new connection', () => answered.size === SHARDS);
    unlisten();
    expect(heard.gaps).toEqual([]);
    await appendAll(writer.store, newRef(), newCommits(5));
    await reached(heard);
    // A commit that takes its time, as on a busy machine, may be declared missing; none is forgotten.
    const missed = heard.gaps.reduce((sum, { after, upTo }) => sum + upTo - after, 0);
    expect([heard.commits + missed, heard.wrong]).toEqual([5, []]);
    continuity.stop();
  });
});

test('the last commit before a silence is lost: a look at the stream finds it, and says whose it is', async () => {
  const feed = new FaultyFeed(writer.feed, random);
  const continuity = await startContinuity(feed, writer.source, { silenceMs: 100 });
  const heard = heardOf(continuity);
  const [ref, other] = [newRef(), newRef('agent')];
  feed.faults = { dropped: 100, doubled: 0, delayed: 0, delayMs: 0 };
  const [, last = 0] = await appendAll(writer.store, ref, newCommits(2));
  await appendAll(writer.store, other, newCommits(1));
  await reached(heard);
  const signal = AbortSignal.timeout(30_000);
  const mine = heard.gaps.filter(({ shard }) => shard === writer.store.shardOf(ref));
  const found = await Promise.all(mine.map(async (gap) => await continuity.touched(gap, ['session'], signal)));
  expect(found.flatMap((one) => [...one.values()])).toContain(last);
  expect(found.flatMap((one) => [...one.keys()]).every((key) => key.startsWith('session.'))).toBe(true);
  continuity.stop();
});

test('a silent stream costs one question in each period, a busy one none', async () => {
  let asked = 0;
  const source = overriding(writer.source, {
    newest: async (shard, kinds) => {
      asked++;
      return await writer.source.newest(shard, kinds);
    },
  });
  const continuity = await startContinuity(writer.feed, source, { silenceMs: 300 });
  const heard = heardOf(continuity);
  expect(asked).toBe(SHARDS);
  await until('both are asked again', () => asked >= 3 * SHARDS);
  const [ref] = [newRef()];
  const before = asked;
  const began = performance.now();
  await appendAll(writer.store, ref, newCommits(300));
  const periods = Math.ceil((performance.now() - began) / 300) + 1;
  expect(asked - before).toBeLessThanOrEqual(periods * SHARDS);
  await reached(heard);
  expect(heard.wrong).toEqual([]);
  continuity.stop();
});

test('a fold from before a gap is read on before anybody has it; without a gap it costs nothing', async () => {
  const feed = new FaultyFeed(writer.feed, random);
  // Nothing is looked for before it is said: a commit that takes its time would be a gap.
  const continuity = await startContinuity(feed, writer.source);
  let reads = 0;
  const store = overriding(writer.store, {
    read: async (ref, range) => {
      reads++;
      return await writer.store.read(ref, range);
    },
  });
  const sessions = new Repository({ type: sessionType, store, cacheBytes: 1_000_000 });
  continuity.listen({
    onCommit: (commit) => sessions.live(commit),
    onGap: ({ shard }) => sessions.disrupted(shard),
  });
  const ref = newRef();
  await appendAll(writer.store, ref, [newCommit(1)]);
  expect((await sessions.load(ref)).rev).toBe(1);
  const changes: (number | null)[] = [];
  sessions.watch(ref, (position) => changes.push(position));
  await appendAll(writer.store, ref, [newCommit(2)]);
  await until('it came live', () => changes.length === 1);
  const before = reads;
  expect(await sessions.load(ref)).toMatchObject({ rev: 2, cached: true });
  expect(reads).toBe(before);
  feed.faults = { dropped: 100, doubled: 0, delayed: 0, delayMs: 0 };
  await appendAll(writer.store, ref, [newCommit(3)]);
  feed.disrupt();
  await until('the watcher is told', () => changes.at(-1) === null);
  expect(await sessions.load(ref)).toMatchObject({ rev: 3, cached: false });
  expect(await sessions.load(ref)).toMatchObject({ rev: 3, cached: true });
  // A gap of another stream makes nothing of it old.
  sessions.disrupted(1 - writer.store.shardOf(ref));
  expect(await sessions.load(ref)).toMatchObject({ cached: true });
  continuity.stop();
});

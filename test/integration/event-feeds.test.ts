import { jetstream } from '@nats-io/jetstream';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { FollowedCommit } from '#src/streams/event-store.ts';
import { refKey } from '#src/streams/subjects.ts';
import { followTo, placeOf } from '../conformance/commit-source.ts';
import { appendAll, newCommit, newCommits, newRef } from '../support/commits.ts';
import { openLog } from '../support/jetstream.ts';
import type { TestLog } from '../support/jetstream.ts';
import { TestNats } from '../support/nats.ts';
import { seededRandom } from '../support/random.ts';
import { TcpProxy } from '../support/tcp-proxy.ts';
import { until } from '../support/wait-until.ts';

const random = seededRandom('event-feeds');
const disposables = new AsyncDisposableStack();
let nats: TestNats;
/** Sooner than a follower would notice by the silence of its consumer. */
const RESUMED_MS = 4_000;
let proxy: TcpProxy;
let log: TestLog;
let throughProxy: TestLog;

beforeAll(async () => {
  nats = disposables.use(await TestNats.start());
  proxy = disposables.use(await TcpProxy.start(nats.port));
  log = disposables.use(await openLog(nats.url));
  throughProxy = disposables.use(await openLog(nats.urlThrough(proxy.port)));
});

afterAll(async () => {
  await disposables.disposeAsync();
});

test('a reconnect is a disruption for every listener, and the feed goes on', async () => {
  const ref = newRef();
  const heard: number[] = [];
  let disruptions = 0;
  const stops = [1, 2].map(() =>
    throughProxy.feed.listen({
      onCommit: (commit) => void (commit.key === refKey(ref) && heard.push(commit.position)),
      onDisruption: () => disruptions++,
    }),
  );
  const [first = 0] = await appendAll(log.store, ref, newCommits(1));
  await until('the first is heard', () => heard.length === 2);
  expect(disruptions).toBe(0);
  proxy.cutAll();
  // Stored while nobody listens: this one may be missed, which is what the disruption tells.
  const [missed = 0] = await appendAll(log.store, ref, newCommits(1));
  await until('both hear of the disruption', () => disruptions >= 2);
  const [third = 0] = await appendAll(log.store, ref, newCommits(1));
  await until('the third is heard', () => heard.filter((position) => position === third).length === 2);
  for (const stop of stops) stop();
  expect(heard.filter((position) => position !== missed)).toEqual([first, first, third, third]);
});

test('a follower loses and doubles nothing over two restarts of the server', async () => {
  const refs = Array.from({ length: 4 }, () => newRef('key'));
  const [killAt, restartAt] = [random.int(40, 100), random.int(150, 260)];
  const got: FollowedCommit[] = [];
  const end = new AbortController();
  const following = (async () => {
    const options = { shard: 0, kinds: ['key'], after: 0, buffer: 50, signal: end.signal } as const;
    for await (const batch of log.source.follow(options)) got.push(...batch);
  })();
  const writing = refs.map(async (ref) => await appendAll(log.store, ref, newCommits(100)));
  await until(`${killAt} followed`, () => got.length >= killAt);
  const resumedMs: number[] = [];
  const resumes = async (): Promise<void> => {
    const [before, began] = [got.length, performance.now()];
    await until('it goes on', () => got.length > before || got.length === refs.length * 100);
    resumedMs.push(performance.now() - began);
  };
  await nats.kill();
  await nats.restart();
  await resumes();
  await until(`${restartAt} followed`, () => got.length >= restartAt);
  await nats.stop();
  await nats.restart();
  await resumes();
  const positions = (await Promise.all(writing)).flat().toSorted((a, b) => a - b);
  await until('the newest is followed', () => placeOf(got.at(-1) as FollowedCommit) === positions.at(-1));
  // After one of the two the machine may have stood still.
  expect(Math.min(...resumedMs)).toBeLessThan(RESUMED_MS);
  end.abort();
  await following;
  expect(got.map(placeOf)).toEqual(positions);
});

test('a follower reads ahead no more than its buffer, and its consumer is forgotten half a minute after it', async () => {
  const buffer = 20;
  const ref = newRef('executor');
  const positions = await appendAll(log.store, ref, newCommits(600));
  const end = new AbortController();
  const following = log.source
    .follow({ shard: 0, kinds: ['executor'], after: 0, buffer, signal: end.signal })
    [Symbol.asyncIterator]();
  const first = await following.next();
  // Enough round trips for a consumer without a bound to fetch everything.
  for (let n = 0; n < 200; n++) await log.connections.consumers.flush();
  const consumers = [];
  for await (const info of log.topology.manager.consumers.list('EVT_0')) {
    if (info.config.filter_subjects?.includes('evt.*.*.executor.*') === true) consumers.push(info);
    else if (info.config.filter_subject === 'evt.*.*.executor.*') consumers.push(info);
  }
  expect(consumers).toHaveLength(1);
  expect(consumers[0]?.config.inactive_threshold).toBe(30_000_000_000);
  const taken = first.done === true ? 0 : first.value.length;
  expect(taken).toBeGreaterThan(0);
  expect(consumers[0]?.delivered.consumer_seq).toBeLessThanOrEqual(taken + buffer);
  end.abort();
  await following.return?.(undefined);
  const all = await followTo(log.source, { shard: 0, kinds: ['executor'], after: 0, buffer }, positions.at(-1) ?? 0);
  expect(all.flat().map(placeOf)).toEqual(positions);
});

test('a subject that no aggregate has stops neither a follower nor the live feed', async () => {
  const ref = newRef('issuer');
  const heard: number[] = [];
  const stop = log.feed.listen({
    onCommit: (commit) => void (commit.ref.kind === 'issuer' && heard.push(commit.position)),
    onDisruption: () => undefined,
  });
  const js = jetstream(log.connections.appends);
  const odd = [];
  for (const id of ['=ff', '=zz', '=']) odd.push((await js.publish(`evt.1.tenant.issuer.${id}`, 'no commit')).seq);
  const [last = 0] = await appendAll(log.store, ref, [newCommit(1)]);
  const got = await followTo(log.source, { shard: 0, kinds: ['issuer'], after: 0 }, last);
  expect(got.flat().map((followed) => [followed.kind, placeOf(followed)])).toEqual([
    ...odd.map((position) => ['undecodable', position]),
    ['commit', last],
  ]);
  await until('the feed has reached the commit', () => heard.includes(last));
  stop();
  expect(heard).toEqual([...odd, last]);
});

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { jetstream } from '@nats-io/jetstream';
import type { CommitPage, EventStore, ReadRange } from '#src/streams/event-store.ts';
import { subjectOf } from '#src/streams/subjects.ts';
import type { AggregateRef } from '#src/streams/subjects.ts';
import { TailHub } from '#src/streams/tail-hub.ts';
import type { TailHubOptions } from '#src/streams/tail-hub.ts';
import { appendAll, newCommit, newCommits, newRef } from '../support/commits.ts';
import { startContinuity } from '../support/continuity.ts';
import { FaultyFeed } from '../support/faulty-feed.ts';
import { openLog } from '../support/jetstream.ts';
import type { TestLog } from '../support/jetstream.ts';
import { capturedLog } from '../support/logger.ts';
import { TestNats } from '../support/nats.ts';
import { overriding } from '../support/overriding.ts';
import { seededRandom } from '../support/random.ts';
import { Reader, SlowReader } from '../support/tail-readers.ts';
import { until } from '../support/wait-until.ts';

const random = seededRandom('tails');
const disposables = new AsyncDisposableStack();
const hubs: TailHub[] = [];
let nats: TestNats;
let log: TestLog;

beforeAll(async () => {
  nats = disposables.use(await TestNats.start());
  log = disposables.use(await openLog(nats.url));
});

afterAll(async () => {
  for (const hub of hubs) hub.stop();
  await disposables.disposeAsync();
});

type Options = Partial<Pick<TailHubOptions, 'slowMs' | 'retryMs' | 'keptBytesMax' | 'onBackfill'>> & {
  store?: EventStore;
  silenceMs?: number;
};

/** A hub of its own, behind a feed that the test can spoil. Without another word silent streams are never looked at. */
async function newHub({ silenceMs = 600_000, ...options }: Options = {}): Promise<{ hub: TailHub; feed: FaultyFeed }> {
  const feed = new FaultyFeed(log.feed, random);
  const { logger } = capturedLog();
  const continuity = await startContinuity(feed, log.source, { silenceMs });
  const hub = new TailHub({ store: log.store, feed: continuity, logger, ...options });
  hubs.push(hub);
  disposables.defer(() => continuity.stop());
  return { hub, feed };
}

/** The real store, with a say in when a read is answered. */
function observedStore(onRead: (range: ReadRange, page: CommitPage) => Promise<void> | void): EventStore {
  return overriding<EventStore>(log.store, {
    read: async (ref, range) => {
      const page = await log.store.read(ref, range);
      await onRead(range, page);
      return page;
    },
  });
}

/** Appends as soon as it can be, whoever else appends to the same aggregate. */
async function appendRacing(ref: AggregateRef, count: number): Promise<void> {
  for (let n = 0; n < count;) {
    const head = await log.store.head(ref);
    if ((await log.store.append(ref, head, newCommit(n + 1))).kind === 'appended') n++;
  }
}

async function allOf(ref: AggregateRef): Promise<number[]> {
  const positions: number[] = [];
  for (let page: CommitPage = { commits: [], more: true }; page.more;) {
    page = await log.store.read(ref, { after: positions.at(-1) ?? 0, limit: 500 });
    positions.push(...page.commits.map(({ position }) => position));
  }
  return positions;
}

const seen = async (reader: Reader, positions: readonly number[]): Promise<void> => {
  await until('the reader has everything', () => reader.positions.length >= positions.length);
  expect(reader.positions).toEqual(positions);
};

describe.each([
  ['sound', { dropped: 0, doubled: 0, delayed: 0, delayMs: 0 }],
  ['that drops', { dropped: 30, doubled: 0, delayed: 0, delayMs: 0 }],
  ['that doubles', { dropped: 0, doubled: 50, delayed: 0, delayMs: 5 }],
  ['that delivers in another order', { dropped: 0, doubled: 0, delayed: 60, delayMs: 20 }],
  ['that does all of it', { dropped: 20, doubled: 30, delayed: 40, delayMs: 20 }],
])('a feed %s', (_, faults) => {
  test('every reader sees every commit once and in order, wherever and whenever it starts', async () => {
    const { hub, feed } = await newHub({ silenceMs: 100 });
    feed.faults = faults;
    const ref = newRef();
    const readers: { after: number; reader: Reader }[] = [];
    const open = (after: number): void => {
      const reader = new Reader();
      readers.push({ after, reader });
      hub.open(ref, after, reader);
    };
    open(0);
    let head = 0;
    for (const commit of newCommits(60)) {
      const result = await log.store.append(ref, head, commit);
      head = result.kind === 'appended' ? result.position : Number.NaN;
      // From here on, from the beginning, and from a place where no commit of the session stands.
      open(head);
      if (random.int(0, 9) === 0) open(0);
      if (random.int(0, 9) === 0) open(head - 1);
    }
    const positions = await allOf(ref);
    for (const { after, reader } of readers) {
      await seen(
        reader,
        positions.filter((position) => position > after),
      );
    }
    expect(feed.dropped > 0).toBe(faults.dropped > 0);
    hub.stop();
    expect(readers.map(({ reader }) => reader.ended)).toEqual(readers.map(() => 'stopped'));
  });
});

describe('a slow reader', () => {
  test('is not pushed to, reads on from the log when it has drained, and slows nobody', async () => {
    let reads = 0;
    const { hub } = await newHub({ store: observedStore(() => void reads++) });
    const ref = newRef();
    const [slow, quick] = [new SlowReader(3), new Reader()];
    hub.open(ref, 0, slow);
    hub.open(ref, 0, quick);
    await appendAll(log.store, ref, newCommits(50));
    const positions = await allOf(ref);
    await seen(quick, positions);
    expect(slow.positions).toEqual(positions.slice(0, 4));
    const before = reads;
    slow.take();
    await until('it has read on', () => slow.positions.length > 4);
    expect(reads).toBeGreaterThan(before);
    await until('it has everything', () => {
      slow.take();
      return slow.positions.length >= positions.length;
    });
    expect(slow.positions).toEqual(positions);
    // It is live again: what comes next costs no read.
    await until('it is live again', async () => {
      slow.take();
      const [count, length] = [reads, slow.positions.length];
      await appendAll(log.store, ref, [newCommit(1)]);
      await until('it comes', () => slow.positions.length > length);
      return reads === count;
    });
    await seen(slow, await allOf(ref));
  });

  test('of parts that come before gets them in order and no faster, then what is stored meanwhile', async () => {
    // Whoever takes something, as late as a busy machine lets it, is not to be cut: who is, has a hub of its own.
    const [{ hub }, { hub: impatient }] = [await newHub(), await newHub({ slowMs: 400 })];
    const [a, b, ref] = [newRef(), newRef(), newRef()];
    for (const one of [a, b]) await appendAll(log.store, one, newCommits(250));
    const [ofA, ofB] = [await allOf(a), await allOf(b)];
    const [from = 0, to = 0] = [ofA[9], ofA[239]];
    const before = [
      { ref: a, ancestor: 0, after: from, upTo: to },
      { ref: b, ancestor: 1, after: 0, upTo: ofB[199] ?? 0 },
    ];
    const slow = new SlowReader(24);
    const [stuck, cut, quick] = [new SlowReader(3), new SlowReader(3), new Reader()];
    for (const reader of [slow, stuck, quick]) hub.open(ref, 0, reader, before);
    impatient.open(ref, 0, cut, before);
    await until('it is full', () => slow.positions.length === 25);
    await appendAll(log.store, ref, newCommits(10));
    const expected = [...ofA.slice(10, 240), ...ofB.slice(0, 200), ...(await allOf(ref))];
    await seen(quick, expected);
    const everything = (): boolean => {
      slow.take();
      return slow.positions.length >= expected.length;
    };
    await until('it has everything', everything);
    expect(slow.positions).toEqual(expected);
    expect(stuck.positions).toHaveLength(4);
    await until('who takes nothing is cut', () => cut.ended !== null);
    expect([cut.ended, cut.positions.length]).toEqual(['slow', 4]);
  });

  test('is cut after its time, the others go on', async () => {
    const { hub } = await newHub({ slowMs: 150 });
    const ref = newRef();
    const [slow, quick] = [new SlowReader(1), new Reader()];
    hub.open(ref, 0, slow);
    hub.open(ref, 0, quick);
    await appendAll(log.store, ref, newCommits(5));
    await until('it is cut', () => slow.ended !== null);
    expect(slow.ended).toBe('slow');
    expect(hub.size).toBe(1);
    const read = [...slow.positions];
    await appendAll(log.store, ref, newCommits(5));
    await seen(quick, await allOf(ref));
    slow.take();
    expect(slow.positions).toEqual(read);
    expect(quick.ended).toBeNull();
  });

  test('that leaves while it is slow is not told that it has ended', async () => {
    // Long enough to leave in, and the second commit is the last that it waits for.
    const { hub } = await newHub({ slowMs: 3_000 });
    const ref = newRef();
    const slow = new SlowReader(1);
    const close = hub.open(ref, 0, slow);
    await appendAll(log.store, ref, newCommits(2));
    await until('it is full', () => slow.positions.length === 2);
    close();
    close();
    slow.take();
    expect(hub.size).toBe(0);
    await appendAll(log.store, ref, newCommits(3));
    const other = new SlowReader(1);
    hub.open(ref, 0, other);
    await until('a later one is cut', () => other.ended === 'slow');
    expect(slow.ended).toBeNull();
    expect(slow.positions).toHaveLength(2);
  });
});

describe('what the feed does not tell', () => {
  test('a disruption during a read makes the tail look once more after it', async () => {
    const ref = newRef();
    const [first = 0] = await appendAll(log.store, ref, [newCommit(1)]);
    let onRead = async (): Promise<void> => undefined;
    const { hub, feed } = await newHub({ store: observedStore(async () => await onRead()) });
    feed.faults = { dropped: 100, doubled: 0, delayed: 0, delayMs: 0 };
    let second = 0;
    onRead = async () => {
      onRead = async () => undefined;
      // The answer of the read under way is made; what is stored now is not in it, and the feed has lost it.
      [second = 0] = await appendAll(log.store, ref, [newCommit(2)]);
      feed.disrupt();
    };
    const reader = new Reader();
    hub.open(ref, 0, reader);
    await until('both commits', () => reader.positions.length === 2);
    expect(reader.positions).toEqual([first, second]);
  });

  test('a disruption at rest makes every tail look', async () => {
    const { hub, feed } = await newHub();
    const refs = [newRef(), newRef(), newRef()];
    const readers = refs.map((ref) => {
      const reader = new Reader();
      hub.open(ref, 0, reader);
      return reader;
    });
    // Whoever has not asked the log yet how far it reaches finds by that what the feed loses.
    for (const ref of refs) await appendAll(log.store, ref, [newCommit(1)]);
    await until('each has begun', () => readers.every(({ positions }) => positions.length === 1));
    feed.faults = { dropped: 100, doubled: 0, delayed: 0, delayMs: 0 };
    for (const ref of refs) await appendAll(log.store, ref, newCommits(3));
    await until('the feed has lost them', () => feed.dropped >= 9);
    expect(readers.map(({ positions }) => positions.length)).toEqual([1, 1, 1]);
    feed.disrupt();
    for (const [n, ref] of refs.entries()) await seen(readers[n] as Reader, await allOf(ref));
  });

  test('the comparison with the log finds a lost commit that nothing follows', async () => {
    const { hub, feed } = await newHub({ silenceMs: 50 });
    const refs = Array.from({ length: 30 }, () => newRef());
    const readers = refs.map((ref) => {
      const reader = new Reader();
      hub.open(ref, 0, reader);
      return reader;
    });
    for (const ref of refs) await appendAll(log.store, ref, newCommits(2));
    for (const reader of readers) await until('it is live', () => reader.positions.length === 2);
    feed.faults = { dropped: 100, doubled: 0, delayed: 0, delayMs: 0 };
    for (const ref of refs) await appendAll(log.store, ref, [newCommit(3)]);
    for (const [n, ref] of refs.entries()) await seen(readers[n] as Reader, await allOf(ref));
    await until('the feed has lost each of them', () => feed.dropped >= 30);
    expect(readers.map(({ positions }) => positions.length)).toEqual(refs.map(() => 3));
  });

  test('a server that restarts: the readers go on, with everything', async () => {
    const { hub } = await newHub({ silenceMs: 100 });
    const ref = newRef();
    const readers = Array.from({ length: 20 }, () => new Reader());
    for (const reader of readers) hub.open(ref, 0, reader);
    await appendAll(log.store, ref, newCommits(5));
    for (const reader of readers) await until('it is live', () => reader.positions.length === 5);
    await nats.kill();
    await nats.restart();
    await until('the log answers', async () => (await log.store.head(ref).catch(() => 0)) > 0);
    await appendAll(log.store, ref, newCommits(5));
    for (const reader of readers) await seen(reader, await allOf(ref));
    expect(hub.size).toBe(20);
  });
});

describe('a hub', () => {
  test('that stops ends every tail once, reading and slow ones too, and opens none after', async () => {
    let release = (): void => undefined;
    const gate = new Promise<void>((resolve) => (release = resolve));
    const blocked = newRef();
    await appendAll(log.store, blocked, newCommits(3));
    const { hub } = await newHub({
      store: observedStore(async (_, page) => await (page.commits[0]?.ref === blocked ? gate : undefined)),
    });
    const ref = newRef();
    await appendAll(log.store, ref, newCommits(3));
    const [live, slow, reading, late] = [new Reader(), new SlowReader(1), new Reader(), new Reader()];
    hub.open(ref, 0, live);
    hub.open(ref, 0, slow);
    hub.open(blocked, 0, reading);
    await until('two have read', () => live.positions.length === 3 && slow.positions.length === 2);
    hub.stop();
    expect([live, slow, reading].map(({ ended }) => ended)).toEqual(['stopped', 'stopped', 'stopped']);
    expect(hub.size).toBe(0);
    release();
    slow.take();
    hub.open(ref, 0, late);
    expect(late.ended).toBe('stopped');
    expect(hub.size).toBe(0);
    const other = (await newHub()).hub;
    const after = new Reader();
    other.open(blocked, 0, after);
    await until('another hub reads', () => after.positions.length === 3);
    expect(reading.positions).toEqual([]);
    expect(slow.positions).toHaveLength(2);
  });

  test('what cannot be decoded ends the readers, live and late ones alike: none steps over it', async () => {
    const { hub } = await newHub();
    const ref = newRef();
    const readers = [new Reader(), new Reader(), new Reader()];
    for (const reader of readers) hub.open(ref, 0, reader);
    const [first = 0] = await appendAll(log.store, ref, [newCommit(1)]);
    for (const reader of readers) await until('it is live', () => reader.positions.length === 1);
    await jetstream(log.connections.appends).publish(subjectOf(ref), 'no commit');
    await appendAll(log.store, ref, [newCommit(2)]);
    const late = new Reader();
    hub.open(ref, 0, late);
    for (const reader of [...readers, late]) {
      await until('it has ended', () => reader.ended !== null);
      expect(reader.ended).toBe('failed');
      expect(reader.positions.every((position) => position === first)).toBe(true);
    }
  });
});

test('1,000 tails on 50 sessions, written to by racing writers: each has everything, once, in order', async () => {
  const { hub, feed } = await newHub({ silenceMs: 500 });
  feed.faults = { dropped: 2, doubled: 5, delayed: 5, delayMs: 20 };
  const sessions = Array.from({ length: 50 }, () => newRef());
  const readers = Array.from({ length: 1_000 }, (_, n) => {
    const reader = new Reader();
    const ref = sessions[n % sessions.length] as AggregateRef;
    hub.open(ref, 0, reader);
    return { ref, reader };
  });
  expect(hub.size).toBe(1_000);
  await Promise.all(sessions.flatMap((ref) => [appendRacing(ref, 15), appendRacing(ref, 15)]));
  const expected = new Map<AggregateRef, number[]>();
  for (const ref of sessions) expected.set(ref, await allOf(ref));
  for (const { ref, reader } of readers) await seen(reader, expected.get(ref) ?? []);
  expect([...expected.values()].every(({ length }) => length === 30)).toBe(true);
}, 300_000);

import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { StoredCommit } from '#src/streams/commit.ts';
import type { EventStore } from '#src/streams/event-store.ts';
import type { AggregateRef } from '#src/streams/subjects.ts';
import { TailHub } from '#src/streams/tail-hub.ts';
import type { TailHubOptions } from '#src/streams/tail-hub.ts';
import { appendAll, newCommit, newCommits, newRef } from '../support/commits.ts';
import { startContinuity } from '../support/continuity.ts';
import { openLog } from '../support/jetstream.ts';
import type { TestLog } from '../support/jetstream.ts';
import { capturedLog } from '../support/logger.ts';
import { TestNats } from '../support/nats.ts';
import { overriding } from '../support/overriding.ts';
import { Reader, SlowReader } from '../support/tail-readers.ts';
import { TcpProxy } from '../support/tcp-proxy.ts';
import { until } from '../support/wait-until.ts';

const disposables = new AsyncDisposableStack();
let nats: TestNats;
let proxy: TcpProxy;
/** Writes; nothing happens to its connections. */
let writer: TestLog;
/** The node with the readers, whose connections are cut. */
let node: TestLog;

beforeAll(async () => {
  nats = disposables.use(await TestNats.start());
  proxy = disposables.use(await TcpProxy.start(nats.port));
  writer = disposables.use(await openLog(nats.url));
  node = disposables.use(await openLog(nats.urlThrough(proxy.port), { codec: writer.codec }));
});

afterAll(async () => {
  await disposables.disposeAsync();
});

/** Counts what the log is asked for, and says how it went. */
interface Asked {
  reads: number;
  /** Commits that were read. */
  commits: number;
  heads: number;
  failures: number;
}

type Options = Partial<Pick<TailHubOptions, 'slowMs' | 'keptBytesMax' | 'retryMs'>>;

async function hubOf(log: TestLog, options: Options = {}): Promise<{ hub: TailHub; asked: Asked }> {
  const asked = { reads: 0, commits: 0, heads: 0, failures: 0 };
  const counted = async <T>(what: Promise<T>): Promise<T> => {
    what.catch(() => asked.failures++);
    return await what;
  };
  const store = overriding<EventStore>(log.store, {
    read: async (ref, range) => {
      const page = await counted(log.store.read(ref, range));
      // One that fails while connections come back, one after the other, is made again.
      asked.reads++;
      asked.commits += page.commits.length;
      return page;
    },
    head: async (ref) => {
      asked.heads++;
      return await counted(log.store.head(ref));
    },
  });
  const feed = await startContinuity(log.feed, log.source, { silenceMs: 1_000 });
  const hub = new TailHub({ store, feed, logger: capturedLog().logger, ...options });
  disposables.defer(() => {
    hub.stop();
    feed.stop();
  });
  return { hub, asked };
}

/** Tells how late each commit comes, ms, by its `rev`. */
class TimedReader extends Reader {
  readonly #sentAt: readonly number[];
  readonly #onDelay: (sentAt: number, ms: number) => void;

  constructor(sentAt: readonly number[], onDelay: (sentAt: number, ms: number) => void) {
    super();
    this.#sentAt = sentAt;
    this.#onDelay = onDelay;
  }

  override write(stored: StoredCommit): boolean {
    const sentAt = this.#sentAt[stored.commit.rev] ?? 0;
    this.#onDelay(sentAt, performance.now() - sentAt);
    return super.write(stored);
  }
}

const median = (of: number[]): number => of.toSorted((a, b) => a - b)[Math.floor(of.length / 2)] ?? Number.NaN;

async function positionsOf(ref: AggregateRef): Promise<number[]> {
  const found: number[] = [];
  for (let more = true; more;) {
    const page = await writer.store.read(ref, { after: found.at(-1) ?? 0, limit: 500 });
    found.push(...page.commits.map(({ position }) => position));
    ({ more } = page);
  }
  return found;
}

const TAILS = 1_000;
const PER_SECOND = 150;
const WRITE_MS = 4_000;
const CUT_AT_MS = 1_000;
/** From when the connection is back. */
const SETTLED_MS = 1_000;
/** Before the cut, and of those that are measured after it: however long a busy machine takes for them. */
const COMMITS_MIN = 20;

test('1,000 tails of one session at 150 commits/s, and a disconnect: one read serves all, nobody ends', async () => {
  const { hub, asked } = await hubOf(node);
  const ref = newRef();
  const sentAt: number[] = [];
  const late: { sentAt: number; ms: number }[] = [];
  const readers = Array.from(
    { length: TAILS },
    () => new TimedReader(sentAt, (at, ms) => late.push({ sentAt: at, ms })),
  );
  for (const reader of readers) hub.open(ref, 0, reader);
  const began = performance.now();
  let [cutAt, settledAt] = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY];
  const unlisten = node.feed.listen({
    onCommit: () => undefined,
    onDisruption: () => {
      if (cutAt < settledAt) settledAt = Math.min(settledAt, performance.now() + SETTLED_MS);
    },
  });
  const isOver = (): boolean =>
    performance.now() - began >= WRITE_MS && sentAt.filter((at) => at > settledAt).length >= COMMITS_MIN;
  for (let rev = 1, position = 0; !isOver(); rev++) {
    if (cutAt === Number.POSITIVE_INFINITY && performance.now() - began > CUT_AT_MS && rev > COMMITS_MIN) {
      proxy.cutAll();
      cutAt = performance.now();
    }
    sentAt[rev] = performance.now();
    const result = await writer.store.append(ref, position, newCommit(rev));
    if (result.kind === 'appended') ({ position } = result);
    // The rate, not a level that is waited for.
    await pause(Math.max(0, began + (rev * 1_000) / PER_SECOND - performance.now()));
  }
  unlisten();
  const expected = await positionsOf(ref);
  await until('everybody has everything', () => readers.every(({ positions }) => positions.length >= expected.length));
  for (const reader of readers) expect(reader.positions).toEqual(expected);
  expect(readers.filter(({ ended }) => ended !== null)).toEqual([]);
  const before = median(late.filter((one) => one.sentAt < cutAt).map(({ ms }) => ms));
  const after = median(late.filter((one) => one.sentAt > settledAt).map(({ ms }) => ms));
  process.stdout.write(
    `${expected.length} commits, p50 ${before.toFixed(1)} ms, from 1 s after the reconnect ${after.toFixed(1)} ms; ` +
      `${asked.reads} reads of ${asked.commits} commits, ${asked.heads} heads\n`,
  );
  // One for all of them, where each for itself took seconds. Reads of 1,000 tails are 1,000 and more.
  expect(asked.reads).toBeLessThan(50);
  // As quick as before, where a disk takes long too.
  expect(after).toBeLessThan(500 + 3 * before);
  expect(hub.keptBytes).toBe(0);
});

/** The longest that this process computes between two turns of its event loop, ms: it stands still at no cost of its own. */
function longestComputation(): { readonly stop: () => number } {
  const cpuMs = (): number => {
    const { user, system } = process.threadCpuUsage();
    return (user + system) / 1_000;
  };
  let [last, most] = [cpuMs(), 0];
  const look = (): void => {
    const now = cpuMs();
    [most, last] = [Math.max(most, now - last), now];
  };
  const timer = setInterval(look, 1);
  return {
    stop: () => {
      clearInterval(timer);
      look();
      return most;
    },
  };
}

test(
  '10,000 idle tails and a disconnect: none that missed nothing reads, and the event loop goes on',
  { timeout: 300_000 },
  async () => {
    const { hub, asked } = await hubOf(node);
    const refs = Array.from({ length: 10_000 }, () => ({ ...newRef(), tenant: 'tn_idle' }));
    const readers = refs.map((ref) => {
      const reader = new Reader();
      hub.open(ref, 0, reader);
      return reader;
    });
    await until('all have begun', () => asked.heads - asked.failures >= refs.length, 120_000);
    await until('a commit comes live', async () => {
      const probe = refs[0] as AggregateRef;
      const count = readers[0]?.positions.length ?? 0;
      await appendAll(writer.store, probe, [newCommit(count + 1)]);
      return await until('it comes', () => (readers[0]?.positions.length ?? 0) > count);
    });
    const before = { ...asked };
    const missed = refs.slice(100, 120);
    let back = 0;
    const stop = node.feed.listen({ onCommit: () => undefined, onDisruption: () => back++ });
    const loop = longestComputation();
    proxy.goAway();
    for (const ref of missed) await appendAll(writer.store, ref, newCommits(2));
    proxy.pass();
    await until('the connection is back', () => back > 0);
    await until('those who missed something have it', () =>
      readers.slice(100, 120).every(({ positions }) => positions.length === 2),
    );
    const longestMs = loop.stop();
    stop();
    process.stdout.write(
      `longest computation ${longestMs.toFixed(0)} ms; ${asked.reads - before.reads} reads, ${asked.heads - before.heads} heads\n`,
    );
    expect(asked.reads - before.reads).toBeLessThanOrEqual(missed.length * 2);
    expect(asked.heads - before.heads).toBeLessThanOrEqual(missed.length * 2);
    expect(readers.filter(({ ended }) => ended !== null)).toEqual([]);
    // With a read each it was 1,600 ms.
    expect(longestMs).toBeLessThan(400);
  },
);

test('a server that is away for longer than a read is tried: live, paging and new readers go on when it is back', async () => {
  const { hub, asked } = await hubOf(node);
  const ref = newRef();
  await appendAll(writer.store, ref, newCommits(20));
  const [live, slow] = [new Reader(), new SlowReader(3)];
  hub.open(ref, 0, live);
  hub.open(ref, 0, slow);
  await until('both have begun', () => live.positions.length === 20 && slow.positions.length === 4);
  proxy.goAway();
  slow.take();
  const [late, elsewhere] = [new Reader(), new Reader()];
  hub.open(newRef(), 0, elsewhere);
  hub.open(ref, 0, late);
  await until('reads have failed for good', () => asked.failures >= 2);
  await appendAll(writer.store, ref, newCommits(5));
  proxy.pass();
  const expected = await positionsOf(ref);
  await until('all have everything', () => {
    slow.take();
    return [live, slow, late].every(({ positions }) => positions.length >= expected.length);
  });
  for (const reader of [live, slow, late]) expect([reader.positions, reader.ended]).toEqual([expected, null]);
  expect(elsewhere.ended).toBeNull();
});

test('a log that stays away for longer than its bound ends the readers that wait for it, and no others', async () => {
  const { hub } = await hubOf(node, { retryMs: 1 });
  const [ref, other] = [newRef(), newRef()];
  const [live, behind] = [new Reader(), new Reader()];
  hub.open(other, 0, live);
  await appendAll(writer.store, other, newCommits(1));
  await until('it is live', () => live.positions.length === 1);
  proxy.goAway();
  hub.open(ref, 0, behind);
  await until('it has ended', () => behind.ended !== null);
  proxy.pass();
  expect([behind.ended, live.ended]).toEqual(['failed', null]);
});

test('a slow reader reads each commit about once', async () => {
  const { hub, asked } = await hubOf(writer);
  const ref = newRef();
  const slow = new SlowReader(9);
  await appendAll(writer.store, ref, newCommits(50));
  hub.open(ref, 0, slow);
  const more = appendAll(writer.store, ref, newCommits(350));
  await until('it has everything', () => {
    slow.take();
    return slow.positions.length >= 400;
  });
  await more;
  expect(slow.positions).toEqual(await positionsOf(ref));
  process.stdout.write(`${asked.commits} commits read for 400\n`);
  // Whole pages that were thrown away after ten commits each were 20 times as many.
  expect(asked.commits).toBeLessThan(900);
});

test('readers that begin together share their pages', async () => {
  const { hub, asked } = await hubOf(writer);
  const ref = newRef();
  await appendAll(writer.store, ref, newCommits(500));
  const readers = Array.from({ length: 300 }, () => new Reader());
  for (const reader of readers) hub.open(ref, 0, reader);
  const expected = await positionsOf(ref);
  await until('all have everything', () => readers.every(({ positions }) => positions.length >= 500));
  for (const reader of readers) expect(reader.positions).toEqual(expected);
  expect(asked.reads).toBeLessThan(20);
});

test('what comes while others are served is kept within its bound, and comes all the same', async () => {
  const { hub } = await hubOf(writer, { keptBytesMax: 2_000 });
  const ref = newRef();
  const readers = Array.from({ length: 200 }, () => new Reader());
  const appended = appendAll(writer.store, ref, newCommits(300));
  let most = 0;
  const watched = setInterval(() => (most = Math.max(most, hub.keptBytes)), 1);
  for (const reader of readers) hub.open(ref, 0, reader);
  await appended;
  const expected = await positionsOf(ref);
  await until('all have everything', () => readers.every(({ positions }) => positions.length >= 300));
  clearInterval(watched);
  for (const reader of readers) expect(reader.positions).toEqual(expected);
  // One commit is handed out in any case.
  expect(most).toBeLessThan(2_000 + 3 * 1_000);
  await until('nothing is kept', () => hub.keptBytes === 0);
});

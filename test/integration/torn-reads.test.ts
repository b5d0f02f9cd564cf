import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { snapshotKey } from '#src/commands/repository.ts';
import type { Continuity } from '#src/streams/continuity.ts';
import { JetStreamKeyValue } from '#src/streams/jetstream/key-value.ts';
import type { KeyValue } from '#src/streams/key-value.ts';
import { TailHub } from '#src/streams/tail-hub.ts';
import { refKey } from '#src/streams/subjects.ts';
import type { AggregateRef } from '#src/streams/subjects.ts';
import { appendAll, newCommits, newRef } from '../support/commits.ts';
import { startContinuity } from '../support/continuity.ts';
import { FrameProxy } from '../support/frame-proxy.ts';
import { openLog } from '../support/jetstream.ts';
import type { TestLog } from '../support/jetstream.ts';
import { capturedLog } from '../support/logger.ts';
import { TestNats } from '../support/nats.ts';
import { newLoop, newNotes, notesType, takeNote, takeNotes } from '../support/notes.ts';
import type { Notes } from '../support/notes.ts';
import { seededRandom } from '../support/random.ts';
import { StrictNats } from '../support/strict-nats.ts';
import { until } from '../support/wait-until.ts';
import { isUnavailableError } from '#src/lib/unavailable.ts';

const random = seededRandom('torn reads');
const oneTo = (count: number): number[] => Array.from({ length: count }, (_, n) => n + 1);
const disposables = new AsyncDisposableStack();

afterAll(async () => {
  await disposables.disposeAsync();
});

describe('messages of an answer are lost on their way', () => {
  let proxy: FrameProxy;
  /** The log as everybody else sees it, and through the proxy. */
  let direct: TestLog;
  let lossy: TestLog;
  let holes = 0;

  beforeAll(async () => {
    const nats = disposables.use(await TestNats.start());
    proxy = disposables.use(await FrameProxy.start(nats.port));
    direct = disposables.use(await openLog(nats.url));
    const onHole = (): void => void holes++;
    lossy = disposables.use(await openLog(nats.urlThrough(proxy.port), { codec: direct.codec, onHole }));
  });

  /** So many answers lose these parts; the next ones are whole. */
  function loseOf(answers: number, isLost: (index: number, isEnd: boolean) => boolean): void {
    const torn = new Set<string>();
    proxy.lose(({ subject, index, isEnd }) => {
      if (!torn.has(subject) && torn.size === answers) return false;
      torn.add(subject);
      return isLost(index, isEnd);
    });
  }

  test.each([
    ['the first', (index: number) => index === 0],
    ['some in the middle', (index: number) => index >= 20 && index < 25],
    ['the last', (index: number, isEnd: boolean) => index >= 49 && !isEnd],
    ['all but the end', (_: number, isEnd: boolean) => !isEnd],
    ['the end', (_: number, isEnd: boolean) => isEnd],
  ])('%s: the page is read again, and whole', async (_, isLost) => {
    const ref = newRef();
    const positions = await appendAll(direct.store, ref, newCommits(50));
    loseOf(1, isLost);
    const page = await lossy.store.read(ref, { after: 0, limit: 100 });
    expect(page.commits.map(({ position }) => position)).toEqual(positions);
    loseOf(1, isLost);
    const plain = await lossy.store.readPlain(ref, { after: 0, limit: 100 });
    expect(plain.commits.map(({ position }) => position)).toEqual(positions);
    loseOf(1, isLost);
    const { state, rev } = await newNotes(lossy.store).load(ref);
    expect([state.numbers.length, rev]).toEqual([50, 50]);
    proxy.pass();
  });

  test('anywhere: pages and heads are whole, however often they had to be read', async () => {
    const refs = Array.from({ length: 12 }, () => newRef());
    const positions = new Map<string, readonly number[]>();
    for (const ref of refs)
      positions.set(refKey(ref), await appendAll(direct.store, ref, newCommits(random.int(1, 40))));
    const before = { lost: proxy.lost, holes };
    for (let round = 0; round < 10; round++) {
      const from = random.int(0, 10);
      loseOf(6, (index, isEnd) => index >= from && !isEnd && random.int(0, 2) === 0);
      await Promise.all(
        refs.map(async (ref) => {
          const all = positions.get(refKey(ref)) ?? [];
          const after = random.int(0, all.length - 1);
          const page = await lossy.store.read(ref, { after: all[after] ?? 0, limit: 500 });
          expect(page.commits.map(({ position }) => position)).toEqual(all.slice(after + 1));
        }),
      );
      loseOf(1, (index, isEnd) => index >= from && !isEnd);
      const heads = await lossy.store.heads(refs);
      expect(new Map(heads)).toEqual(new Map(refs.map((ref) => [refKey(ref), positions.get(refKey(ref))?.at(-1)])));
    }
    proxy.pass();
    expect(proxy.lost - before.lost).toBeGreaterThan(20);
    expect(holes - before.holes).toBeGreaterThan(5);
  });

  test('every time: the read fails in time, and shows nothing', async () => {
    const ref = newRef();
    await appendAll(direct.store, ref, newCommits(20));
    proxy.lose(({ index, isEnd }) => index > 3 && !isEnd);
    await expect(lossy.store.read(ref, { after: 0, limit: 100 })).rejects.toMatchObject({ dependency: 'streams' });
    await expect(newNotes(lossy.store).load(ref)).rejects.toMatchObject({ dependency: 'streams' });
    proxy.pass();
  });

  test('a repeated idempotency key is one commit, and the snapshot that follows has every commit', async () => {
    const snapshots: KeyValue = new JetStreamKeyValue(direct.connections.appends, {
      kv: direct.topology.buckets.snapshots,
      name: 'SNAPSHOT',
    });
    const loop = newLoop();
    for (let round = 0; round < 6; round++) {
      const ref = newRef();
      await takeNotes(loop, { notes: newNotes(direct.store), ref, count: 150 });
      const cold = newNotes(lossy.store, { snapshots });
      const [from, count] = [random.int(0, 140), random.int(1, 60)];
      loseOf(1, (index, isEnd) => index >= from && index < from + count && !isEnd);
      const lost = Math.min(from + random.int(1, count), 150);
      expect(await takeNote(newLoop(), { notes: cold, ref, key: `k${lost}` })).toMatchObject({ reply: 'known' });
      proxy.pass();
      for (let n = 151; n <= 230; n++) await takeNote(loop, { notes: cold, ref, key: `k${n}` });
      const key = snapshotKey(ref, notesType);
      const snapshot = await until('there is a snapshot', async () => (await snapshots.get(key)) ?? undefined);
      const { state, rev } = JSON.parse(snapshot.value) as { state: { numbers: number[] }; rev: number };
      expect(state.numbers).toEqual(oneTo(rev));
      expect((await newNotes(direct.store).load(ref)).state.keys).toEqual(oneTo(230).map((n) => `k${n}`));
    }
  });
});

/** Of each session, what a fold has of 200 commits of 3 KB. */
const SESSIONS = 48;
const COMMITS = 200;
const TEXT = 'x'.repeat(3_000);

describe('a server that drops a connection at 4 MiB', () => {
  let log: TestLog;
  let writer: TestLog;
  let feed: Continuity;
  const refs = Array.from({ length: SESSIONS }, () => newRef());

  beforeAll(async () => {
    const nats = disposables.use(await StrictNats.start());
    writer = disposables.use(await openLog(nats.url));
    log = disposables.use(await openLog(nats.url, { codec: writer.codec }));
    feed = await startContinuity(log.feed, log.source, { silenceMs: 1_000 });
    disposables.defer(() => feed.stop());
    const loop = newLoop();
    await Promise.all(
      refs.map(async (ref) => {
        await takeNotes(loop, { notes: newNotes(writer.store), ref, count: COMMITS, text: TEXT });
      }),
    );
  }, 300_000);

  test('48 cold folds and 240 tails at once: each has every commit', { timeout: 360_000 }, async () => {
    for (let round = 0; round < 2; round++) {
      const hub = new TailHub({ store: log.store, feed, logger: capturedLog().logger });
      const tails = Array.from({ length: 5 * SESSIONS }, (_, n) => tailOf(hub, refs[n % SESSIONS] ?? newRef()));
      const notes = newNotes(log.store);
      const folds = await Promise.all(refs.map(async (ref) => await loaded(notes, ref)));
      const lengths = folds.map(({ state, rev }) => [state.numbers.length, rev]);
      expect(lengths).toEqual(refs.map(() => [COMMITS, COMMITS]));
      await until('every tail has all', () => tails.every(({ revs }) => revs.length >= COMMITS), 120_000);
      for (const { revs } of tails) expect(revs).toEqual(oneTo(COMMITS));
      hub.stop();
    }
  });
});

/** Asked again as a client would, should the machine be too slow for the log to answer in time. */
async function loaded(notes: Notes, ref: AggregateRef): Promise<Awaited<ReturnType<Notes['load']>>> {
  const load = async (): Promise<Awaited<ReturnType<Notes['load']>> | undefined> => {
    try {
      return await notes.load(ref);
    } catch (error) {
      if (isUnavailableError(error, 'streams')) return undefined;
      throw error;
    }
  };
  return await until('the fold is there', load, 120_000);
}

/** A reader that comes back to where it was when its tail ends. */
function tailOf(hub: TailHub, ref: AggregateRef): { readonly revs: readonly number[] } {
  const revs: number[] = [];
  const openAfter = (after: number): void => {
    let position = after;
    hub.open(ref, after, {
      write: (stored) => {
        ({ position } = stored);
        return revs.push(stored.commit.rev) > 0;
      },
      drained: async () => await Promise.resolve('taken'),
      end: (reason) => {
        if (reason === 'failed') openAfter(position);
      },
    });
  };
  openAfter(0);
  return { revs };
}

import { beforeEach, expect, test, vi } from 'vitest';
import type { SessionEvent } from '#src/domain/session/events.ts';
import { OpenTurns } from '#src/engine/open-turns.ts';
import type { OpenTurn } from '#src/engine/open-turns.ts';
import { TurnCheckpoint } from '#src/engine/turn-checkpoint.ts';
import type { StoredCommit } from '#src/streams/commit.ts';
import { JetStreamKeyValue } from '#src/streams/jetstream/key-value.ts';
import type { KeyValue } from '#src/streams/key-value.ts';
import type { AggregateRef } from '#src/streams/subjects.ts';
import { counted, ended, paused, resting, started, storedCommit } from '../support/open-turns.ts';
import { overriding } from '../support/overriding.ts';
import { seededRandom } from '../support/random.ts';
import type { Random } from '../support/random.ts';
import { useServers } from '../support/servers.ts';

/** Thousands of writes to a disk that others may be using too. */
vi.setConfig({ testTimeout: 400_000 });

const servers = useServers();
let bucket: KeyValue;
let shard = 0;

beforeEach(() => {
  const kv = servers.log.topology.buckets.snapshots;
  bucket = new JetStreamKeyValue(servers.log.connections.appends, { kv, name: 'SNAPSHOT' });
  shard++;
});

const refOf = (n: number): AggregateRef => ({ tenant: `tn_${n % 7}`, kind: 'session', id: `chat/${n}` });

/** A log in memory, of commits as they happen to sessions. */
class Happened {
  readonly commits: StoredCommit[] = [];
  readonly #open = new Map<number, { turnId: string; workerId: string | null }>();
  readonly #random: Random;

  constructor(random: Random) {
    this.#random = random;
  }

  more(count: number, sessions: number): void {
    for (let n = 0; n < count; n++) {
      const session = this.#random.int(0, sessions - 1);
      this.commits.push(storedCommit(refOf(session), this.commits.length + 1, this.#eventsOf(session)));
    }
  }

  #eventsOf(session: number): SessionEvent[] {
    const open = this.#open.get(session);
    if (open === undefined) {
      const turnId = `tu_${this.commits.length}`;
      this.#open.set(session, { turnId, workerId: null });
      return [started(turnId)];
    }
    const { turnId } = open;
    const what = this.#random.int(0, 9);
    if (what < 4) {
      this.#open.delete(session);
      return [ended(turnId)];
    }
    if (what < 6) return [{ type: 'segment.claimed', data: { turnId, epoch: 1, workerId: `wk_${what}` } }];
    return what < 8 ? [resting(turnId), paused(turnId)] : [{ type: 'segment.wanted', data: { turnId } }];
  }
}

/** What a dispatcher has in its memory, and where it has come to. */
class Reader {
  readonly turns = new OpenTurns();
  position = 0;
  readonly #happened: Happened;

  constructor(happened: Happened) {
    this.#happened = happened;
  }

  read(most = Number.POSITIVE_INFINITY): void {
    const until = Math.min(this.#happened.commits.length, this.position + most);
    for (; this.position < until; this.position++) {
      const commit = this.#happened.commits[this.position];
      if (commit !== undefined) this.turns.observe(commit);
    }
  }

  get open(): Map<string, OpenTurn> {
    const all = this.turns.nextOfSweep(Number.POSITIVE_INFINITY);
    return new Map(all.map(({ ref, watch, at }) => [ref.id, { ref, watch, at }]));
  }
}

async function taken(happened: Happened, from: KeyValue): Promise<{ reader: Reader; checkpoint: TurnCheckpoint }> {
  const checkpoint = new TurnCheckpoint(from, shard);
  const reader = new Reader(happened);
  for (const turn of (await checkpoint.take()).values()) reader.turns.restore(turn);
  reader.position = checkpoint.position;
  return { reader, checkpoint };
}

function fromTheBeginning(happened: Happened): Map<string, OpenTurn> {
  const reader = new Reader(happened);
  reader.read();
  return reader.open;
}

async function save({ reader, checkpoint }: Awaited<ReturnType<typeof taken>>): Promise<void> {
  await checkpoint.save(reader.position, reader.turns.takeChanged(), reader.turns);
}

/** Keys of the bucket below a checkpoint's, and the checkpoint itself. */
async function stored(): Promise<string[]> {
  const manager = servers.log.topology.manager;
  const subjects_filter = `$KV.SNAPSHOT.dispatcher.${shard}.>`;
  const { state } = await manager.streams.info('KV_SNAPSHOT', { subjects_filter });
  return Object.keys(state.subjects ?? {});
}

class Crash extends Error {}

/** Dies at the n-th write, before it or after it; the log goes on in all that it waits for. */
function dyingAt(n: number, isDone: boolean, between: () => void): KeyValue {
  let left = n;
  const crashing = async <T>(write: () => Promise<T>): Promise<T> => {
    between();
    left--;
    if (left === 0 && !isDone) throw new Crash();
    const result = await write();
    if (left === 0) throw new Crash();
    return result;
  };
  return overriding(bucket, {
    swap: async (...args) => await crashing(async () => await bucket.swap(...args)),
    erase: async (...args) => await crashing(async () => await bucket.erase(...args)),
  });
}

test('whatever happens, and wherever leaders die, a checkpoint and what follows it is what the whole log says', async () => {
  const random = seededRandom('checkpoints');
  const happened = new Happened(random);
  // Has read everything from the beginning.
  const whole = new Reader(happened);
  let crashes = 0;
  for (let leader = 0; leader < 40; leader++) {
    const following: { reader?: Reader } = {};
    const between = (): void => {
      happened.more(random.int(0, 40), 3_000);
      following.reader?.read(random.int(0, 40));
    };
    const dying = dyingAt(random.int(1, 40), random.int(0, 1) === 1, between);
    try {
      const now = await taken(happened, dying);
      following.reader = now.reader;
      for (let saves = 0; saves < 6; saves++) {
        happened.more(random.int(0, 9) === 0 ? 5_000 : random.int(0, 300), 3_000);
        now.reader.read();
        await save(now);
      }
    } catch (error) {
      if (!(error instanceof Crash)) throw error;
      crashes++;
    }
    const next = await taken(happened, bucket);
    next.reader.read();
    whole.read();
    expect(next.reader.open).toEqual(whole.open);
  }
  expect(crashes).toBeGreaterThan(10);
  const open = fromTheBeginning(happened).size;
  process.stdout.write(`checkpoints: ${crashes} crashes, ${happened.commits.length} commits, ${open} open\n`);
});

test('a leader that was paused in its save writes nothing that counts after another has come', async () => {
  const random = seededRandom('two leaders');
  const happened = new Happened(random);
  for (let round = 0; round < 12; round++) {
    const old = await taken(happened, bucket);
    happened.more(2_000, 3_000);
    old.reader.read();
    await save(old);
    // The first write is that by which it takes the checkpoint over.
    const at = random.int(2, 4);
    let writes = 0;
    const swap: KeyValue['swap'] = async (...args) => {
      if (++writes === at) {
        const another = await taken(happened, bucket);
        another.reader.read();
        await save(another);
      }
      return await bucket.swap(...args);
    };
    const late = await taken(happened, overriding(bucket, { swap }));
    let refusal = '';
    while (refusal === '') {
      happened.more(500, 3_000);
      late.reader.read();
      await save(late).catch((error: unknown) => (refusal = String(error)));
    }
    expect(refusal).toContain('another dispatcher');
    const next = await taken(happened, bucket);
    next.reader.read();
    expect(next.reader.open).toEqual(fromTheBeginning(happened));
  }
});

test('what is written goes with what changes, what is stored with what is open, and nothing is left behind', async () => {
  const { bucket: counting, written } = counted(bucket);
  const happened = new Happened(seededRandom('bytes'));
  const now = await taken(happened, counting);
  const position = (): number => happened.commits.length + 1;
  const add = (session: number, events: SessionEvent[]): number =>
    happened.commits.push(storedCommit(refOf(session), position(), events));
  for (let n = 0; n < 20_000; n++) add(n, [started(`tu_${n}`), resting(`tu_${n}`), paused(`tu_${n}`)]);
  now.reader.read();
  await save(now);
  const whole = written.bytes;
  expect(written.most).toBeLessThan(300_000);
  // Fifty turns begin and end for each save, beside twenty thousand that rest.
  written.bytes = 0;
  for (let second = 0; second < 300; second++) {
    for (let n = 0; n < 50; n++) add(20_000 + n, [started(`tu_${second}_${n}`)]);
    now.reader.read();
    await save(now);
    for (let n = 0; n < 50; n++) add(20_000 + n, [ended(`tu_${second}_${n}`)]);
    now.reader.read();
  }
  const perSave = written.bytes / 300;
  process.stdout.write(`checkpoint: ${whole} bytes for 20,000 turns, ${Math.round(perSave)} a save of 100 changes\n`);
  expect(perSave).toBeLessThan(whole / 50);
  // Then all of them end: what is stored goes down with them.
  for (let n = 0; n < 20_000; n++) add(n, [ended(`tu_${n}`)]);
  now.reader.read();
  for (let n = 0; n < 20; n++) {
    add(n, [started(`tu_last_${n}`)]);
    now.reader.read();
    await save(now);
  }
  expect((await stored()).length).toBeLessThan(20);
  const next = await taken(happened, bucket);
  expect(next.reader.open.size).toBe(20);
});

test('the checkpoint of the version before is left aside and removed; segments that are gone mean a fresh start', async () => {
  await bucket.put(`dispatcher.${shard}.v2`, JSON.stringify({ position: 7, open: [] }));
  const happened = new Happened(seededRandom('fresh start'));
  const first = await taken(happened, bucket);
  expect(first.checkpoint.position).toBe(0);
  expect(await bucket.get(`dispatcher.${shard}.v2`)).toBeNull();
  happened.more(500, 300);
  first.reader.read();
  await save(first);
  await bucket.erase(`dispatcher.${shard}.v3`);
  const next = await taken(happened, bucket);
  expect(next.checkpoint.position).toBe(0);
  next.reader.read();
  expect(next.reader.open).toEqual(fromTheBeginning(happened));
});

import { delay } from '../lib/backoff.ts';
import { faultPoint } from '../lib/fault-points.ts';
import type { KeyValue, KeyValueEntry } from '../streams/key-value.ts';
import { refKey } from '../streams/subjects.ts';
import type { OpenTurn, OpenTurns } from './open-turns.ts';

/**
 * Raised with the meaning of what a checkpoint holds: an older one is ignored, and the stream read from its beginning.
 */
const VERSION = 3;
/** Of one value in characters: far below what the server accepts, whatever the characters are. */
const SEGMENT_CHARS = 200_000;
/** Records that one save rewrites besides those that have changed. */
const REWRITTEN_MAX = 2_000;
/** Obsolete records may be as many as current ones, plus this many. */
const SLACK = 1_000;
const LOADS_AT_ONCE = 8;
/** A lagging replica does not have what it was promised yet. */
const MISSING_TRIES = 50;
const MISSING_MS = 100;
/**
 * Leaders that were fenced in the middle of a save, whose last writes are removed again: one may have been paused in
 * it.
 */
const FENCED_MAX = 8;

/** What makes a checkpoint valid, written last. */
interface Head {
  /** Everything up to here is in the segments. */
  readonly position: number;
  /** Counts leaders. */
  readonly epoch: number;
  /** Counts the saves of the leader. */
  readonly save: number;
  /** Names, in the order in which they apply. */
  readonly segments: readonly string[];
  /** Segments that this save has made obsolete; a crash may have left them. */
  readonly dropped: readonly string[];
  /** Saves that leaders may have started and not finished. */
  readonly fenced: readonly string[];
}

/** One value: turns as they were when it was written, and keys of turns that had ended. Written once, never changed. */
interface SegmentValue {
  readonly open: readonly OpenTurn[];
  readonly ended: readonly string[];
}

type Turns = Pick<OpenTurns, 'get' | 'size'>;

interface Segment {
  readonly name: string;
  /** Those whose newest record it has. */
  readonly keys: Set<string>;
  readonly records: number;
  readonly isFull: boolean;
}

const NO_HEAD: Head = { position: 0, epoch: 0, save: 0, segments: [], dropped: [], fenced: [] };

/**
 * The open turns of a stream up to a position, kept as a log of segments: a save appends the turns that have changed, and
 * last of all the head, which names the segments that count. The oldest segments are rewritten when too much of what is
 * stored is obsolete, and small new ones are merged, so the bytes of a save depend on what has changed, not on what is
 * open, and what has to be read is at most about twice what is open.
 *
 * One leader writes: it takes the head over under a number of its own, and its predecessor is refused from then on.
 * Segments that no head names are ignored.
 */
export class TurnCheckpoint {
  readonly #store: KeyValue;
  readonly #key: string;
  readonly #olderKey: string;
  #head = NO_HEAD;
  #revision = 0;
  #segments: Segment[] = [];
  /** The segment with the newest record of each key; an ended turn stays while an older record of it may exist. */
  #where = new Map<string, Segment>();

  constructor(store: KeyValue, shard: number) {
    this.#store = store;
    this.#key = `dispatcher.${shard}.v${VERSION}`;
    this.#olderKey = `dispatcher.${shard}.v${VERSION - 1}`;
  }

  get position(): number {
    return this.#head.position;
  }

  /**
   * Takes the checkpoint over from its last writer and returns what it holds, by key.
   * @throws Error when another leader has taken it over meanwhile
   */
  async take(): Promise<ReadonlyMap<string, OpenTurn>> {
    const entry = await this.#store.get(this.#key);
    const found = entry === null ? NO_HEAD : headOf(entry);
    const fenced = found.epoch === 0 ? [] : [...found.fenced, `${found.epoch}-${found.save + 1}`].slice(-FENCED_MAX);
    this.#revision = entry?.revision ?? 0;
    await this.#writeHead({ ...found, epoch: found.epoch + 1, save: 0, fenced });
    // What the previous version wrote is useless to this one, and names tenants that may be erased.
    if ((await this.#store.get(this.#olderKey)) !== null) await this.#store.remove(this.#olderKey);
    for (const name of [...found.dropped, ...fenced]) await this.#store.erase(`${this.#key}.${name}`);
    return (await this.#load(found.segments)) ?? (await this.#startOver());
  }

  /**
   * Brings the checkpoint up to `position`. The turns are asked for while the values are being written, and may have gone
   * on since the position was passed: each says which position it reflects.
   * @throws Error when another leader has taken the checkpoint over
   */
  async save(position: number, changed: ReadonlySet<string>, turns: Turns): Promise<void> {
    const pending = new Set(changed);
    const dropped = this.#takeIn(pending, turns);
    const save = this.#head.save + 1;
    for (let n = 0; pending.size > 0; n++) {
      const segment = await this.#write(`${this.#head.epoch}-${save}.${n}`, pending, turns);
      if (segment === null) break;
      this.#segments.push(segment);
      await faultPoint('dispatcher.segment-written');
    }
    const segments = this.#segments.map(({ name }) => name);
    await this.#writeHead({ ...this.#head, position, save, segments, dropped });
    await faultPoint('dispatcher.checkpointed');
    for (const name of dropped) await this.#store.erase(`${this.#key}.${name}`);
  }

  /** Chooses the segments that are rewritten, and adds their turns to those that have changed. Returns their names. */
  #takeIn(pending: Set<string>, turns: Turns): string[] {
    const dropped: string[] = [];
    const dissolve = (segment: Segment | undefined, isOldest: boolean): void => {
      if (segment === undefined) return;
      dropped.push(segment.name);
      for (const key of segment.keys) {
        // A turn that has ended needs no record once no older one can exist.
        if (isOldest && turns.get(key) === null && !pending.has(key)) this.#where.delete(key);
        else pending.add(key);
      }
    };
    for (let last = this.#segments.at(-1); last !== undefined; last = this.#segments.at(-1)) {
      if (last.isFull || last.records > pending.size) break;
      dissolve(this.#segments.pop(), this.#segments.length === 0);
    }
    let records = this.#segments.reduce((sum, segment) => sum + segment.records, pending.size);
    const most = 2 * pending.size + REWRITTEN_MAX;
    while (this.#segments.length > 0 && pending.size < most && records > 2 * turns.size + SLACK) {
      const oldest = this.#segments.shift();
      const before = pending.size;
      dissolve(oldest, true);
      records += pending.size - before - (oldest?.records ?? 0);
    }
    return dropped;
  }

  /** Writes as many of the pending turns as one value holds and removes them; null: none needed a record. */
  async #write(name: string, pending: Set<string>, turns: Turns): Promise<Segment | null> {
    const [open, ended]: [string[], string[]] = [[], []];
    const keys = new Set<string>();
    let chars = 0;
    for (const key of pending) {
      if (chars >= SEGMENT_CHARS) break;
      pending.delete(key);
      const turn = turns.get(key);
      const before = this.#where.get(key);
      before?.keys.delete(key);
      this.#where.delete(key);
      if (turn === null && (before === undefined || this.#segments.length === 0)) continue;
      const text = JSON.stringify(turn ?? key);
      (turn === null ? ended : open).push(text);
      chars += text.length + 1;
      keys.add(key);
    }
    if (keys.size === 0) return null;
    const segment: Segment = { name, keys, records: keys.size, isFull: chars >= SEGMENT_CHARS };
    for (const key of keys) this.#where.set(key, segment);
    const value = `{"open":[${open.join()}],"ended":[${ended.join()}]}`;
    const written = await this.#store.swap(this.#keyOf(name), value, { expected: 0 });
    if (written === null) throw new Error('another dispatcher writes the checkpoint');
    return segment;
  }

  /** Null: a segment that the head names is missing. */
  async #load(names: readonly string[]): Promise<ReadonlyMap<string, OpenTurn> | null> {
    this.#segments = [];
    this.#where = new Map();
    const turns = new Map<string, OpenTurn>();
    for (let n = 0; n < names.length; n += LOADS_AT_ONCE) {
      const some = names.slice(n, n + LOADS_AT_ONCE);
      const entries = await Promise.all(some.map(async (name) => ({ name, entry: await this.#segment(name) })));
      for (const { name, entry } of entries) {
        if (entry === null) return null;
        this.#apply(name, entry, turns);
      }
    }
    return turns;
  }

  #apply(name: string, { value }: KeyValueEntry, turns: Map<string, OpenTurn>): void {
    // Written by `#write`.
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion
    const { open, ended } = JSON.parse(value) as SegmentValue;
    const keys = new Set([...open.map(({ ref }) => refKey(ref)), ...ended]);
    const segment: Segment = { name, keys, records: keys.size, isFull: value.length >= SEGMENT_CHARS };
    for (const turn of open) turns.set(refKey(turn.ref), turn);
    for (const key of ended) turns.delete(key);
    for (const key of keys) {
      this.#where.get(key)?.keys.delete(key);
      this.#where.set(key, segment);
    }
    this.#segments.push(segment);
  }

  async #segment(name: string): Promise<KeyValueEntry | null> {
    for (let tries = 1; ; tries++) {
      const entry = await this.#store.get(this.#keyOf(name));
      if (entry !== null || tries === MISSING_TRIES) return entry;
      await delay(MISSING_MS);
    }
  }

  /** What the head names was removed by hand: everything that counts is in the stream. */
  async #startOver(): Promise<ReadonlyMap<string, OpenTurn>> {
    this.#segments = [];
    this.#where = new Map();
    await this.#writeHead({ ...this.#head, position: 0, segments: [], dropped: [] });
    await this.#store.erase(this.#key);
    return new Map();
  }

  async #writeHead(head: Head): Promise<void> {
    const revision = await this.#store.swap(this.#key, JSON.stringify(head), { expected: this.#revision });
    if (revision === null) throw new Error('another dispatcher has taken the checkpoint over');
    this.#head = head;
    this.#revision = revision;
  }

  /** Its last token lets a single key be erased: erasing is by prefix, and leaves no marker behind. */
  #keyOf(name: string): string {
    return `${this.#key}.${name}.turns`;
  }
}

function headOf(entry: KeyValueEntry): Head {
  // Written by `#writeHead`.
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion
  return JSON.parse(entry.value) as Head;
}

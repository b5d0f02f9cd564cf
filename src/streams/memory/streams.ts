import type { Clock } from '../../lib/clock.ts';
import { ofThisPart } from '../../lib/fault-points.ts';
import type { Arrival } from '../live-delivery.ts';
import { bucketOf, refKey, streamOf } from '../subjects.ts';
import type { AggregateKind, AggregateRef } from '../subjects.ts';

/** A commit as it is stored. */
export interface StoredMessage extends Arrival {
  readonly key: string;
  /** Null: what is stored is no commit that this program wrote. */
  readonly commitId: string | null;
  readonly storedAtMs: number;
}

interface NewMessage {
  readonly ref: AggregateRef;
  readonly data: Uint8Array;
  readonly commitId: string | null;
  /** Position of the newest message of the aggregate; null: whatever it is. */
  readonly expected: number | null;
}

type Listener = (message: StoredMessage) => void;

/** One stream: what it holds, in order, and the same by aggregate and by kind. */
class Stream {
  last = 0;
  all: StoredMessage[] = [];
  readonly byKey = new Map<string, StoredMessage[]>();
  readonly byKind = new Map<AggregateKind, StoredMessage[]>();

  add(message: StoredMessage): void {
    this.last = message.position;
    this.all.push(message);
    listOf(this.byKey, message.key).push(message);
    listOf(this.byKind, message.ref.kind).push(message);
  }

  remove(isWanted: (message: StoredMessage) => boolean): void {
    const kept = (message: StoredMessage): boolean => !isWanted(message);
    this.all = this.all.filter(kept);
    for (const index of [this.byKey, this.byKind] as Map<string, StoredMessage[]>[]) {
      for (const [name, messages] of index) {
        const left = messages.filter(kept);
        if (left.length === 0) index.delete(name);
        else index.set(name, left);
      }
    }
  }
}

function listOf<K, V>(map: Map<K, V[]>, key: K): V[] {
  const present = map.get(key);
  if (present !== undefined) return present;
  const made: V[] = [];
  map.set(key, made);
  return made;
}

/** The streams of a log that is in the memory of this process, shared by what has this object. */
export class MemoryStreams {
  readonly shards: number;
  readonly #clock: Clock;
  readonly #streams: readonly Stream[];
  readonly #listeners = new Set<Listener>();
  #arrivals: StoredMessage[] = [];

  constructor(shards: number, clock: Clock) {
    this.shards = shards;
    this.#clock = clock;
    this.#streams = Array.from({ length: shards }, () => new Stream());
  }

  shardOf(ref: AggregateRef): number {
    return this.shards === 1 ? 0 : streamOf(bucketOf(ref), this.shards);
  }

  /** The position of the stored message, or null when the expectation does not hold. */
  publish({ ref, data, commitId, expected }: NewMessage): number | null {
    const shard = this.shardOf(ref);
    const stream = this.#stream(shard);
    const key = refKey(ref);
    const previous = stream.byKey.get(key)?.at(-1)?.position ?? 0;
    if (expected !== null && expected !== previous) return null;
    const message = { ref, key, data, commitId, shard, position: stream.last + 1, previous, storedAtMs: this.#clock() };
    stream.add(message);
    this.#arrivals.push(message);
    // Listeners are called as they are by a server: in order, later, and all with what had arrived by then.
    if (this.#arrivals.length === 1) setImmediate(() => this.#flush());
    return message.position;
  }

  /** Of one aggregate, in order, those after a position. */
  of(ref: AggregateRef, after: number): readonly StoredMessage[] {
    const messages = this.#stream(this.shardOf(ref)).byKey.get(refKey(ref)) ?? [];
    return messages.slice(firstAfter(messages, after));
  }

  /** Of a stream, in order, those of these kinds after a position, at most `most`. */
  after(
    shard: number,
    kinds: readonly AggregateKind[] | 'all',
    { position, most }: { readonly position: number; readonly most: number },
  ): readonly StoredMessage[] {
    const { all } = this.#stream(shard);
    const found: StoredMessage[] = [];
    for (let at = firstAfter(all, position); at < all.length && found.length < most; at++) {
      const message = all[at];
      if (message !== undefined && (kinds === 'all' || kinds.includes(message.ref.kind))) found.push(message);
    }
    return found;
  }

  newest(shard: number, kinds: readonly AggregateKind[] | 'all'): number {
    const { all, byKind } = this.#stream(shard);
    if (kinds === 'all') return all.at(-1)?.position ?? 0;
    return Math.max(0, ...kinds.map((kind) => byKind.get(kind)?.at(-1)?.position ?? 0));
  }

  /** For good. */
  remove(shard: number, isWanted: (message: StoredMessage) => boolean): void {
    this.#stream(shard).remove(isWanted);
  }

  /** Returns the function that stops listening. */
  listen(listener: Listener): () => void {
    const own = ofThisPart(listener);
    this.#listeners.add(own);
    return () => this.#listeners.delete(own);
  }

  size(shard: number): { readonly commits: number; readonly subjects: number; readonly bytes: number } {
    const { all, byKey } = this.#stream(shard);
    return { commits: all.length, subjects: byKey.size, bytes: all.reduce((sum, { data }) => sum + data.length, 0) };
  }

  #flush(): void {
    const arrivals = this.#arrivals;
    this.#arrivals = [];
    for (const message of arrivals) for (const listener of this.#listeners) listener(message);
  }

  #stream(shard: number): Stream {
    const stream = this.#streams[shard];
    if (stream === undefined) throw new Error(`there is no stream ${shard}`);
    return stream;
  }
}

/** Index of the first message after a position. */
function firstAfter(messages: readonly StoredMessage[], position: number): number {
  let [low, high] = [0, messages.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((messages[middle]?.position ?? 0) <= position) low = middle + 1;
    else high = middle;
  }
  return low;
}

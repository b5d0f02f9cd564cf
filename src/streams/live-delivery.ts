import type { StoredCommit } from './commit.ts';
import type { LiveCommit, LiveListener } from './event-store.ts';
import { ErasedCommitError } from './sealed-codec.ts';
import type { CommitCodec } from './sealed-codec.ts';
import { refKey } from './subjects.ts';
import type { AggregateRef } from './subjects.ts';

/** Commits that may wait for a key before listeners have to read the log instead. */
const HELD_MAX = 1_000;

/** A commit as it was stored, on its way to this node's listeners. */
export interface Arrival {
  readonly ref: AggregateRef;
  readonly shard: number;
  readonly position: number;
  /** Position of the commit before it in the same aggregate; 0 = it is the first. */
  readonly previous: number;
  readonly data: Uint8Array;
}

/** Hands what arrives at a node to its listeners, in order, each commit decoded once for all of them. */
export class LiveDelivery {
  readonly #listeners = new Set<LiveListener>();
  readonly #codec: CommitCodec;
  /** What arrived while the key of the first is being asked for. */
  #held: Arrival[] = [];

  constructor(codec: CommitCodec) {
    this.#codec = codec;
  }

  listen(listener: LiveListener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  take(arrival: Arrival): void {
    if (this.#held.length > 0 || !this.#codec.isReady(arrival.data)) this.#hold(arrival);
    else this.#deliver(arrival);
  }

  disrupted(): void {
    for (const listener of this.#listeners) listener.onDisruption();
  }

  stop(): void {
    this.#listeners.clear();
    this.#held = [];
  }

  /** The first commit of a new tenant may outrun the news of its key; what comes after it waits with it. */
  #hold(arrival: Arrival): void {
    if (this.#held.length >= HELD_MAX) {
      this.#held = [];
      this.disrupted();
      return;
    }
    if (this.#held.push(arrival) === 1) void this.#release(this.#held);
  }

  async #release(held: readonly Arrival[]): Promise<void> {
    for (const arrival of held) {
      const isReady = await this.#prepared(arrival);
      if (held !== this.#held) return;
      // Without its key it would be taken for broken; left out, it is a gap, and readers that need it read the log.
      if (isReady) this.#deliver(arrival);
    }
    this.#held = [];
  }

  async #prepared({ ref, data }: Arrival): Promise<boolean> {
    if (this.#codec.isReady(data)) return true;
    try {
      await this.#codec.prepare(ref, data);
      return true;
    } catch {
      return false;
    }
  }

  #deliver(arrival: Arrival): void {
    const commit = this.#liveCommit(arrival);
    for (const listener of this.#listeners) {
      try {
        listener.onCommit(commit);
      } catch (error) {
        if (error instanceof ErasedCommitError) continue;
        // Thrown at the sender, it would end the feed for all. The log says what the listener could not take.
        listener.onDisruption();
      }
    }
  }

  #liveCommit({ ref, shard, position, previous, data }: Arrival): LiveCommit {
    const codec = this.#codec;
    let stored: StoredCommit | null = null;
    return {
      ...{ ref, key: refKey(ref), shard, position, previous, bytes: data.length, data },
      stored: () => (stored ??= { ref, shard, position, ...codec.decode(ref, data) }),
    };
  }
}

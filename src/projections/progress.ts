import type { DatabasePool } from 'slonik';
import { delay } from '../lib/backoff.ts';
import { readCheckpoint } from './checkpoint.ts';
import { reading } from './read-store/pool.ts';

/** A freshness wait gives up after this, ms. */
export const FRESH_WITHIN_MS = 2_000;
/** A database that has not answered for this long is stalled: no caller waits for another poll until it has, ms. */
const STILL_MS = 2_000;
/** A poll of the checkpoint makes up for a missed announcement, ms. */
const POLL_MS = 250;

/** How far the read models of the whole installation have come, as their projectors announce it. */
export class ProjectionProgress {
  readonly #positions = new Map<string, number>();
  readonly #waiting = new Set<{ key: string; position: number; resolve: () => void }>();
  readonly #pool: DatabasePool;
  readonly #onPoll: () => void;
  readonly #onWait: (awaited: { schema: string; shard: number }) => void;
  /** Polls in progress: callers share them, so that a late projector costs one statement at a time. */
  readonly #polls = new Map<string, Promise<number | null>>();
  /** Polls that have not been answered for too long. */
  #still = 0;

  /**
   * @param onPoll no announcement came in time, and the checkpoint is read
   * @param onWait somebody waits for rows, and their projector is to hurry
   */
  constructor(
    pool: DatabasePool,
    onPoll: () => void = () => undefined,
    onWait: (awaited: { schema: string; shard: number }) => void = () => undefined,
  ) {
    this.#pool = pool;
    this.#onPoll = onPoll;
    this.#onWait = onWait;
  }

  /**
   * An announcement, from this process or another. The newest counts, even if it is lower than the one before: the
   * database may have been dropped, and a position that seems too low is polled.
   */
  reached({ schema, shard, position }: { schema: string; shard: number; position: number }): void {
    const key = `${schema}.${shard}`;
    this.#positions.set(key, position);
    for (const waiter of this.#waiting) {
      if (waiter.key === key && waiter.position <= position) waiter.resolve();
    }
  }

  /** Resolves to whether the group's rows reach a position, within the bound at the latest; never throws. */
  async reach(schema: string, shard: number, position: number, withinMs = FRESH_WITHIN_MS): Promise<boolean> {
    const key = `${schema}.${shard}`;
    const done = (): boolean => (this.#positions.get(key) ?? 0) >= position;
    const deadline = performance.now() + withinMs;
    while (!done() && performance.now() < deadline) {
      this.#onWait({ schema, shard });
      await this.#announced(key, position, Math.min(POLL_MS, deadline - performance.now()));
      if (done()) return true;
      if (this.#still > 0) return done();
      const seen = await this.#poll(schema, shard, deadline);
      // The database is unavailable: the caller's write is in the log anyway, only reading it back is late.
      if (seen === null) return done();
      this.reached({ schema, shard, position: seen });
    }
    return done();
  }

  /** Null: the database does not answer, or not in time. */
  async #poll(schema: string, shard: number, deadline: number): Promise<number | null> {
    const answered = new AbortController();
    const poll = this.#shared(schema, shard);
    const late = delay(Math.max(0, deadline - performance.now()), answered.signal).then(() => null);
    const seen = await Promise.race([poll, late]);
    answered.abort();
    return seen;
  }

  async #shared(schema: string, shard: number): Promise<number | null> {
    const key = `${schema}.${shard}`;
    const underWay = this.#polls.get(key);
    if (underWay !== undefined) return await underWay;
    this.#onPoll();
    const poll = this.#asked(schema, shard).finally(() => this.#polls.delete(key));
    this.#polls.set(key, poll);
    return await poll;
  }

  async #asked(schema: string, shard: number): Promise<number | null> {
    let isStill = false;
    const timer = setTimeout(() => {
      isStill = true;
      this.#still++;
    }, STILL_MS);
    try {
      return await reading(async () => await readCheckpoint(this.#pool, schema, shard));
    } catch {
      return null;
    } finally {
      clearTimeout(timer);
      if (isStill) this.#still--;
    }
  }

  async #announced(key: string, position: number, withinMs: number): Promise<void> {
    await new Promise<void>((resolve) => {
      const waiter = {
        key,
        position,
        resolve: (): void => {
          clearTimeout(timer);
          this.#waiting.delete(waiter);
          resolve();
        },
      };
      const timer = setTimeout(waiter.resolve, withinMs);
      this.#waiting.add(waiter);
    });
  }
}

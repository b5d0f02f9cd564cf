import { WeightedLru } from '../lib/lru.ts';
import type { Commit } from './commit.ts';
import { refKey } from './subjects.ts';
import type { AggregateRef } from './subjects.ts';

interface Encoded {
  readonly commit: Commit;
  readonly hash: string;
}

interface Own extends Encoded {
  readonly key: string;
  readonly bytes: Uint8Array;
}

/** Bytes kept of commits that have not come back: an append may fail, and the live feed may miss one. */
const CAPACITY = 16 * 1_048_576;
/** Memory per commit byte, roughly. */
const TIMES = 3;

/**
 * Commits that this process has encoded, for when they come back by its own live feed a moment later: identical bytes
 * need not be opened, hashed and parsed again. Each is given back once.
 */
export class OwnCommits {
  readonly #own = new WeightedLru<Own>(CAPACITY);

  remember(ref: AggregateRef, bytes: Uint8Array, { commit, hash }: Encoded): void {
    this.#own.set(nameOf(ref, bytes), { key: refKey(ref), bytes, commit, hash }, bytes.length * TIMES);
  }

  /** What was encoded as exactly these bytes, for exactly this aggregate; null: none remembered. */
  take(ref: AggregateRef, bytes: Uint8Array): Encoded | null {
    const name = nameOf(ref, bytes);
    const own = this.#own.peek(name);
    if (own === undefined || own.key !== refKey(ref) || Buffer.compare(own.bytes, bytes) !== 0) return null;
    this.#own.delete(name);
    return own;
  }

  forget(tenant: string): void {
    this.#own.deleteWhere((name) => name.startsWith(`${tenant} `));
  }
}

/** Sealed bytes begin with their mark, the id of the key, and a nonce that is never used twice. */
const HEAD_BYTES = 21;

function nameOf({ tenant }: AggregateRef, bytes: Uint8Array): string {
  const head = Buffer.from(bytes.buffer, bytes.byteOffset, Math.min(HEAD_BYTES, bytes.length));
  return `${tenant} ${head.toString('latin1')}`;
}

import type { Readable } from 'node:stream';

/**
 * Where an object is stored: in its tenant's part of the store, under its owner. Each part consists of letters, digits,
 * `_` and `-`, 128 at most. Sharing ends at the owner, so that removing an owner takes nothing from any other
 * (docs/decisions/0012).
 */
export interface ObjectAddress {
  readonly tenant: string;
  readonly owner: string;
  readonly name: string;
}

export interface StoredObject extends ObjectAddress {
  readonly bytes: number;
  /** When it was written last, ms since the epoch, by the store's clock. */
  readonly modifiedAtMs: number;
}

/** A part of an object, both ends included, bytes from 0. */
export interface ByteRange {
  readonly first: number;
  readonly last: number;
}

export interface PutOptions {
  /** Ends the write; nothing of it becomes visible. */
  readonly signal?: AbortSignal;
  /** The expected length, bytes; absent: not known. A store may reserve less memory for a short one. */
  readonly declaredBytes?: number;
}

/**
 * Bytes. Guarantees, checked by test/conformance/objects.ts:
 * - `put` makes an object visible whole or not at all, and durable before it resolves; it holds a few MiB in memory
 *   however long the source is, and reads no faster than it can write.
 * - an object under an existing address replaces its predecessor, for readers that come later. - removing what does not
 * exist is not an error.
 * @throws UnavailableError (objects) from every operation that the store does not carry out
 */
export interface ObjectStore {
  /** Cheap; resolves when the store can be written to. */
  check(): Promise<void>;
  /** Returns how many bytes the source had. An error of the source is thrown as it is. */
  put(address: ObjectAddress, source: AsyncIterable<Uint8Array>, options?: PutOptions): Promise<number>;
  /** The bytes, or those of a range that lies within the object; null: no such object. */
  open(address: ObjectAddress, range?: ByteRange): Promise<Readable | null>;
  /** Removes everything of an owner. */
  removeOwner(tenant: string, owner: string): Promise<void>;
  remove(address: ObjectAddress): Promise<void>;
  /** Everything that is visible, of all tenants and nothing else, in pages of at most 1,000, in no order. */
  list(): AsyncIterable<readonly StoredObject[]>;
  /**
   * Removes what interrupted writes left behind, if it is older than a time (ms since the epoch). Returns how much it
   * was.
   */
  removeUnfinished(beforeMs: number): Promise<number>;
  /** Removes everything of a tenant, unfinished writes too. */
  eraseTenant(tenant: string): Promise<void>;
}

const PART = /^[A-Za-z0-9_-]{1,128}$/;
/** As the kernel makes and checks tenant ids. */
const TENANT = /^tn_[0-9a-hjkmnp-tv-z]{26}$/;

/** The parts of an address, of an owner or of a tenant as a path. @throws when one could mean another place */
export function pathOf(...parts: readonly string[]): string {
  for (const part of parts) if (!PART.test(part)) throw new Error('a part of an object address is malformed');
  return parts.join('/');
}

/** What a path addresses; null when it is not the Host's: a bucket may be shared with others. */
export function addressOf(path: string): ObjectAddress | null {
  const [tenant, owner, name, ...rest] = path.split('/');
  if (tenant === undefined || owner === undefined || name === undefined || rest.length > 0) return null;
  const isOurs = TENANT.test(tenant) && PART.test(owner) && PART.test(name);
  return isOurs ? { tenant, owner, name } : null;
}

import { createHmac, createSecretKey } from 'node:crypto';
import type { KeyObject } from 'node:crypto';
import { NONCE_BYTES, seal } from '../lib/sealed-box.ts';
import type { Codec } from './codec.ts';
import type { Commit, StoredCommit } from './commit.ts';
import type { DataKey } from './data-keys.ts';
import type { Keyring } from './keyring.ts';
import { isSealed, sealedPrefix, TenantErasedError } from './sealed-bytes.ts';
import { commitContext } from './sealed-codec.ts';
import { boundTo } from './wrapped-keys.ts';
import type { AggregateRef } from './subjects.ts';

/** A commit to project, with its bytes in the log where they are at hand. */
export interface ProjectedCommit extends StoredCommit {
  readonly bytes?: Uint8Array | undefined;
}

/** What a tenant's data key gives to seal and hash its rows with. */
interface RowKey {
  /** For digests and nonces. */
  readonly mac: KeyObject;
  readonly prefix: Uint8Array;
}

/** What it needs of the tenants' data keys. */
export type RowKeys = Pick<Keyring, 'held' | 'obtain' | 'knows' | 'fetch' | 'open'>;

const DIGEST_CHARS = 22;

/**
 * Seals what rows of read models hold of a tenant with its data key, so that destroying the key destroys every copy:
 * dead rows in pages, samples, the write-ahead log, backups of the database.
 *
 * The same text in the same place gives the same bytes: rebuilt rows come out equal, and an audit compares them as they
 * are. The nonce is a keyed hash of place and text; two different texts share one as rarely as two random nonces are
 * equal.
 *
 * `prepare` and `fetch` ask for keys; everything else is synchronous.
 */
export class RowSeals {
  readonly #keyring: RowKeys;
  readonly #codec: Codec;
  readonly #keys = new WeakMap<KeyObject, RowKey>();

  constructor(keyring: RowKeys, codec: Codec) {
    this.#keyring = keyring;
    this.#codec = codec;
  }

  /** Makes the keys of these tenants known here. An erased one has none. @throws SealBrokenError, UnavailableError (streams) */
  async prepare(tenants: Iterable<string>): Promise<void> {
    for (const tenant of new Set(tenants)) {
      if (this.#keyring.held(tenant) === null) await this.#obtain(tenant);
    }
  }

  async #obtain(tenant: string): Promise<void> {
    try {
      await this.#keyring.obtain(tenant);
    } catch (error) {
      if (!(error instanceof TenantErasedError)) throw error;
    }
  }

  /** Null: the tenant is erased, nothing of it may be written any more. */
  seal(tenant: string, context: string, plain: Uint8Array): Buffer<ArrayBuffer> | null {
    const data = this.#keyring.held(tenant);
    if (data === null) return null;
    const { mac, prefix } = this.#rowKey(data);
    const nonce = createHmac('sha256', mac)
      .update(`nonce ${context}\0`)
      .update(plain)
      .digest()
      .subarray(0, NONCE_BYTES);
    return seal(data.key, plain, { context: boundTo(tenant, context), prefix, nonce });
  }

  /**
   * A name for a text that only this tenant's rows use: filters compare it, and it says nothing without the key. Empty
   * for an erased tenant.
   */
  digest(tenant: string, text: string): string {
    const data = this.#keyring.held(tenant);
    if (data === null) return '';
    const { mac } = this.#rowKey(data);
    return createHmac('sha256', mac).update(`digest ${text}`).digest('base64url').slice(0, DIGEST_CHARS);
  }

  /** What was sealed; null: its tenant is erased. @throws SealBrokenError, UnavailableError (streams) */
  async open(tenant: string, context: string, sealed: Uint8Array): Promise<Buffer | null> {
    if (!this.#keyring.knows(sealed)) await this.#keyring.fetch(tenant, sealed);
    const plain = this.#keyring.open(tenant, context, sealed);
    return plain === 'erased' ? null : plain;
  }

  /** A commit for a row: the log's own bytes, or those it would hold. Null: the tenant is erased. */
  sealedCommit({ ref, commit, bytes }: ProjectedCommit): Uint8Array | null {
    if (bytes !== undefined && isSealed(bytes)) return bytes;
    return this.seal(ref.tenant, commitContext(ref), this.#codec.encode(commit));
  }

  /** @throws UndecodableCommitError, SealBrokenError, UnavailableError (streams) */
  async openCommit(ref: AggregateRef, sealed: Uint8Array): Promise<Commit | null> {
    const plain = await this.open(ref.tenant, commitContext(ref), sealed);
    return plain === null ? null : this.#codec.decode(plain);
  }

  #rowKey({ id, key }: DataKey): RowKey {
    const known = this.#keys.get(key);
    if (known !== undefined) return known;
    const mac = createSecretKey(createHmac('sha256', key).update('rows of read models').digest());
    const made = { mac, prefix: sealedPrefix(id) };
    this.#keys.set(key, made);
    return made;
  }
}

import type { KeyObject } from 'node:crypto';
import { sha256Hex } from '../lib/hash.ts';
import type { Logger } from '../lib/logger.ts';
import { DataKeys } from './data-keys.ts';
import type { DataKey, Erasure } from './data-keys.ts';
import { checkHostKey } from './host-key-check.ts';
import type { KeyValue, KeyValueChange } from './key-value.ts';
import { SealBrokenError, TenantErasedError } from './sealed-bytes.ts';
import { keyEntry, parseWrapped, tenantOf } from './wrapped-keys.ts';

export interface KeyringOptions {
  /** The bucket `SECRETS`, read from the leader. */
  readonly bucket: KeyValue;
  /** The Host's key (KEK): it wraps the data keys and seals nothing else. */
  readonly hostKey: KeyObject;
  /** The Host's earlier keys: they open what they wrapped, and wrap nothing. */
  readonly earlierHostKeys?: readonly KeyObject[] | undefined;
  readonly logger: Logger;
}

const SWAPS_MAX = 20;

/**
 * Data keys of tenants. Each tenant has one, made before its first commit is stored; everything of the tenant that can
 * be sealed is sealed with it, so that destroying one entry of one bucket erases the tenant wherever bytes of it are
 * left: old blocks of a stream, replicas, backups (docs/decisions/0009).
 *
 * Every process holds all data keys in memory, by watching the bucket. The watch is a cache: what it has not brought yet
 * is asked for. An erased key is known by the tombstone that is written before it is destroyed, so "erased" and
 * "missing" are never confused.
 */
export class Keyring {
  readonly #bucket: KeyValue;
  readonly #hostKeys: readonly [KeyObject, ...KeyObject[]];
  readonly #keys: DataKeys;
  readonly #stop = new AbortController();
  readonly #making = new Map<string, Promise<DataKey>>();

  constructor({ bucket, hostKey, earlierHostKeys = [], logger }: KeyringOptions) {
    this.#bucket = bucket;
    this.#hostKeys = [hostKey, ...earlierHostKeys];
    this.#keys = new DataKeys(this.#hostKeys, logger);
  }

  /**
   * Resolves once every key in the bucket is known here.
   * @throws WrongHostKeyError when the installation was made with another Host key
   */
  async start(): Promise<void> {
    await checkHostKey(this.#bucket, this.#hostKeys);
    const { signal } = this.#stop;
    // In this order: a key whose tombstone exists is never taken for live.
    await this.#bucket.watch('erased', (change) => this.#takeErasure(change), signal);
    await this.#bucket.watch('key', (change) => this.#takeKey(change), signal);
  }

  stop(): void {
    this.#stop.abort();
  }

  /** Calls back when a tenant's key has been destroyed, on any node. Returns the function that ends it. */
  onErased(listener: (tenant: string) => void): () => void {
    return this.#keys.onErased(listener);
  }

  /** Tenants whose keys are destroyed and whose deletion has steps left. */
  get unfinished(): readonly string[] {
    return this.#keys.unfinished;
  }

  /**
   * The data key of a tenant. None is made here: a second key for a tenant whose key has been lost would hide the loss.
   * @throws TenantErasedError, SealBrokenError when there is none
   */
  async obtain(tenant: string): Promise<DataKey> {
    return this.#keys.of(tenant) ?? (await this.#once(tenant, async () => await this.#load(tenant)));
  }

  /**
   * Makes a new tenant's data key, unless it has one; even if a deleted tenant had the same id.
   * @throws TenantErasedError until that tenant's deletion is finished
   */
  async create(tenant: string): Promise<void> {
    // Not from memory: what is there may be the key of an earlier tenant, whose end this process has not heard of yet.
    await this.#once(tenant, async () => await this.#make(tenant));
  }

  /**
   * Destroys the data key of a tenant: writes the tombstone, then overwrites the wrapped key where it is stored. Safe to
   * repeat. From here on nothing that was sealed for the tenant opens on a node that has heard of it.
   */
  async destroy(tenant: string): Promise<void> {
    const present = await this.#bucket.get(keyEntry(tenant));
    const id = present === null ? [] : [parseWrapped(present.value).id];
    await this.#writeTombstone(tenant, id, tenant);
    await this.#bucket.shred(keyEntry(tenant));
  }

  /** The last step of a tenant's deletion: a new tenant may take the id. */
  async finish(tenant: string): Promise<void> {
    await this.#writeTombstone(tenant, [], null);
  }

  /** Seals a text for one place in what belongs to a tenant. @throws TenantErasedError */
  async sealText(tenant: string, context: string, text: string): Promise<string> {
    await this.obtain(tenant);
    const sealed = this.seal(tenant, context, Buffer.from(text));
    if (sealed === null) throw new TenantErasedError(`the tenant ${tenant} has been erased`);
    return sealed.toString('base64');
  }

  /** The text, or null when its tenant has been erased. @throws SealBrokenError */
  async openText(tenant: string, context: string, sealed: string): Promise<string | null> {
    const bytes = Buffer.from(sealed, 'base64');
    await this.fetch(tenant, bytes);
    const opened = this.open(tenant, context, bytes);
    return opened === 'erased' ? null : opened.toString();
  }

  /** The data key of a tenant as far as this process has it (`obtain` gets it). */
  held(tenant: string): DataKey | null {
    return this.#keys.of(tenant) ?? null;
  }

  /** Seals bytes with the tenant's key; null when this process does not have it (`obtain` gets it). */
  seal(tenant: string, context: string, plain: Uint8Array): Buffer<ArrayBuffer> | null {
    return this.#keys.seal(tenant, context, plain);
  }

  /** Opens what `seal` made. @throws SealBrokenError, also when the key is not in memory (`fetch` gets it) */
  open(tenant: string, context: string, sealed: Uint8Array): Buffer | 'erased' {
    return this.#keys.open(tenant, context, sealed);
  }

  /** Whether `open` can tell what the bytes are. */
  knows(sealed: Uint8Array): boolean {
    return this.#keys.knows(sealed);
  }

  /** Asks the bucket for the key that sealed the bytes, if it is not in memory. The bucket may not have it either. */
  async fetch(tenant: string, sealed: Uint8Array): Promise<void> {
    if (this.knows(sealed)) return;
    const entry = await this.#bucket.get(keyEntry(tenant));
    if (entry !== null) this.#keys.take(tenant, entry.value);
    if (this.knows(sealed)) return;
    await this.#erasure(tenant);
  }

  /** One request at a time for each tenant. */
  async #once(tenant: string, load: () => Promise<DataKey>): Promise<DataKey> {
    const running = this.#making.get(tenant);
    if (running !== undefined) return await running;
    const mine = load().finally(() => this.#making.delete(tenant));
    this.#making.set(tenant, mine);
    return await mine;
  }

  async #load(tenant: string): Promise<DataKey> {
    const present = await this.#present(tenant);
    if (present !== null) return present;
    if ((await this.#erasure(tenant)) !== null) throw new TenantErasedError(`the tenant ${tenant} has been erased`);
    throw new SealBrokenError(`the data key of tenant ${tenant} is missing`);
  }

  /** The first writer of the entry wins; all read what is there. */
  async #make(tenant: string): Promise<DataKey> {
    for (let attempt = 0; attempt < SWAPS_MAX; attempt++) {
      const present = await this.#present(tenant);
      if (present !== null) return present;
      if (((await this.#erasure(tenant))?.tenant ?? null) !== null) {
        throw new TenantErasedError(`the tenant ${tenant} is being erased`);
      }
      const made = this.#keys.wrapped(tenant);
      if ((await this.#bucket.swap(keyEntry(tenant), made, { expected: 0 })) === null) continue;
      const key = this.#keys.take(tenant, made);
      if (key !== undefined) return key;
    }
    throw new SealBrokenError(`the data key of tenant ${tenant} comes and goes`);
  }

  async #present(tenant: string): Promise<DataKey | null> {
    const present = await this.#bucket.get(keyEntry(tenant));
    if (present === null) return null;
    const known = this.#keys.take(tenant, present.value);
    if (known !== undefined || this.#keys.isErased(present.value)) return known ?? null;
    throw new SealBrokenError(`the data key of tenant ${tenant} does not open with the Host key`);
  }

  async #erasure(tenant: string): Promise<Erasure | null> {
    const entry = await this.#bucket.get(erasedEntry(tenant));
    if (entry === null) return null;
    const erasure = parseErasure(entry.value);
    this.#keys.applyTombstone(entry.key, erasure);
    return erasure;
  }

  #takeKey(change: KeyValueChange): void {
    if (change.kind === 'put') this.#keys.take(tenantOf(change.entry.key), change.entry.value);
  }

  #takeErasure(change: KeyValueChange): void {
    if (change.kind === 'put') this.#keys.applyTombstone(change.entry.key, parseErasure(change.entry.value));
  }

  /** Adds to the tombstone of a tenant. */
  async #writeTombstone(tenant: string, ids: readonly string[], left: string | null): Promise<void> {
    for (let attempt = 0; attempt < SWAPS_MAX; attempt++) {
      const present = await this.#bucket.get(erasedEntry(tenant));
      const before = present === null ? [] : parseErasure(present.value).keys;
      const erasure: Erasure = { keys: [...new Set([...before, ...ids])], tenant: left };
      const options = { expected: present?.revision ?? 0 };
      if ((await this.#bucket.swap(erasedEntry(tenant), JSON.stringify(erasure), options)) === null) continue;
      this.#keys.applyTombstone(erasedEntry(tenant), erasure);
      return;
    }
    throw new Error(`the tombstone of tenant ${tenant} could not be written`);
  }
}

function erasedEntry(tenant: string): string {
  return `erased.${sha256Hex(tenant)}`;
}

function parseErasure(text: string): Erasure {
  // Written by `#writeTombstone`.
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion
  return JSON.parse(text) as Erasure;
}

import { randomBytes } from 'node:crypto';
import type { KeyObject } from 'node:crypto';
import { UnavailableError } from '../lib/unavailable.ts';
import type { Logger } from '../lib/logger.ts';
import { delay } from '../lib/backoff.ts';
import { sha256Hex } from '../lib/hash.ts';
import { KEY_BYTES, open, seal, sealingKey } from '../lib/sealed-box.ts';
import type { KeyValue, KeyValueChange } from './key-value.ts';
import {
  boundTo,
  HOST_KEY_CHECK,
  hostKeyCheck,
  isHostKeyOf,
  keyEntry,
  parseWrapped,
  tenantOf,
  unwrapped,
  wrappedBy,
} from './wrapped-keys.ts';

/** The Host's key does not open what this installation was sealed with. */
export class WrongHostKeyError extends Error {}

/** The tenant's data key was destroyed: what it sealed is gone for good, and nothing new is sealed for this tenant. */
export class TenantErasedError extends Error {}

/**
 * Sealed bytes that do not open: they, their place or their key are not what they were, or the key of a living tenant is
 * missing. Never the normal course of things.
 */
export class SealBrokenError extends Error {}

export interface DataKey {
  /** 16 hex digits; sealed bytes name their key by it. */
  readonly id: string;
  readonly key: KeyObject;
}

interface HeldKey extends DataKey {
  readonly tenant: string;
  /** What goes before the bytes that it seals. */
  readonly prefix: Uint8Array;
}

export interface KeyringOptions {
  /** The bucket `SECRETS`, read from the leader. */
  readonly bucket: KeyValue;
  /** The Host's key (KEK): it wraps the data keys and seals nothing else. */
  readonly hostKey: KeyObject;
  /** Keys that were the Host's before: they open what they have wrapped, and wrap nothing. */
  readonly earlierHostKeys?: readonly KeyObject[] | undefined;
  readonly logger: Logger;
}

/** What `erased.<digest of the tenant>` holds. It names keys that have been destroyed, and stays. */
interface Erasure {
  readonly keys: readonly string[];
  /** The tenant, while its deletion has steps left to do; null: it is gone, and so is its name here. */
  readonly tenant: string | null;
}

const SWAPS_MAX = 20;
const SWAP_PAUSE_MS = 50;
const KEY_ID_BYTES = 8;
/** First byte of sealed bytes; JSON never begins with it. */
export const SEALED_MARK = 0xa1;
/** Before the box stand the mark and the id of its key. */
export const SEALED_PREFIX_BYTES = 1 + KEY_ID_BYTES;

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
  readonly #hostKey: KeyObject;
  readonly #hostKeys: readonly KeyObject[];
  readonly #logger: Logger;
  readonly #stop = new AbortController();
  readonly #byTenant = new Map<string, HeldKey>();
  readonly #byId = new Map<string, HeldKey>();
  readonly #erased = new Map<string, Erasure>();
  readonly #erasedIds = new Set<string>();
  readonly #making = new Map<string, Promise<DataKey>>();
  readonly #listeners = new Set<(tenant: string) => void>();

  constructor({ bucket, hostKey, earlierHostKeys = [], logger }: KeyringOptions) {
    this.#bucket = bucket;
    this.#hostKey = hostKey;
    this.#hostKeys = [hostKey, ...earlierHostKeys];
    this.#logger = logger;
  }

  /**
   * Resolves once every key in the bucket is known here.
   * @throws WrongHostKeyError when the installation was made with another Host key
   */
  async start(): Promise<void> {
    await this.#checkHostKey();
    const { signal } = this.#stop;
    // In this order: a key is never taken for living when its tombstone is there.
    await this.#bucket.watch('erased', (change) => this.#takeErasure(change), signal);
    await this.#bucket.watch('key', (change) => this.#takeKey(change), signal);
  }

  stop(): void {
    this.#stop.abort();
  }

  /** Calls back when a tenant's key has been destroyed, on whatever node. Returns the function that ends it. */
  onErased(listener: (tenant: string) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Tenants whose keys are destroyed and whose deletion has steps left to do. */
  get unfinished(): readonly string[] {
    return [...this.#erased.values()].flatMap(({ tenant }) => (tenant === null ? [] : [tenant]));
  }

  /**
   * The data key of a tenant. None is made here: a second key for a tenant whose key has been lost would hide the loss.
   * @throws TenantErasedError, SealBrokenError when there is none
   */
  async obtain(tenant: string): Promise<DataKey> {
    return this.#byTenant.get(tenant) ?? (await this.#once(tenant, async () => await this.#load(tenant)));
  }

  /**
   * Makes the data key of a tenant that begins, unless it has one; also where a deleted one had the same id.
   * @throws TenantErasedError while the deletion of that one is not finished
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

  /** The last step of a tenant's deletion: a new tenant may have the id. */
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
    return this.#byTenant.get(tenant) ?? null;
  }

  /** Seals bytes with the tenant's key; null when this process does not have it (`obtain` gets it). */
  seal(tenant: string, context: string, plain: Uint8Array): Buffer<ArrayBuffer> | null {
    const own = this.#byTenant.get(tenant);
    if (own === undefined) return null;
    return seal(own.key, plain, { context: boundTo(tenant, context), prefix: own.prefix });
  }

  /** Opens what `seal` gave. @throws SealBrokenError, also when the key is not in memory (`fetch` gets it) */
  open(tenant: string, context: string, sealed: Uint8Array): Buffer | 'erased' {
    if (!isSealed(sealed)) throw new SealBrokenError(`what is stored for tenant ${tenant} is not sealed`);
    const id = keyIdOf(sealed);
    const key = this.#byId.get(id);
    if (key === undefined) {
      if (this.#erasedIds.has(id)) return 'erased';
      throw new SealBrokenError(`the data key ${id} of tenant ${tenant} is missing`);
    }
    const plain = open(key.key, sealed.subarray(SEALED_PREFIX_BYTES), boundTo(tenant, context));
    if (plain === null)
      throw new SealBrokenError(`what is sealed for tenant ${tenant} does not open: it was changed or moved`);
    return plain;
  }

  /** Whether `open` has what it needs to say what the bytes are. */
  knows(sealed: Uint8Array): boolean {
    const id = keyIdOf(sealed);
    return this.#byId.has(id) || this.#erasedIds.has(id);
  }

  /** Asks the bucket for the key that sealed the bytes, if it is not in memory. It may be in the bucket no more than here. */
  async fetch(tenant: string, sealed: Uint8Array): Promise<void> {
    if (this.knows(sealed)) return;
    const entry = await this.#bucket.get(keyEntry(tenant));
    if (entry !== null) this.#remember(tenant, entry.value);
    if (this.knows(sealed)) return;
    await this.#erasure(tenant);
  }

  async #checkHostKey(): Promise<void> {
    const value = hostKeyCheck(this.#hostKey);
    for (let attempt = 0; attempt < SWAPS_MAX; attempt++) {
      const present = await this.#bucket.get(HOST_KEY_CHECK);
      if (present !== null) {
        if (this.#hostKeys.some((key) => isHostKeyOf(key, present.value))) return;
        throw new WrongHostKeyError('the Host key is another than the one that this installation was made with');
      }
      if ((await this.#bucket.swap(HOST_KEY_CHECK, value, { expected: 0 })) !== null) return;
      // Refused, and yet there may be nothing to read: another node is writing it at this moment.
      await delay(SWAP_PAUSE_MS);
    }
    throw new UnavailableError('streams', 'the entry of the Host key can be neither written nor read');
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

  /** The first writer of the entry wins; everybody reads what is there. */
  async #make(tenant: string): Promise<DataKey> {
    for (let attempt = 0; attempt < SWAPS_MAX; attempt++) {
      const present = await this.#present(tenant);
      if (present !== null) return present;
      if (((await this.#erasure(tenant))?.tenant ?? null) !== null) {
        throw new TenantErasedError(`the tenant ${tenant} is being erased`);
      }
      const made = this.#wrap(tenant);
      if ((await this.#bucket.swap(keyEntry(tenant), made, { expected: 0 })) === null) continue;
      const key = this.#remember(tenant, made);
      if (key !== undefined) return key;
    }
    throw new SealBrokenError(`the data key of tenant ${tenant} comes and goes`);
  }

  async #present(tenant: string): Promise<DataKey | null> {
    const present = await this.#bucket.get(keyEntry(tenant));
    if (present === null) return null;
    const known = this.#remember(tenant, present.value);
    if (known !== undefined || this.#isErasedKey(present.value)) return known ?? null;
    throw new SealBrokenError(`the data key of tenant ${tenant} does not open with the Host key`);
  }

  async #erasure(tenant: string): Promise<Erasure | null> {
    const entry = await this.#bucket.get(erasedEntry(tenant));
    if (entry === null) return null;
    const erasure = parse<Erasure>(entry.value);
    this.#applyTombstone(entry.key, erasure);
    return erasure;
  }

  #wrap(tenant: string): string {
    const id = randomBytes(KEY_ID_BYTES).toString('hex');
    const bytes = randomBytes(KEY_BYTES);
    const value = wrappedBy(this.#hostKey, tenant, { id, bytes });
    bytes.fill(0);
    return value;
  }

  #takeKey(change: KeyValueChange): void {
    if (change.kind === 'put') this.#remember(tenantOf(change.entry.key), change.entry.value);
  }

  #takeErasure(change: KeyValueChange): void {
    if (change.kind === 'put') this.#applyTombstone(change.entry.key, parse<Erasure>(change.entry.value));
  }

  #isErasedKey(value: string): boolean {
    return this.#erasedIds.has(parseWrapped(value).id);
  }

  #remember(tenant: string, value: string): DataKey | undefined {
    const { id, wrapped } = parseWrapped(value);
    const known = this.#byTenant.get(tenant);
    if (this.#erasedIds.has(id)) return undefined;
    if (known?.id === id) return known;
    const bytes = unwrapped(this.#hostKeys, tenant, { id, wrapped });
    if (bytes === null) {
      this.#logger.error({ tenant, keyId: id }, 'ALARM: the data key of a tenant does not open with the Host key');
      return undefined;
    }
    const key = { tenant, id, key: sealingKey(bytes), prefix: Buffer.from([SEALED_MARK, ...Buffer.from(id, 'hex')]) };
    bytes.fill(0);
    this.#byTenant.set(tenant, key);
    this.#byId.set(id, key);
    return key;
  }

  /** Adds to the tombstone of a tenant. */
  async #writeTombstone(tenant: string, ids: readonly string[], left: string | null): Promise<void> {
    for (let attempt = 0; attempt < SWAPS_MAX; attempt++) {
      const present = await this.#bucket.get(erasedEntry(tenant));
      const before = present === null ? [] : parse<Erasure>(present.value).keys;
      const erasure: Erasure = { keys: [...new Set([...before, ...ids])], tenant: left };
      const options = { expected: present?.revision ?? 0 };
      if ((await this.#bucket.swap(erasedEntry(tenant), JSON.stringify(erasure), options)) === null) continue;
      this.#applyTombstone(erasedEntry(tenant), erasure);
      return;
    }
    throw new Error(`the tombstone of tenant ${tenant} could not be written`);
  }

  #applyTombstone(entry: string, erasure: Erasure): void {
    this.#erased.set(entry, erasure);
    for (const id of erasure.keys) {
      this.#erasedIds.add(id);
      const held = this.#byId.get(id);
      if (held === undefined) continue;
      this.#byId.delete(id);
      if (this.#byTenant.get(held.tenant) === held) this.#byTenant.delete(held.tenant);
      for (const listener of this.#listeners) listener(held.tenant);
    }
  }
}

/** Whether bytes were sealed by a keyring; JSON and other texts were not. */
export function isSealed(bytes: Uint8Array): boolean {
  return bytes[0] === SEALED_MARK;
}

function keyIdOf(sealed: Uint8Array): string {
  return Buffer.from(sealed.buffer, sealed.byteOffset, sealed.byteLength).toString('hex', 1, SEALED_PREFIX_BYTES);
}

function erasedEntry(tenant: string): string {
  return `erased.${sha256Hex(tenant)}`;
}

function parse<T>(text: string): T {
  // Written by this class.
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion
  return JSON.parse(text) as T;
}

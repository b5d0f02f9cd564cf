import { randomBytes } from 'node:crypto';
import type { KeyObject } from 'node:crypto';
import type { Logger } from '../lib/logger.ts';
import { KEY_BYTES, open, seal, sealingKey } from '../lib/sealed-box.ts';
import { isSealed, KEY_ID_BYTES, keyIdOf, SEALED_PREFIX_BYTES, SealBrokenError, sealedPrefix } from './sealed-bytes.ts';
import { boundTo, parseWrapped, unwrapped, wrappedBy } from './wrapped-keys.ts';

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

/** A tombstone: it names keys that have been destroyed, and stays. */
export interface Erasure {
  readonly keys: readonly string[];
  /** The tenant, while its deletion has steps left; null: it is gone, and so is its name here. */
  readonly tenant: string | null;
}

/** The data keys that this process has in memory, and the ids of those that it knows to be destroyed. */
export class DataKeys {
  readonly #hostKeys: readonly [KeyObject, ...KeyObject[]];
  readonly #logger: Logger;
  readonly #byTenant = new Map<string, HeldKey>();
  readonly #byId = new Map<string, HeldKey>();
  /** By the name of their entry. */
  readonly #erased = new Map<string, Erasure>();
  readonly #erasedIds = new Set<string>();
  readonly #listeners = new Set<(tenant: string) => void>();

  /** @param hostKeys the Host's current key, which wraps; then its earlier keys, which only open */
  constructor(hostKeys: readonly [KeyObject, ...KeyObject[]], logger: Logger) {
    this.#hostKeys = hostKeys;
    this.#logger = logger;
  }

  /** Calls back when a tenant's key has been destroyed, on any node. Returns the function that ends it. */
  onErased(listener: (tenant: string) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Tenants whose keys are destroyed and whose deletion has steps left. */
  get unfinished(): readonly string[] {
    return [...this.#erased.values()].flatMap(({ tenant }) => (tenant === null ? [] : [tenant]));
  }

  of(tenant: string): DataKey | undefined {
    return this.#byTenant.get(tenant);
  }

  /** Seals bytes with the tenant's key; null when this process does not have it (`obtain` gets it). */
  seal(tenant: string, context: string, plain: Uint8Array): Buffer<ArrayBuffer> | null {
    const own = this.#byTenant.get(tenant);
    if (own === undefined) return null;
    return seal(own.key, plain, { context: boundTo(tenant, context), prefix: own.prefix });
  }

  /** Opens what `seal` made. @throws SealBrokenError, also when the key is not in memory (`fetch` gets it) */
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

  /** Whether `open` can tell what the bytes are. */
  knows(sealed: Uint8Array): boolean {
    const id = keyIdOf(sealed);
    return this.#byId.has(id) || this.#erasedIds.has(id);
  }

  /** A new key for a tenant, as the bucket holds it; `take` accepts it. */
  wrapped(tenant: string): string {
    const id = randomBytes(KEY_ID_BYTES).toString('hex');
    const bytes = randomBytes(KEY_BYTES);
    const value = wrappedBy(this.#hostKeys[0], tenant, { id, bytes });
    bytes.fill(0);
    return value;
  }

  /** Takes a key as the bucket holds it. Undefined: it has been destroyed, or the Host key does not open it. */
  take(tenant: string, value: string): DataKey | undefined {
    const { id, wrapped } = parseWrapped(value);
    const known = this.#byTenant.get(tenant);
    if (this.#erasedIds.has(id)) return undefined;
    if (known?.id === id) return known;
    const bytes = unwrapped(this.#hostKeys, tenant, { id, wrapped });
    if (bytes === null) {
      this.#logger.error({ tenant, keyId: id }, 'ALARM: the data key of a tenant does not open with the Host key');
      return undefined;
    }
    const key = { tenant, id, key: sealingKey(bytes), prefix: sealedPrefix(id) };
    bytes.fill(0);
    this.#byTenant.set(tenant, key);
    this.#byId.set(id, key);
    return key;
  }

  /** Whether a key, as the bucket holds it, is known to be destroyed. */
  isErased(value: string): boolean {
    return this.#erasedIds.has(parseWrapped(value).id);
  }

  /** From now on, what its keys sealed does not open here. */
  applyTombstone(entry: string, erasure: Erasure): void {
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

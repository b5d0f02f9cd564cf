import type { Issuer } from '../../domain/tenant/events.ts';
import type { TenantState } from '../../domain/tenant/state.ts';
import { backoffMs, delay } from '../../lib/backoff.ts';
import { monotonicClock } from '../../lib/clock.ts';
import type { Logger } from '../../lib/logger.ts';
import { WeightedLru } from '../../lib/lru.ts';
import { TokenBuckets } from '../../lib/token-buckets.ts';
import { isUnavailableError } from '../../lib/unavailable.ts';
import type { KeyValue, KeyValueChange } from '../../streams/key-value.ts';
import { entryOf, isUnsealed, openedEntry, sealedEntry, storedEntry } from './entries.ts';
import type { DirectorySealer, DirectoryTenant } from './entries.ts';
import { PrincipalIndex } from './principals.ts';
import type { Principal } from './principals.ts';

export interface DirectoryDeps {
  readonly bucket: KeyValue;
  readonly sealer: DirectorySealer;
  readonly logger: Logger;
}

const PREFIX = 'tenant';
const SWAPS_MAX = 20;
/** How long a request waits for the bucket before a credential that is not known here is refused. */
const REFRESH_MS = 1_000;
/** Who tries keys can have the bucket asked so often; past it what is known here counts. */
const REFRESHES = { perSecond: 100, burst: 200 };
/** Tenants whose end this node remembers, so that no answer that was under way brings one back. */
const GONE_MAX = 10_000;
const TENANT_ID = /^[\w-]{1,64}$/;
const RETRY = { baseMs: 50, capMs: 2_000 };

/**
 * Tenants and credentials in the key-value bucket `DIRECTORY`, held in memory on every node by watching it:
 * authentication never asks Postgres, and a change reaches all nodes at once.
 */
export class Directory {
  readonly #deps: DirectoryDeps;
  readonly #tenants = new Map<string, DirectoryTenant>();
  readonly #principals = new PrincipalIndex();
  readonly #listeners = new Set<(tenantId: string) => void>();
  readonly #stop = new AbortController();
  /** Newest change of a tenant that has not been applied yet. */
  readonly #opening = new Map<string, Promise<void>>();
  readonly #unsealed = new Set<string>();
  readonly #gone = new WeightedLru<true>(GONE_MAX);
  readonly #refreshes = new TokenBuckets(REFRESHES, { clock: monotonicClock, namesMax: 1 });

  constructor(deps: DirectoryDeps) {
    this.#deps = deps;
  }

  /** Resolves once everything that is in the bucket is known here. */
  async start(): Promise<void> {
    await this.#deps.bucket.watch(
      PREFIX,
      (change) => {
        this.#take(change);
      },
      this.#stop.signal,
    );
    await Promise.all(this.#opening.values());
  }

  stop(): void {
    this.#stop.abort();
  }

  tenant(id: string): DirectoryTenant | undefined {
    return this.#tenants.get(id);
  }

  /** The principals with this key hash, one for each tenant that has registered it. */
  principals(hash: string): readonly Principal[] {
    return this.#principals.of(hash);
  }

  /**
   * Asks the bucket for a tenant's entry, before a credential is refused that another node may just have stored.
   * Whether this node knows more of the tenant now; false also when the bucket does not answer in time, or is asked too often.
   */
  async refresh(tenantId: string): Promise<boolean> {
    if (!TENANT_ID.test(tenantId) || this.#refreshes.take('') > 0) return false;
    const answered = new AbortController();
    try {
      const late = delay(REFRESH_MS, answered.signal).then(() => false);
      return await Promise.race([this.#taken(tenantId), late]);
    } catch {
      // The log is away, or the entry cannot be opened, which is the watch's alarm: what is known here counts.
      return false;
    } finally {
      answered.abort();
    }
  }

  async #taken(tenantId: string): Promise<boolean> {
    const entry = await this.#deps.bucket.newest(`${PREFIX}.${tenantId}`);
    if (entry === null) return false;
    const known = this.#tenants.get(tenantId)?.position ?? -1;
    if (storedEntry(entry.value).position <= known) return false;
    const opened = await this.#opened(entry.value);
    if (this.#gone.get(tenantId) === true) return false;
    this.#remember(opened);
    return true;
  }

  issuers(tenantId: string): Readonly<Record<string, Issuer>> {
    const tenant = this.#tenants.get(tenantId);
    return tenant === undefined || tenant.state === 'deleting' ? {} : tenant.issuers;
  }

  /** Calls back when a tenant's entry has changed or is gone on this node. Returns the function that unsubscribes. */
  onChange(listener: (tenantId: string) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Tenants whose entry was written before entries were sealed: they may have no data key yet. */
  get unsealed(): readonly string[] {
    return [...this.#unsealed];
  }

  get tenants(): readonly DirectoryTenant[] {
    return [...this.#tenants.values()];
  }

  /** Writes a tenant's entry unless the bucket has a newer one; this node knows it when the promise resolves. */
  async publish(state: TenantState, position: number): Promise<void> {
    if (state.status === 'absent') return;
    const entry = entryOf(state, position);
    const { bucket } = this.#deps;
    const key = `${PREFIX}.${entry.id}`;
    const value = await sealedEntry(this.#deps.sealer, entry);
    for (let attempt = 0; attempt < SWAPS_MAX; attempt++) {
      const present = await bucket.get(key);
      if (present !== null && storedEntry(present.value).position >= position) break;
      if ((await bucket.swap(key, value, { expected: present?.revision ?? 0 })) !== null) break;
    }
    this.#remember(entry);
  }

  /**
   * Removes a tenant from the bucket, when nothing else of it is left. Other nodes forget it by the marker that stays.
   */
  async remove(tenantId: string): Promise<void> {
    await this.#deps.bucket.remove(`${PREFIX}.${tenantId}`);
    this.#gone.set(tenantId, true, 1);
    this.#forget(tenantId);
  }

  /** One after the other for each tenant: opening an entry may have to wait for its key. */
  #take(change: KeyValueChange): void {
    const id = (change.kind === 'put' ? change.entry.key : change.key).slice(PREFIX.length + 1);
    const before = this.#opening.get(id);
    const mine = this.#takeAfter(before, id, change).finally(() => {
      if (this.#opening.get(id) === mine) this.#opening.delete(id);
    });
    this.#opening.set(id, mine);
  }

  async #takeAfter(before: Promise<void> | undefined, id: string, change: KeyValueChange): Promise<void> {
    await before;
    if (change.kind === 'removed') {
      this.#unsealed.delete(id);
      this.#gone.set(id, true, 1);
      this.#forget(id);
      return;
    }
    // It is there again: what is asked of it from here on is of the new one.
    this.#gone.delete(id);
    for (let attempt = 0; !this.#stop.signal.aborted; attempt++) {
      try {
        this.#remember(await this.#opened(change.entry.value));
        return;
      } catch (error) {
        if (!isUnavailableError(error, 'streams')) {
          this.#deps.logger.error({ err: error, tenant: id }, 'ALARM: the credentials of a tenant cannot be opened');
          // What was known before may have been revoked by what cannot be read.
          this.#forget(id);
          return;
        }
        await delay(backoffMs(attempt, RETRY), this.#stop.signal);
      }
    }
  }

  async #opened(text: string): Promise<DirectoryTenant> {
    const stored = storedEntry(text);
    if (isUnsealed(stored)) this.#unsealed.add(stored.id);
    else this.#unsealed.delete(stored.id);
    return await openedEntry(this.#deps.sealer, stored);
  }

  #remember(entry: DirectoryTenant): void {
    const before = this.#tenants.get(entry.id);
    if ((before?.position ?? -1) > entry.position) return;
    this.#principals.replace(entry.id, before, entry);
    this.#tenants.set(entry.id, entry);
    this.#changed(entry.id);
  }

  #forget(tenantId: string): void {
    this.#principals.replace(tenantId, this.#tenants.get(tenantId), undefined);
    this.#tenants.delete(tenantId);
    this.#changed(tenantId);
  }

  #changed(tenantId: string): void {
    for (const listener of this.#listeners) listener(tenantId);
  }
}

import type { ModelSelection } from '../../domain/agent/manifest.ts';
import type { Issuer } from '../../domain/tenant/events.ts';
import type { KeyRole, KnownTenant, Providers, TenantState } from '../../domain/tenant/state.ts';
import { isUnavailableError } from '../../lib/unavailable.ts';
import { backoffMs, delay } from '../../lib/backoff.ts';
import type { Logger } from '../../lib/logger.ts';
import type { CommitSource, FollowedCommit } from '../../streams/event-store.ts';
import type { Keyring } from '../../streams/keyring.ts';
import type { KeyValue, KeyValueChange } from '../../streams/key-value.ts';

/** A tenant with its credentials, as every node knows them. Hashes only. */
export interface DirectoryTenant {
  readonly id: string;
  readonly name: string;
  readonly state: 'open' | 'draining' | 'deleting';
  readonly keys: readonly { readonly id: string; readonly role: KeyRole; readonly hash: string }[];
  readonly executors: readonly { readonly agentId: string; readonly hash: string }[];
  readonly issuers: Readonly<Record<string, Issuer>>;
  /** Whether model calls have to be held against budgets. */
  readonly budgeted: boolean;
  /** The model of turns that name none of their own. */
  readonly model: ModelSelection | null;
  readonly providers: Providers;
  /** Whether such turns use the fixture model where nothing else is selected. */
  readonly fixtureModel: boolean;
  /** Of the request that created it. */
  readonly idempotencyKey: string | null;
  /** Of the tenant's commit that this entry was made from. */
  readonly position: number;
}

/** Whose credential a hash is; an executor's principal is its agent. */
export interface Principal {
  readonly tenantId: string;
  readonly principalId: string;
  readonly role: KeyRole | 'executor';
}

/**
 * An entry as it is stored: what a tenant chose is sealed with its data key. Before entries were sealed, they held a
 * `DirectoryTenant` as it is.
 */
interface StoredEntry extends Pick<DirectoryTenant, 'id' | 'state' | 'position'> {
  /** The other members; null: the tenant is being deleted, nobody needs them any more. */
  readonly sealed: string | null;
}

/** What it needs of the tenants' data keys (streams/keyring.ts). */
export type DirectorySealer = Pick<Keyring, 'sealText' | 'openText'>;

export interface DirectoryDeps {
  readonly bucket: KeyValue;
  readonly sealer: DirectorySealer;
  readonly logger: Logger;
}

const PREFIX = 'tenant';
const CONTEXT = 'directory';
/** What is left of an entry when its tenant is being deleted. */
const NOTHING: Omit<DirectoryTenant, 'id' | 'state' | 'position'> = {
  ...{ name: '', keys: [], executors: [], issuers: {}, budgeted: false, model: null, providers: {} },
  ...{ fixtureModel: false, idempotencyKey: null },
};
const SWAPS_MAX = 20;
const RETRY = { baseMs: 50, capMs: 2_000 };

/**
 * Tenants and credentials in the key-value bucket `DIRECTORY`, held in memory on every node by watching it:
 * authentication never asks Postgres, and a change reaches all nodes at once.
 */
export class Directory {
  readonly #deps: DirectoryDeps;
  readonly #tenants = new Map<string, DirectoryTenant>();
  readonly #principals = new Map<string, readonly Principal[]>();
  readonly #listeners = new Set<(tenantId: string) => void>();
  readonly #stop = new AbortController();
  /** Newest change of a tenant that has not been taken in yet. */
  readonly #opening = new Map<string, Promise<void>>();
  readonly #unsealed = new Set<string>();

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
    return this.#principals.get(hash) ?? [];
  }

  issuers(tenantId: string): Readonly<Record<string, Issuer>> {
    const tenant = this.#tenants.get(tenantId);
    return tenant === undefined || tenant.state === 'deleting' ? {} : tenant.issuers;
  }

  /** Calls back when a tenant's entry has changed or gone on this node. Returns the function that ends it. */
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
    const value = JSON.stringify(await this.#sealed(entry));
    for (let attempt = 0; attempt < SWAPS_MAX; attempt++) {
      const present = await bucket.get(key);
      if (present !== null && parse<StoredEntry>(present.value).position >= position) break;
      if ((await bucket.swap(key, value, { expected: present?.revision ?? 0 })) !== null) break;
    }
    this.#remember(entry);
  }

  /** Takes a tenant out of the bucket, when nothing else of it is left. Other nodes forget it by the marker that stays. */
  async remove(tenantId: string): Promise<void> {
    await this.#deps.bucket.remove(`${PREFIX}.${tenantId}`);
    this.#forget(tenantId);
  }

  async #sealed({ id, state, position, ...chosen }: DirectoryTenant): Promise<StoredEntry> {
    const isLeaving = state === 'deleting';
    const sealed = isLeaving ? null : await this.#deps.sealer.sealText(id, CONTEXT, JSON.stringify(chosen));
    return { id, state, position, sealed };
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
      this.#forget(id);
      return;
    }
    for (let attempt = 0; !this.#stop.signal.aborted; attempt++) {
      try {
        this.#remember(await this.#opened(parse<StoredEntry | DirectoryTenant>(change.entry.value)));
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

  async #opened(stored: StoredEntry | DirectoryTenant): Promise<DirectoryTenant> {
    if (!('sealed' in stored)) {
      this.#unsealed.add(stored.id);
      // An older version knew no executors and no models.
      return { ...NOTHING, ...stored };
    }
    const { id, state, position, sealed } = stored;
    this.#unsealed.delete(id);
    const text = sealed === null ? null : await this.#deps.sealer.openText(id, CONTEXT, sealed);
    if (text === null) return { ...NOTHING, id, state: 'deleting', position };
    return { ...NOTHING, id, state, position, ...parse<typeof NOTHING>(text) };
  }

  #remember(entry: DirectoryTenant): void {
    if ((this.#tenants.get(entry.id)?.position ?? -1) > entry.position) return;
    this.#index(entry.id, null);
    this.#tenants.set(entry.id, entry);
    this.#index(entry.id, entry);
    this.#changed(entry.id);
  }

  #forget(tenantId: string): void {
    this.#index(tenantId, null);
    this.#tenants.delete(tenantId);
    this.#changed(tenantId);
  }

  /** Takes the credentials of the tenant's present entry out of the index, or those of a new one in. */
  #index(tenantId: string, entry: DirectoryTenant | null): void {
    // A tenant that is being deleted has no credentials any more: they answer as if they had never been.
    if (entry?.state === 'deleting') return;
    for (const { hash, ...principal } of credentialsOf(entry ?? this.#tenants.get(tenantId))) {
      const others = this.principals(hash).filter((other) => other.tenantId !== tenantId);
      const all = entry === null ? others : [...others, { tenantId, ...principal }];
      if (all.length === 0) this.#principals.delete(hash);
      else this.#principals.set(hash, all);
    }
  }

  #changed(tenantId: string): void {
    for (const listener of this.#listeners) listener(tenantId);
  }
}

type Credential = Omit<Principal, 'tenantId'> & { readonly hash: string };

function credentialsOf(entry: DirectoryTenant | undefined): Credential[] {
  if (entry === undefined) return [];
  const { keys, executors } = entry;
  return [
    ...keys.map(({ id: principalId, role, hash }) => ({ principalId, role, hash })),
    ...executors.map(({ agentId: principalId, hash }) => ({ principalId, role: 'executor' as const, hash })),
  ];
}

function entryOf(state: KnownTenant, position: number): DirectoryTenant {
  const { id, name, status, keys, executors, issuers, budgets, model, providers, fixtureModel, idempotencyKey } = state;
  const shown = {
    keys: keys.map(({ id: principalId, role, hash }) => ({ id: principalId, role, hash })),
    executors: executors.map(({ agentId, hash }) => ({ agentId, hash })),
  };
  const models = { budgeted: budgets.length > 0, model, providers, fixtureModel };
  return { id, name, state: status, ...shown, issuers, ...models, idempotencyKey, position };
}

function parse<T>(text: string): T {
  // Written by `publish`.
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion
  return JSON.parse(text) as T;
}

export interface DirectoryProjectorDeps {
  readonly directory: Directory;
  readonly bucket: KeyValue;
  readonly source: CommitSource;
  /** The tenant's fold with everything that is in the log now. */
  readonly load: (tenantId: string) => Promise<{ readonly state: TenantState; readonly position: number }>;
  readonly logger: Logger;
}

/**
 * Feeds the directory from the log, for what a node that died could not publish itself. It may run on every node: an
 * older entry never replaces a newer one. Its checkpoint lies in the bucket, so it needs no Postgres either.
 */
export class DirectoryProjector {
  readonly #deps: DirectoryProjectorDeps;
  readonly #stop = new AbortController();
  #loops: Promise<void>[] = [];

  constructor(deps: DirectoryProjectorDeps) {
    this.#deps = deps;
  }

  start(): void {
    this.#loops = Array.from({ length: this.#deps.source.shards }, async (_, shard) => await this.#run(shard));
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await Promise.all(this.#loops);
  }

  async #run(shard: number): Promise<void> {
    const { bucket, source } = this.#deps;
    const key = `checkpoint.${shard}`;
    const after = Number((await bucket.get(key).catch(() => null))?.value ?? '0');
    const options = { shard, kinds: ['tenant'] as const, after, signal: this.#stop.signal, buffer: 100 };
    for await (const batch of source.follow(options)) {
      for (const tenantId of tenantsIn(batch)) await this.#publishUntilDone(shard, tenantId);
      const last = batch.at(-1);
      const position = last?.kind === 'commit' ? last.stored.position : last?.position;
      // A checkpoint that was not written costs the next start a second look, nothing else.
      if (position !== undefined && !this.#stop.signal.aborted) {
        await bucket.put(key, String(position)).catch((error: unknown) => this.#warn(shard, error));
      }
    }
  }

  /** While the log is away this waits, and holds up what comes after it: a key that was taken away must not stay alive. */
  async #publishUntilDone(shard: number, tenantId: string): Promise<void> {
    for (let attempt = 0; !this.#stop.signal.aborted; attempt++) {
      try {
        await this.#publish(tenantId);
        return;
      } catch (error) {
        this.#warn(shard, error);
        // Another error is one of this tenant's commits, which no repetition mends and which must not stop the others.
        if (!isUnavailableError(error, 'streams')) return;
        await delay(backoffMs(attempt, RETRY), this.#stop.signal);
      }
    }
  }

  #warn(shard: number, error: unknown): void {
    this.#deps.logger.warn({ err: error, shard }, 'the directory could not be brought up to date');
  }

  /** A commit only says which tenant to look at: what there is to publish is the tenant's whole fold. */
  async #publish(tenantId: string): Promise<void> {
    const { state, position } = await this.#deps.load(tenantId);
    await this.#deps.directory.publish(state, position);
  }
}

function tenantsIn(batch: readonly FollowedCommit[]): ReadonlySet<string> {
  const ids = batch.map((followed) => {
    if (followed.kind === 'erased') return null;
    return followed.kind === 'commit' ? followed.stored.ref.id : followed.ref.id;
  });
  return new Set(ids.filter((id) => id !== null));
}

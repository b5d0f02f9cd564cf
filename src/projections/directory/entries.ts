import type { ModelSelection } from '../../domain/agent/manifest.ts';
import type { Issuer } from '../../domain/tenant/events.ts';
import type { TenantModelPrice } from '../../domain/tenant/model-prices.ts';
import type { KeyRole, KnownTenant, Providers } from '../../domain/tenant/state.ts';
import type { Keyring } from '../../streams/keyring.ts';

/** A tenant with its credentials, as every node knows them. Hashes only. */
export interface DirectoryTenant {
  readonly id: string;
  readonly name: string;
  readonly state: 'open' | 'draining' | 'deleting';
  readonly keys: readonly { readonly id: string; readonly role: KeyRole; readonly hash: string }[];
  readonly executors: readonly { readonly agentId: string; readonly hash: string }[];
  readonly issuers: Readonly<Record<string, Issuer>>;
  /** Whether model calls have to be checked against budgets. */
  readonly budgeted: boolean;
  /** The model of turns that name none of their own. */
  readonly model: ModelSelection | null;
  readonly providers: Providers;
  /** What the tenant pays for models, before the catalogue's prices. */
  readonly prices: readonly TenantModelPrice[];
  /** Whether such turns use the fixture model where nothing else is selected. */
  readonly fixtureModel: boolean;
  /** Of the request that created it. */
  readonly idempotencyKey: string | null;
  /** Of the tenant's commit that this entry was made from. */
  readonly position: number;
}

/**
 * An entry as it is stored: what a tenant chose is sealed with its data key. Before entries were sealed, they held a
 * `DirectoryTenant` as it is.
 */
interface SealedEntry extends Pick<DirectoryTenant, 'id' | 'state' | 'position'> {
  /** The other members; null: the tenant is being deleted, they are no longer needed. */
  readonly sealed: string | null;
}

/** As it may be found in the bucket. */
export type StoredEntry = SealedEntry | DirectoryTenant;

/** What an entry needs of the tenants' data keys (streams/keyring.ts). */
export type DirectorySealer = Pick<Keyring, 'sealText' | 'openText'>;

const CONTEXT = 'directory';
/** What is left of an entry when its tenant is being deleted. */
const NOTHING: Omit<DirectoryTenant, 'id' | 'state' | 'position'> = {
  ...{ name: '', keys: [], executors: [], issuers: {}, budgeted: false, model: null, providers: {} },
  ...{ prices: [], fixtureModel: false, idempotencyKey: null },
};

/** What every node has to know of a tenant. */
export function entryOf(state: KnownTenant, position: number): DirectoryTenant {
  const { id, name, status, keys, executors, issuers, budgets, model, providers, prices } = state;
  const { fixtureModel, idempotencyKey } = state;
  const shown = {
    keys: keys.map(({ id: principalId, role, hash }) => ({ id: principalId, role, hash })),
    executors: executors.map(({ agentId, hash }) => ({ agentId, hash })),
  };
  const models = { budgeted: budgets.length > 0, model, providers, prices, fixtureModel };
  return { id, name, state: status, ...shown, issuers, ...models, idempotencyKey, position };
}

/** The text of an entry in the bucket. */
export async function sealedEntry(sealer: DirectorySealer, entry: DirectoryTenant): Promise<string> {
  const { id, state, position, ...chosen } = entry;
  const isLeaving = state === 'deleting';
  const sealed = isLeaving ? null : await sealer.sealText(id, CONTEXT, JSON.stringify(chosen));
  const stored: SealedEntry = { id, state, position, sealed };
  return JSON.stringify(stored);
}

/** An entry as it stands in the bucket, before it is opened. */
export function storedEntry(text: string): StoredEntry {
  return parse<StoredEntry>(text);
}

/** Whether it was written before entries were sealed: its tenant may have no data key yet. */
export function isUnsealed(stored: StoredEntry): stored is DirectoryTenant {
  return !('sealed' in stored);
}

/** What an entry says. A tenant whose key has been destroyed is being deleted. @throws UnavailableError (streams) */
export async function openedEntry(sealer: DirectorySealer, stored: StoredEntry): Promise<DirectoryTenant> {
  // An older version knew no executors and no models.
  if (isUnsealed(stored)) return { ...NOTHING, ...stored };
  const { id, state, position, sealed } = stored;
  const text = sealed === null ? null : await sealer.openText(id, CONTEXT, sealed);
  if (text === null) return { ...NOTHING, id, state: 'deleting', position };
  return { ...NOTHING, id, state, position, ...parse<typeof NOTHING>(text) };
}

function parse<T>(text: string): T {
  // Written by `sealedEntry`.
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion
  return JSON.parse(text) as T;
}

import { modelSettings } from '../agent/manifest.ts';
import type { ModelSettings } from '../agent/manifest.ts';
import type { Decision } from '../kernel/decision.ts';
import { reject } from '../kernel/rejection.ts';
import type { Rejection } from '../kernel/rejection.ts';
import type { ModelProvider, TenantEvent } from './events.ts';
import type { TenantModelPrice } from './model-prices.ts';
import { NO_PROVIDER } from './state.ts';
import type { KnownTenant, TenantState } from './state.ts';
import { optional } from '../kernel/optional.ts';

export interface SaveModel {
  readonly provider: ModelProvider;
  readonly model: string;
  readonly settings?: ModelSettings | undefined;
  /** Null: the provider's own address. */
  readonly baseUrl: string | null;
  /** The id under which an accompanying credential was stored; null: none came. */
  readonly secretId: string | null;
}

/** Ids of secrets that nothing names once the decision is recorded. */
export interface ModelSaved {
  readonly superseded: readonly string[];
}

/** Selects a model, and says where its provider is. What was there before is replaced, except the credential. */
export function decideSaveModel(state: TenantState, command: SaveModel): Decision<TenantEvent, ModelSaved> {
  if (state.status === 'absent') return noTenant();
  const { provider, model, settings, baseUrl, secretId } = command;
  const { credential, baseUrl: known } = state.providers[provider] ?? NO_PROVIDER;
  // A credential cannot be read back; sending it to an address it was not given for would be a way to do so.
  if (credential !== null && secretId === null && baseUrl !== known) return givenForAnotherAddress(provider);
  const events: TenantEvent[] = [];
  const wanted = { provider, model, ...optional({ settings }) };
  if (baseUrl !== known || !sameSelection(state, command)) {
    events.push({ type: 'model.saved', data: { ...wanted, baseUrl } });
  }
  if (secretId !== null) {
    const data = { provider, secretId, rotated: credential !== null };
    events.push({ type: 'model-credential.saved', data });
  }
  const superseded = secretId !== null && credential !== null ? [credential.secretId] : [];
  if (events.length === 0) return { kind: 'unchanged', reply: { superseded } };
  return { kind: 'accepted', events, reply: { superseded } };
}

/** Settings are a handful of plain values; what was not sent is not there. */
function sameSelection({ model: known }: KnownTenant, { provider, model, settings }: SaveModel): boolean {
  if (known === null || known.provider !== provider || known.model !== model) return false;
  const { settings: before } = known;
  return modelSettings
    .keyof()
    .options.every((name) => JSON.stringify(before?.[name]) === JSON.stringify(settings?.[name]));
}

/** Selects another model; addresses, credentials and settings stay as they are. */
export function decideSelectModel(
  state: TenantState,
  { provider, model }: Pick<SaveModel, 'provider' | 'model'>,
): Decision<TenantEvent, null> {
  if (state.status === 'absent') return noTenant();
  if (provider === 'openai-compatible' && (state.providers[provider] ?? NO_PROVIDER).baseUrl === null) {
    return reject('conflict', 'The provider openai-compatible has no baseUrl yet. Set it with PUT /v1/tenant/model.');
  }
  if (state.model?.provider === provider && state.model.model === model) return { kind: 'unchanged', reply: null };
  return { kind: 'accepted', events: [{ type: 'model.selected', data: { provider, model } }], reply: null };
}

export function decideSaveModelCredential(
  state: TenantState,
  { provider, secretId }: { readonly provider: ModelProvider; readonly secretId: string },
): Decision<TenantEvent, ModelSaved> {
  if (state.status === 'absent') return noTenant();
  const { credential } = state.providers[provider] ?? NO_PROVIDER;
  const data = { provider, secretId, rotated: credential !== null };
  const superseded = credential === null ? [] : [credential.secretId];
  return { kind: 'accepted', events: [{ type: 'model-credential.saved', data }], reply: { superseded } };
}

export function decideDeleteModelCredential(
  state: TenantState,
  provider: ModelProvider,
): Decision<TenantEvent, ModelSaved> {
  const credential = state.status === 'absent' ? null : (state.providers[provider]?.credential ?? null);
  if (credential === null) return reject('not_found', 'No such credential.');
  const superseded = [credential.secretId];
  return {
    kind: 'accepted',
    events: [{ type: 'model-credential.deleted', data: { provider } }],
    reply: { superseded },
  };
}

/** Replaces the list of the tenant's own prices. */
export function decideSavePrices(state: TenantState, prices: readonly TenantModelPrice[]): Decision<TenantEvent, null> {
  if (state.status === 'absent') return noTenant();
  if (JSON.stringify(prices) === JSON.stringify(state.prices)) return { kind: 'unchanged', reply: null };
  const data = { budgets: [...state.budgets], prices: [...prices] };
  return { kind: 'accepted', events: [{ type: 'budgets.saved', data }], reply: null };
}

export interface Seed {
  readonly fixtureModel: boolean;
  readonly model: SaveModel | null;
}

export interface Seeded extends ModelSaved {
  readonly applied: readonly string[];
  readonly kept: readonly string[];
}

/** Writes only what is absent. */
export function decideSeed(state: TenantState, { fixtureModel, model }: Seed): Decision<TenantEvent, Seeded> {
  if (state.status === 'absent') return noTenant();
  const [applied, kept, events, superseded]: [string[], string[], TenantEvent[], string[]] = [[], [], [], []];
  if (fixtureModel && state.fixtureModel) kept.push('fixtureModel');
  else if (fixtureModel) {
    applied.push('fixtureModel');
    events.push({ type: 'tenant.seeded', data: { fixtureModel: true } });
  }
  if (model !== null && state.model !== null) kept.push('model');
  else if (model !== null) {
    const saved = decideSaveModel(state, model);
    if (saved.kind === 'rejected') return saved;
    applied.push('model');
    if (saved.kind === 'accepted') events.push(...saved.events);
    superseded.push(...saved.reply.superseded);
  }
  const reply = { applied, kept, superseded };
  return events.length === 0 ? { kind: 'unchanged', reply } : { kind: 'accepted', events, reply };
}

function noTenant(): Rejection {
  return reject('not_found', 'No such tenant.');
}

function givenForAnotherAddress(provider: ModelProvider): Rejection {
  return reject(
    'conflict',
    `The stored credential of ${provider} was given for another baseUrl. Send the credential for this one with it, or delete the stored one first.`,
  );
}

import type { ModelSelection } from '../agent/manifest.ts';
import type { TenantModelPrice } from './model-prices.ts';
import type { BudgetDefinition } from '../budget/events.ts';
import type { EventMeta } from '../kernel/decision.ts';
import { toMs, toTimestamp } from '../kernel/time.ts';
import type { Issuer, ModelProvider, TenantEvent } from './events.ts';
import { DRAIN_MS_MAX } from './limits.ts';

export type KeyRole = 'application' | 'management' | 'studio';

export interface TenantKey {
  readonly id: string;
  readonly role: KeyRole;
  /** SHA-256 of the key, hex. */
  readonly hash: string;
  readonly createdAt: string;
}

/** The executor of one agent: an agent has at most one credential. */
export interface TenantExecutor {
  readonly agentId: string;
  readonly implementationVersion: string | null;
  /** SHA-256 of the token, hex. */
  readonly hash: string;
  readonly updatedAt: string;
}

/** What a tenant has configured of a provider of models. */
export interface ProviderState {
  /** Null: the provider's own address. */
  readonly baseUrl: string | null;
  /** Where the key is in the secret store; null: none. */
  readonly credential: { readonly secretId: string; readonly savedAt: string } | null;
}
export type Providers = Readonly<Partial<Record<ModelProvider, ProviderState>>>;

/** Of a provider that is not configured. */
export const NO_PROVIDER: ProviderState = { baseUrl: null, credential: null };

/** While no new message is accepted, and the tenant may open again. */
export interface TenantDrain {
  /** Position of the commit that closed the tenant: no message was accepted since. */
  readonly since: number;
  /** When the last request that drains it gives up. */
  readonly until: string;
}

export interface KnownTenant {
  readonly status: 'open' | 'draining' | 'deleting';
  /** Null: the tenant is not draining. */
  readonly drain: TenantDrain | null;
  readonly id: string;
  readonly name: string;
  readonly keys: readonly TenantKey[];
  readonly executors: readonly TenantExecutor[];
  readonly budgets: readonly BudgetDefinition[];
  readonly issuers: Readonly<Record<string, Issuer>>;
  /** The selection for turns that name no model. */
  readonly model: ModelSelection | null;
  readonly providers: Providers;
  /** What it pays for models, before the catalogue's prices. */
  readonly prices: readonly TenantModelPrice[];
  /** Whether a seed made the fixture model the tenant's selection, for as long as it selects no other. */
  readonly fixtureModel: boolean;
  readonly bodyHash: string;
  readonly idempotencyKey: string | null;
  readonly createdAt: string;
  readonly updatedAt: string;
}

/** absent → open ⇄ draining → deleting → absent (its history is gone). A deleting tenant never opens again. */
export type TenantState = { readonly status: 'absent' } | KnownTenant;

export const initialTenant: TenantState = { status: 'absent' };

export function evolveTenant(state: TenantState, event: TenantEvent, meta: EventMeta): TenantState {
  if (event.type === 'tenant.created') return state.status === 'absent' ? created(event.data, meta.at) : state;
  if (state.status === 'absent') return state;
  const next = { ...state, updatedAt: meta.at };
  switch (event.type) {
    case 'key.saved': {
      const { keyId: id, role, hash } = event.data;
      const others = state.keys.filter((key) => key.id !== id);
      const createdAt = state.keys.find((key) => key.id === id)?.createdAt ?? meta.at;
      return { ...next, keys: [...others, { id, role, hash, createdAt }] };
    }
    case 'key.deleted':
      return { ...next, keys: state.keys.filter((key) => key.id !== event.data.keyId) };
    case 'executor.saved': {
      const { agentId, implementationVersion, hash } = event.data;
      const others = state.executors.filter((executor) => executor.agentId !== agentId);
      return { ...next, executors: [...others, { agentId, implementationVersion, hash, updatedAt: meta.at }] };
    }
    case 'executor.deleted':
      return { ...next, executors: state.executors.filter(({ agentId }) => agentId !== event.data.agentId) };
    case 'issuer.saved':
      return { ...next, issuers: { ...state.issuers, [event.data.name]: event.data.issuer } };
    case 'issuer.deleted': {
      const { [event.data.name]: _gone, ...issuers } = state.issuers;
      return { ...next, issuers };
    }
    case 'budgets.saved':
      return { ...next, budgets: event.data.budgets, prices: event.data.prices ?? state.prices };
    case 'model.saved': {
      const { baseUrl, ...model } = event.data;
      return { ...next, model, providers: provided(state, model.provider, { baseUrl }) };
    }
    case 'model.selected':
      return { ...next, model: { ...state.model, ...event.data } };
    case 'model-credential.saved': {
      const { provider, secretId } = event.data;
      return { ...next, providers: provided(state, provider, { credential: { secretId, savedAt: meta.at } }) };
    }
    case 'model-credential.deleted':
      return { ...next, providers: provided(state, event.data.provider, { credential: null }) };
    case 'tenant.seeded':
      return { ...next, fixtureModel: true };
    case 'tenant.drained':
      return state.status === 'deleting' ? state : { ...next, status: 'draining', drain: drained(state, event, meta) };
    case 'tenant.reopened':
      return state.status === 'draining' ? { ...next, status: 'open', drain: null } : state;
    case 'tenant.deleting':
      return { ...next, status: 'deleting', drain: null };
  }
}

/** Where no end is recorded, the tenant is drained for as long as any request may have asked for. */
function drained(
  { drain }: KnownTenant,
  { data }: Extract<TenantEvent, { type: 'tenant.drained' }>,
  { at, position }: EventMeta,
): TenantDrain {
  return { since: drain?.since ?? position, until: data.until ?? toTimestamp(toMs(at) + DRAIN_MS_MAX) };
}

function provided({ providers }: KnownTenant, name: ModelProvider, change: Partial<ProviderState>): Providers {
  return { ...providers, [name]: { ...NO_PROVIDER, ...providers[name], ...change } };
}

function created(data: Extract<TenantEvent, { type: 'tenant.created' }>['data'], at: string): KnownTenant {
  return {
    status: 'open',
    drain: null,
    id: data.tenantId,
    name: data.name,
    keys: [
      { id: data.principalId, role: 'application', hash: data.credentialHash, createdAt: at },
      { id: 'studio', role: 'studio', hash: data.studioCredentialHash, createdAt: at },
    ],
    executors: [],
    budgets: [],
    issuers: {},
    model: null,
    providers: {},
    prices: [],
    fixtureModel: false,
    bodyHash: data.bodyHash,
    idempotencyKey: data.idempotencyKey,
    createdAt: at,
    updatedAt: at,
  };
}

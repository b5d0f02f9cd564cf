import { limitsOf } from '../budget/decide.ts';
import type { BudgetRaise } from '../budget/decide.ts';
import type { BudgetDefinition } from '../budget/events.ts';
import type { Decision } from '../kernel/decision.ts';
import { reject } from '../kernel/rejection.ts';
import { toMs } from '../kernel/time.ts';
import type { ActiveWork, Issuer, TenantEvent } from './events.ts';
import { DRAIN_MARGIN_MS, ISSUERS_MAX, KEYS_MAX } from './limits.ts';
import type { TenantState } from './state.ts';

export interface CreateTenant {
  readonly tenantId: string;
  readonly name: string;
  readonly principalId: string;
  /** SHA-256 of the client's own key, or of the key that the Host made for this request. */
  readonly credentialHash: string;
  readonly studioCredentialHash: string;
  /** SHA-256 of the canonical body without requestId and idempotencyKey. */
  readonly bodyHash: string;
  readonly idempotencyKey: string | null;
}

/** Whether the tenant was created now or by an earlier request with the same body. */
export interface CreatedTenant {
  readonly replayed: boolean;
}

/** A replay returns the tenant again; other content under the same id or key is refused. */
export function decideCreateTenant(state: TenantState, command: CreateTenant): Decision<TenantEvent, CreatedTenant> {
  if (state.status === 'absent') {
    return { kind: 'accepted', events: [{ type: 'tenant.created', data: command }], reply: { replayed: false } };
  }
  if (state.status === 'deleting')
    return reject('tenant_conflict', `Tenant ${command.tenantId} is being deleted. Try again later.`);
  if (state.bodyHash === command.bodyHash) return { kind: 'unchanged', reply: { replayed: true } };
  if (command.idempotencyKey !== null && state.idempotencyKey === command.idempotencyKey) {
    return reject(
      'idempotency_conflict',
      'This idempotencyKey was used with another body. Use a new key for a new tenant.',
    );
  }
  return reject('tenant_conflict', `Tenant ${command.tenantId} exists with other content. Choose another tenantId.`);
}

export interface SaveKey {
  readonly keyId: string;
  readonly role: 'application' | 'management';
  readonly hash: string;
}

export interface SavedKey {
  readonly rotated: boolean;
}

/** A new key, or a new secret or role for the one with this id; the commit invalidates the old secret. */
export function decideSaveKey(state: TenantState, command: SaveKey): Decision<TenantEvent, SavedKey> {
  if (state.status === 'absent') return reject('not_found', 'No such tenant.');
  const present = state.keys.find((key) => key.id === command.keyId);
  if (present !== undefined && present.hash === command.hash && present.role === command.role) {
    return { kind: 'unchanged', reply: { rotated: false } };
  }
  const isTaken =
    state.keys.some(({ id, hash }) => id !== command.keyId && hash === command.hash) ||
    state.executors.some(({ hash }) => hash === command.hash);
  if (isTaken)
    return reject('conflict', 'Another key or executor of this tenant has the same secret; each needs its own.');
  if (present === undefined && state.keys.length >= KEYS_MAX) return tooMany('keys', KEYS_MAX);
  const takesLast =
    present?.role === 'application' && command.role !== 'application' && isLastApplicationKey(state, present.id);
  if (takesLast) return lastKey();
  const rotated = present !== undefined;
  return { kind: 'accepted', events: [{ type: 'key.saved', data: { ...command, rotated } }], reply: { rotated } };
}

export function decideDeleteKey(state: TenantState, keyId: string): Decision<TenantEvent, null> {
  const key = state.status === 'absent' ? undefined : state.keys.find(({ id }) => id === keyId);
  if (state.status === 'absent' || key === undefined || key.role === 'studio')
    return reject('not_found', 'No such key.');
  if (isLastApplicationKey(state, keyId)) return lastKey();
  return { kind: 'accepted', events: [{ type: 'key.deleted', data: { keyId } }], reply: null };
}

function isLastApplicationKey(state: Exclude<TenantState, { status: 'absent' }>, keyId: string): boolean {
  const applications = state.keys.filter(({ role }) => role === 'application');
  return applications.length === 1 && applications[0]?.id === keyId;
}

function lastKey() {
  return reject(
    'conflict',
    'This is the last application key; without one the tenant could not be used. Save another first.',
  );
}

/** The refusal of what would exceed a limit on a count. */
export function tooMany(what: 'keys' | 'issuers' | 'executors', limit: number) {
  return {
    ...reject('limit_exceeded', `A tenant has at most ${limit} ${what}. Delete one first.`, {
      details: { limit: what },
    }),
  };
}

export function decideSaveIssuer(state: TenantState, name: string, issuer: Issuer): Decision<TenantEvent, null> {
  if (state.status === 'absent') return reject('not_found', 'No such tenant.');
  if (!Object.hasOwn(state.issuers, name) && Object.keys(state.issuers).length >= ISSUERS_MAX)
    return tooMany('issuers', ISSUERS_MAX);
  const taken = Object.entries(state.issuers).find(
    ([other, { issuer: iss }]) => other !== name && iss === issuer.issuer,
  );
  if (taken !== undefined)
    return reject('conflict', `The issuer ${issuer.issuer} is registered under the name ${taken[0]}.`);
  return { kind: 'accepted', events: [{ type: 'issuer.saved', data: { name, issuer } }], reply: null };
}

export function decideDeleteIssuer(state: TenantState, name: string): Decision<TenantEvent, null> {
  if (state.status === 'absent' || !Object.hasOwn(state.issuers, name)) return reject('not_found', 'No such issuer.');
  return { kind: 'accepted', events: [{ type: 'issuer.deleted', data: { name } }], reply: null };
}

export interface DrainTenant {
  readonly activeWork: ActiveWork;
  /** When the request gives up. */
  readonly until: string;
}

/**
 * Before anything is deleted, and whatever the policy: no new work may begin while running work is counted. A drain lasts
 * until the last of its requests gives up.
 */
export function decideDrain(
  state: TenantState,
  { activeWork, until }: DrainTenant,
): Decision<TenantEvent, { deleting: boolean }> {
  if (state.status === 'absent') return reject('not_found', 'No such tenant.');
  const deleting = state.status === 'deleting';
  const isCovered = state.drain !== null && toMs(state.drain.until) >= toMs(until);
  if (deleting || isCovered) return { kind: 'unchanged', reply: { deleting } };
  return { kind: 'accepted', events: [{ type: 'tenant.drained', data: { activeWork, until } }], reply: { deleting } };
}

export interface ReopenTenant {
  /** Of the request that gives up. */
  readonly until: string;
  /** Null: they could not be counted. */
  readonly activeTurns: number | null;
}

/**
 * The request deletes nothing: the tenant is open again, as if nothing had been requested, unless another request drains it
 * for longer.
 */
export function decideReopen(
  state: TenantState,
  { until, activeTurns }: ReopenTenant,
): Decision<TenantEvent, { isOpen: boolean }> {
  if (state.status === 'absent') return reject('not_found', 'No such tenant.');
  if (state.drain?.until !== until) return { kind: 'unchanged', reply: { isOpen: state.status === 'open' } };
  return { kind: 'accepted', events: [reopened(activeTurns)], reply: { isOpen: true } };
}

/** A drain whose requests have all ended without a word, with their node, is over when their time is. */
export function decideReopenOverdue(state: TenantState, nowMs: number): Decision<TenantEvent, null> {
  const drain = state.status === 'absent' ? null : state.drain;
  if (drain === null || nowMs < toMs(drain.until) + DRAIN_MARGIN_MS) return { kind: 'unchanged', reply: null };
  return { kind: 'accepted', events: [reopened(null)], reply: null };
}

function reopened(activeTurns: number | null): TenantEvent {
  const data = activeTurns === null ? { activeTurns: 0, interrupted: true as const } : { activeTurns };
  return { type: 'tenant.reopened', data };
}

export interface DeleteTenant {
  readonly activeWork: ActiveWork;
  /** The drain in which nothing was found to be active; null: there was none. */
  readonly since: number | null;
}

/** There is no way back. What was counted in one drain says nothing once the tenant has been open again. */
export function decideDelete(state: TenantState, { activeWork, since }: DeleteTenant): Decision<TenantEvent, null> {
  if (state.status === 'absent') return reject('not_found', 'No such tenant.');
  if (state.status === 'deleting') return { kind: 'unchanged', reply: null };
  if (state.drain === null || state.drain.since !== since) {
    return reject('active_work', 'The tenant was opened again before its deletion could begin. Send it again.', {
      details: { activeTurns: 0 },
    });
  }
  return { kind: 'accepted', events: [{ type: 'tenant.deleting', data: { activeWork } }], reply: null };
}

/** The list as it was last saved: it says that there are budgets, and who set them. */
export function decideSaveBudgetList(
  state: TenantState,
  budgets: readonly BudgetDefinition[],
): Decision<TenantEvent, null> {
  if (state.status === 'absent') return reject('not_found', 'No such tenant.');
  if (JSON.stringify(state.budgets) === JSON.stringify(budgets)) return { kind: 'unchanged', reply: null };
  return { kind: 'accepted', events: [{ type: 'budgets.saved', data: { budgets: [...budgets] } }], reply: null };
}

/**
 * One of the list has other limits now. A list that was replaced meanwhile may no longer have it: then nothing is
 * recorded.
 */
export function decideRaiseListedBudget(state: TenantState, raise: BudgetRaise): Decision<TenantEvent, null> {
  if (state.status === 'absent') return reject('not_found', 'No such tenant.');
  const budgets = state.budgets.map((one) => (one.id === raise.budgetId ? { ...one, ...limitsOf(raise) } : one));
  return decideSaveBudgetList(state, budgets);
}

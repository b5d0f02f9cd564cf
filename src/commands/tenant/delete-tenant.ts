import { reject } from '../../domain/kernel/rejection.ts';
import type { Rejection } from '../../domain/kernel/rejection.ts';
import { decideDelete, decideDrain, decideReopen } from '../../domain/tenant/decide.ts';
import type { ActiveWork } from '../../domain/tenant/events.ts';
import { delay } from '../../lib/backoff.ts';
import { timestamp } from '../../lib/clock.ts';
import type { Clock } from '../../lib/clock.ts';
import type { CommitMeta } from '../repository.ts';
import { changeTenant } from './change-tenant.ts';
import type { ChangeTenantInput, ChangeTenantDeps } from './change-tenant.ts';

export interface DeleteTenantDeps extends ChangeTenantDeps {
  /** Sessions of the tenant that have a turn, with everything that was acknowledged before the call. */
  readonly activeSessions: (tenantId: string) => Promise<readonly string[]>;
  /** Cancels a session's turn, whichever it is. */
  readonly cancelTurn: (tenantId: string, sessionId: string, meta: CommitMeta) => Promise<void>;
  /** Whether the deletion of a tenant is in progress: its own history may no longer be readable. */
  readonly isErasing: (tenantId: string) => boolean;
  /** Removes everything of a tenant that is being deleted; safe to repeat. Resolves when nothing is left. */
  readonly erase: (tenantId: string) => Promise<void>;
  readonly clock: Clock;
}

export interface DeleteTenantInput extends ChangeTenantInput {
  readonly activeWork: ActiveWork;
  /** How long running turns may take to end (drain), or to be cancelled, ms. */
  readonly timeoutMs: number;
}

/** Between two polls for what is still running. */
const POLL_MS = 200;
/** How long an answer waits for the tenant to be open again when the log or the database has failed. */
const REOPEN_MS = 5_000;

/**
 * Deletes a tenant. Whatever the policy, it drains first: only when no more messages can come in does "nothing is
 * active" stay true. What keeps it from being deleted opens it again; where even that fails, or the node ends, a sweep does
 * once the time is over. After `tenant.deleting` is recorded there is no way back, and any node that finds the tenant in
 * that state, now or after a crash, continues (engine/tenant-deletion.ts).
 */
export async function deleteTenant(
  deps: DeleteTenantDeps,
  input: DeleteTenantInput,
): Promise<{ readonly kind: 'done' } | Rejection> {
  const { tenantId } = input;
  if (deps.isErasing(tenantId)) {
    await deps.erase(tenantId);
    return { kind: 'done' };
  }
  // A fold from before an earlier deletion would mistake the tenant for one still being deleted.
  await deps.tenants.refresh({ tenant: tenantId, kind: 'tenant', id: tenantId });
  const until = timestamp(deps.clock() + waitMs(input));
  try {
    const refused = await begin(deps, input, until);
    if (refused !== null) return refused;
  } catch (error) {
    await reopenSoon(deps, input, until);
    throw error;
  }
  await deps.erase(tenantId);
  return { kind: 'done' };
}

/** Up to where there is no way back. Returns why that was not reached. */
async function begin(deps: DeleteTenantDeps, input: DeleteTenantInput, until: string): Promise<Rejection | null> {
  const { activeWork } = input;
  const drained = await changeTenant(deps, input, (state) => decideDrain(state, { activeWork, until }));
  if (drained.kind === 'rejected') return drained;
  if (drained.reply.deleting) return null;
  const since = drained.tenant.drain?.since ?? null;
  const active = await settle(deps, input);
  if (active.length > 0) return await giveUp(deps, input, { until, activeTurns: active.length });
  const deleting = await changeTenant(deps, input, (state) => decideDelete(state, { activeWork, since }));
  return deleting.kind === 'rejected' ? deleting : null;
}

function waitMs({ activeWork, timeoutMs }: DeleteTenantInput): number {
  return activeWork === 'refuse' ? 0 : timeoutMs;
}

/** Waits as long as the policy allows. Returns the sessions that are still active. */
async function settle(deps: DeleteTenantDeps, input: DeleteTenantInput): Promise<readonly string[]> {
  const { tenantId, activeWork, actor, causation } = input;
  const deadline = performance.now() + waitMs(input);
  for (;;) {
    const active = await deps.activeSessions(tenantId);
    if (active.length === 0) return active;
    if (activeWork === 'cancel') {
      for (const sessionId of active) await deps.cancelTurn(tenantId, sessionId, { actor, causation });
    }
    if (performance.now() >= deadline) return active;
    await delay(POLL_MS);
  }
}

async function giveUp(
  deps: DeleteTenantDeps,
  input: DeleteTenantInput,
  { until, activeTurns }: { readonly until: string; readonly activeTurns: number },
): Promise<Rejection> {
  const reopened = await changeTenant(deps, input, (state) => decideReopen(state, { until, activeTurns }));
  if (reopened.kind === 'rejected') return reopened;
  const now = reopened.reply.isOpen ? 'the tenant is open again' : 'another request to delete the tenant continues';
  const message = `${activeTurns} turns are active; ${now}. Wait for them, or send activeWork=drain or cancel.`;
  return reject('active_work', message, { details: { activeTurns } });
}

/** After a failure, which is what the caller is told. */
async function reopenSoon(deps: DeleteTenantDeps, input: DeleteTenantInput, until: string): Promise<void> {
  const answered = new AbortController();
  const reopening = changeTenant(deps, input, (state) => decideReopen(state, { until, activeTurns: null }));
  // The sweep tries it again.
  const tried = reopening.catch(() => null);
  await Promise.race([tried, delay(REOPEN_MS, answered.signal)]);
  answered.abort();
}

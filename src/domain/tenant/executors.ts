import type { Decision } from '../kernel/decision.ts';
import { reject } from '../kernel/rejection.ts';
import { tooMany } from './decide.ts';
import type { TenantEvent } from './events.ts';
import { EXECUTORS_MAX } from './limits.ts';
import type { KnownTenant, TenantExecutor, TenantState } from './state.ts';

/** One executor as it is to be registered: the credential of an agent, and what runs behind it. */
export interface SaveExecutor {
  readonly agentId: string;
  readonly implementationVersion: string | null;
  /** SHA-256 of its token, hex. */
  readonly hash: string;
}

export interface SavedExecutor {
  readonly agentId: string;
  readonly implementationVersion: string | null;
  /** Whether the agent's executor had another token before, which is now invalid. */
  readonly rotated: boolean;
}

/**
 * Registers executors, all of them or none. Those not named stay as they are. An agent is named once in `executors`.
 * Tokens may be swapped within one request: what counts is the result.
 */
export function decideSaveExecutors(
  state: TenantState,
  executors: readonly SaveExecutor[],
): Decision<TenantEvent, readonly SavedExecutor[]> {
  if (state.status === 'absent') return reject('not_found', 'No such tenant.');
  const present = new Map(state.executors.map((executor) => [executor.agentId, executor]));
  const after = new Map<string, SaveExecutor>(present);
  for (const executor of executors) after.set(executor.agentId, executor);
  if (after.size > EXECUTORS_MAX && after.size > present.size) return tooMany('executors', EXECUTORS_MAX);
  const shared = sharesSecret(state, [...after.values()]);
  if (shared !== null) {
    const message = `Another key or executor of this tenant has the token of ${shared}; each needs its own.`;
    return reject('conflict', message);
  }
  const saved = executors.map((executor) => {
    const before = present.get(executor.agentId);
    return { ...executor, rotated: before !== undefined && before.hash !== executor.hash };
  });
  const reply = saved.map(({ agentId, implementationVersion, rotated }) => {
    return { agentId, implementationVersion, rotated };
  });
  const changed = saved.filter((executor) => !isSame(executor, present.get(executor.agentId)));
  if (changed.length === 0) return { kind: 'unchanged', reply };
  return { kind: 'accepted', events: changed.map((data) => ({ type: 'executor.saved', data })), reply };
}

/** The agent whose token another agent of the tenant has too; null: none. */
function sharesSecret({ keys }: KnownTenant, executors: readonly SaveExecutor[]): string | null {
  const taken = new Set(keys.map(({ hash }) => hash));
  for (const { agentId, hash } of executors) {
    if (taken.has(hash)) return agentId;
    taken.add(hash);
  }
  return null;
}

function isSame(executor: SaveExecutor, present: TenantExecutor | undefined): boolean {
  return (
    present !== undefined &&
    present.hash === executor.hash &&
    present.implementationVersion === executor.implementationVersion
  );
}

/** The commit invalidates the token; its executor's claims end with their leases. */
export function decideDeleteExecutor(state: TenantState, agentId: string): Decision<TenantEvent, null> {
  const isThere = state.status !== 'absent' && state.executors.some((executor) => executor.agentId === agentId);
  if (!isThere) return reject('not_found', 'No such executor.');
  return { kind: 'accepted', events: [{ type: 'executor.deleted', data: { agentId } }], reply: null };
}

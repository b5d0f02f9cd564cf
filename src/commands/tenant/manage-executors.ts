import type { AgentEvent } from '../../domain/agent/events.ts';
import type { AgentState } from '../../domain/agent/state.ts';
import { reject } from '../../domain/kernel/rejection.ts';
import type { Rejection } from '../../domain/kernel/rejection.ts';
import { decideDeleteExecutor, decideSaveExecutors } from '../../domain/tenant/executors.ts';
import type { SavedExecutor } from '../../domain/tenant/executors.ts';
import { sha256Hex } from '../../lib/hash.ts';
import type { Repository } from '../repository.ts';
import { changeTenant } from './change-tenant.ts';
import type { Changed, ChangeTenantInput, ChangeTenantDeps } from './change-tenant.ts';

export interface ManageExecutorDeps extends ChangeTenantDeps {
  readonly agents: Repository<AgentState, AgentEvent>;
}

export interface ExecutorToSave {
  readonly agentId: string;
  readonly implementationVersion: string | null;
  /** Chosen by the application; only its hash is kept. */
  readonly token: string;
}

/**
 * Registers executors, all of them or none. Their agents must exist; an archived one may have an executor, because its
 * sessions continue.
 */
export async function saveExecutors(
  deps: ManageExecutorDeps,
  input: ChangeTenantInput & { readonly executors: readonly ExecutorToSave[] },
): Promise<Changed<readonly SavedExecutor[]> | Rejection> {
  const { tenantId, executors } = input;
  const known = await Promise.all(executors.map(async ({ agentId }) => await isAgent(deps, tenantId, agentId)));
  const unknown = executors.find((_, index) => known[index] !== true);
  if (unknown !== undefined)
    return reject('not_found', `No such agent: ${unknown.agentId}. Save the agent before its executor.`);
  const hashed = executors.map(({ token, ...executor }) => ({ ...executor, hash: sha256Hex(token) }));
  return await changeTenant(deps, input, (state) => decideSaveExecutors(state, hashed));
}

/** Agents are archived, never removed, so a fold that has one need not be brought up to date. */
async function isAgent({ agents }: ManageExecutorDeps, tenant: string, id: string): Promise<boolean> {
  const ref = { tenant, kind: 'agent', id } as const;
  const { state, cached } = await agents.load(ref);
  if (state.status !== 'absent') return true;
  return cached && (await agents.refresh(ref)).state.status !== 'absent';
}

export async function deleteExecutor(
  deps: ChangeTenantDeps,
  input: ChangeTenantInput & { readonly agentId: string },
): Promise<Changed<null> | Rejection> {
  return await changeTenant(deps, input, (state) => decideDeleteExecutor(state, input.agentId));
}

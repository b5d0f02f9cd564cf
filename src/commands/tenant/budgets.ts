import { decideRaiseBudget, decideSaveBudgets } from '../../domain/budget/decide.ts';
import type { BudgetRaise } from '../../domain/budget/decide.ts';
import type { BudgetDefinition, BudgetEvent } from '../../domain/budget/events.ts';
import { newBudgets } from '../../domain/budget/opening.ts';
import type { LedgerReading } from '../../domain/budget/opening.ts';
import type { BudgetState } from '../../domain/budget/state.ts';
import type { Rejection } from '../../domain/kernel/rejection.ts';
import { decideRaiseListedBudget, decideSaveBudgetList } from '../../domain/tenant/decide.ts';
import { timestamp } from '../../lib/clock.ts';
import type { Clock } from '../../lib/clock.ts';
import { faultPoint } from '../../lib/fault-points.ts';
import type { AggregateRef } from '../../streams/subjects.ts';
import type { CommandLoop, Executed } from '../execute.ts';
import type { Repository } from '../repository.ts';
import { changeTenant } from './change-tenant.ts';
import type { Changed, ChangeTenantInput, ChangeTenantDeps } from './change-tenant.ts';

export interface BudgetDeps {
  readonly loop: CommandLoop;
  readonly budgets: Repository<BudgetState, BudgetEvent>;
  readonly clock: Clock;
}

export interface SaveBudgetDeps extends BudgetDeps, ChangeTenantDeps {
  /** What the ledger of model calls knows about these budgets, with everything acknowledged before. */
  readonly ledger: (tenant: string, request: LedgerRequest) => Promise<LedgerReading>;
}

export interface LedgerRequest {
  readonly budgets: readonly BudgetDefinition[];
  /** Whose periods are meant. */
  readonly at: string;
  /** Asked once the sums are fixed: whatever was settled later than its answer is in none of them. */
  readonly settled: () => Promise<BudgetState['settled']>;
}

/** One aggregate for all budgets of a tenant: a call is checked against all of them together. */
export function budgetsRef(tenant: string): AggregateRef {
  return { tenant, kind: 'budget', id: 'budgets' };
}

/**
 * Replaces the list. The tenant's own entry, which turns the check on, comes first: from then on workers settle what ends,
 * and what had ended before is in the ledger, which is read next. After a crash in between, repeating the request
 * completes it.
 */
export async function saveBudgets(
  deps: SaveBudgetDeps,
  input: ChangeTenantInput & { readonly budgets: readonly BudgetDefinition[] },
): Promise<Changed<null> | Rejection> {
  const { tenantId, actor, causation, budgets } = input;
  const listed = await changeTenant(deps, input, (state) => decideSaveBudgetList(state, budgets));
  if (listed.kind === 'rejected') return listed;
  await faultPoint('budgets.listed');
  const ledger = await readLedger(deps, tenantId, budgets);
  const decide = (state: BudgetState) => decideSaveBudgets(state, budgets, ledger);
  const saved = await deps.loop.execute(deps.budgets, budgetsRef(tenantId), { actor, causation, decide });
  return saved.kind === 'rejected' ? saved : listed;
}

async function readLedger(
  deps: SaveBudgetDeps,
  tenant: string,
  definitions: readonly BudgetDefinition[],
): Promise<LedgerReading | null> {
  const budgets = newBudgets(await readBudgets(deps, tenant), definitions);
  if (budgets.length === 0) return null;
  const settled = async () => (await readBudgets(deps, tenant)).settled;
  return await deps.ledger(tenant, { budgets, at: timestamp(deps.clock()), settled });
}

/** The budgets with everything acknowledged anywhere. */
export async function readBudgets({ budgets }: BudgetDeps, tenant: string): Promise<BudgetState> {
  return (await budgets.refresh(budgetsRef(tenant))).state;
}

/**
 * Raises one budget of the list. The tenant's own list, which the audit trail shows with who changed it, comes second:
 * what waits continues after the first, and after a crash in between, repeating the command completes it.
 */
export async function raiseBudget(
  deps: BudgetDeps & ChangeTenantDeps,
  input: ChangeTenantInput & BudgetRaise,
): Promise<Executed<null> | Rejection> {
  const { tenantId, actor, causation, ...raise } = input;
  const decide = (state: BudgetState) => decideRaiseBudget(state, raise, timestamp(deps.clock()));
  const raised = await deps.loop.execute(deps.budgets, budgetsRef(tenantId), { actor, causation, decide });
  if (raised.kind === 'rejected') return raised;
  const listed = await changeTenant(deps, input, (state) => decideRaiseListedBudget(state, raise));
  return listed.kind === 'rejected' ? listed : raised;
}

import { decideRaiseBudget, decideSaveBudgets } from '../../domain/budget/decide.ts';
import type { BudgetDefinition, BudgetEvent } from '../../domain/budget/events.ts';
import type { BudgetState } from '../../domain/budget/state.ts';
import type { Rejection } from '../../domain/kernel/rejection.ts';
import { decideSaveBudgetList } from '../../domain/tenant/decide.ts';
import { timestamp } from '../../lib/clock.ts';
import type { Clock } from '../../lib/clock.ts';
import type { AggregateRef } from '../../streams/subjects.ts';
import type { CommandLoop, Executed } from '../execute.ts';
import type { Repository } from '../repository.ts';
import { changeTenant } from './change-tenant.ts';
import type { Changed, ChangeTenantInput, ChangeTenantParts } from './change-tenant.ts';

export interface BudgetParts {
  readonly loop: CommandLoop;
  readonly budgets: Repository<BudgetState, BudgetEvent>;
  readonly clock: Clock;
}

/** One aggregate for all budgets of a tenant: a call is held against them together. */
export function budgetsRef(tenant: string): AggregateRef {
  return { tenant, kind: 'budget', id: 'budgets' };
}

/**
 * Replaces the list. The spending side learns of it first, the tenant's own entry, which turns the check on, last: after
 * a crash in between the same request again ends it.
 */
export async function saveBudgets(
  parts: BudgetParts & ChangeTenantParts,
  input: ChangeTenantInput & { readonly budgets: readonly BudgetDefinition[] },
): Promise<Changed<null> | Rejection> {
  const { tenantId, actor, causation, budgets } = input;
  const decide = (state: BudgetState) => decideSaveBudgets(state, budgets);
  const saved = await parts.loop.execute(parts.budgets, budgetsRef(tenantId), { actor, causation, decide });
  if (saved.kind === 'rejected') return saved;
  return await changeTenant(parts, input, (state) => decideSaveBudgetList(state, budgets));
}

/** The budgets with everything acknowledged anywhere. */
export async function readBudgets({ budgets }: BudgetParts, tenant: string): Promise<BudgetState> {
  return (await budgets.refresh(budgetsRef(tenant))).state;
}

export async function raiseBudget(
  parts: BudgetParts,
  input: ChangeTenantInput & {
    readonly budgetId: string;
    readonly limitUsd?: number | undefined;
    readonly limitTokens?: number | undefined;
  },
): Promise<Executed<null> | Rejection> {
  const { tenantId, actor, causation, ...raise } = input;
  const decide = (state: BudgetState) => decideRaiseBudget(state, raise, timestamp(parts.clock()));
  return await parts.loop.execute(parts.budgets, budgetsRef(tenantId), { actor, causation, decide });
}

import type { BudgetDefinition, BudgetOpening, CountedCall } from './events.ts';
import { counts, hasUsed, periodKey, sameBudget } from './state.ts';
import type { BudgetState } from './state.ts';

/** What the ledger of model calls knew at one moment, for budgets that are about to begin. */
export interface LedgerReading {
  /** The periods are those at this time. */
  readonly at: string;
  /** Calls that had ended in each budget's period, by the budget's id. `calls`: those that used anything. */
  readonly spent: readonly Omit<BudgetOpening, 'periodKey'>[];
  /** Calls that had been requested and had not ended. */
  readonly pending: readonly Pick<CountedCall, 'callId' | 'agentId' | 'sessionId'>[];
  /** Of the calls that are settled in the budgets' own fold, those that are in the sums. */
  readonly counted: readonly string[];
}

/** When the period of a time began; `total` begins before everything. */
export function periodStart(period: BudgetDefinition['period'], at: string): string {
  const key = periodKey(period, at);
  return period === 'total' ? '' : `${key}${period === 'month' ? '-01' : ''}T00:00:00.000Z`;
}

/** Those of a list that are new: a budget that stays knows what was spent of it. */
export function newBudgets(
  { budgets }: BudgetState,
  definitions: readonly BudgetDefinition[],
): readonly BudgetDefinition[] {
  return definitions.filter((one) => !budgets.some((known) => sameBudget(known, one)));
}

/**
 * What a new budget has spent already. A call is settled before its end is in the log: what was settled and is not in
 * the ledger's sums comes from the fold, so that each call counts once.
 */
export function openingsOf(
  state: BudgetState,
  definitions: readonly BudgetDefinition[],
  ledger: LedgerReading,
): BudgetOpening[] {
  const counted = new Set(ledger.counted);
  const unseen = state.settled.filter((call) => hasUsed(call) && !counted.has(call.callId));
  return newBudgets(state, definitions).flatMap((budget) => {
    const known = ledger.spent.find(({ budgetId }) => budgetId === budget.id);
    if (known === undefined) return [];
    const key = periodKey(budget.period, ledger.at);
    const more = unseen.filter((call) => counts(budget, call) && periodKey(budget.period, call.at) === key);
    const opening = {
      budgetId: budget.id,
      periodKey: key,
      costUsd: more.reduce((sum, { costUsd }) => sum + costUsd, known.costUsd),
      tokens: more.reduce((sum, { tokens }) => sum + tokens, known.tokens),
      calls: known.calls + more.length,
    };
    return opening.calls === 0 && opening.tokens === 0 && opening.costUsd === 0 ? [] : [opening];
  });
}

/**
 * Unfinished calls that started before they were checked against a budget: they count as in progress, at the average
 * cost of a call, until they are settled.
 */
export function startedBefore(
  state: BudgetState,
  definitions: readonly BudgetDefinition[],
  { openings, ledger }: { readonly openings: readonly BudgetOpening[]; readonly ledger: LedgerReading },
): CountedCall[] {
  const ended = new Set(state.settled.map(({ callId }) => callId));
  const unknown = ledger.pending.filter(({ callId }) => state.underWay[callId] === undefined && !ended.has(callId));
  return unknown.map((call) => {
    const known = openings.filter(({ budgetId, calls }) => {
      const budget = definitions.find(({ id }) => id === budgetId);
      return budget !== undefined && calls > 0 && counts(budget, call);
    });
    const most = (of: (opening: BudgetOpening) => number): number => Math.max(0, ...known.map(of));
    const { callId, agentId, sessionId } = call;
    return {
      callId,
      agentId,
      sessionId,
      costUsd: most(({ costUsd, calls }) => costUsd / calls),
      tokens: Math.ceil(most(({ tokens, calls }) => tokens / calls)),
    };
  });
}

import type { EventMeta } from '../kernel/decision.ts';
import { toMs } from '../kernel/time.ts';
import { evolveAllotments, isOfAllotment, recalled } from './allotments.ts';
import type { Allotments } from './allotments.ts';
import type { BudgetDefinition, BudgetEvent, BudgetOpening, CountedCall } from './events.ts';

export interface Budget extends BudgetDefinition {
  /** The period that the spending below belongs to: a day, a month, or `total`. */
  readonly periodKey: string;
  readonly spentUsd: number;
  readonly spentTokens: number;
  /**
   * Calls that used anything since the budget exists; their average cost is expected of a call about which nothing is
   * known.
   */
  readonly calls: number;
  readonly callsUsd: number;
  readonly callsTokens: number;
}

export interface BudgetState {
  readonly budgets: readonly Budget[];
  /** Calls that were allowed to start and have not ended, by id. */
  readonly underWay: Readonly<Record<string, CountedCall & { readonly at: string }>>;
  /** The newest calls that have ended, oldest first: none of them counts again, and a new budget reads them. */
  readonly settled: readonly (CountedCall & { readonly at: string })[];
  /** What nodes may spend without asking, by id. */
  readonly allotments: Allotments;
}

export const initialBudgets: BudgetState = { budgets: [], underWay: {}, settled: [], allotments: {} };

/** A call is settled right before its end is recorded, and again only when that was not acknowledged: a moment later. */
const SETTLED_MAX = 100;

/** A call that has not ended after this long, ms, never will: it is assumed to have cost what was expected. */
export const LOST_AFTER_MS = 3_600_000;

/** Part of a snapshot's name: raise it whenever the meaning of the folded state changes. */
export const BUDGET_FOLD_VERSION = 5;

/** Total: an event that cannot apply changes nothing. */
export function evolveBudgets(state: BudgetState, event: BudgetEvent, { at }: EventMeta): BudgetState {
  if (isOfAllotment(event)) return { ...state, allotments: evolveAllotments(state.allotments, event) };
  switch (event.type) {
    case 'budgets.saved': {
      const { budgets, opening = [], underWay = [] } = event.data;
      // Without budgets nothing is reserved or settled: what is known about calls would only become stale.
      if (budgets.length === 0) return initialBudgets;
      const started = Object.fromEntries(underWay.map((call) => [call.callId, { ...call, at }]));
      return {
        ...state,
        budgets: budgets.map((one) => saved(state, one, { at, opening })),
        underWay: { ...state.underWay, ...started },
        // They were measured by the list before it.
        allotments: recalled(state.allotments),
      };
    }
    case 'budget.raised': {
      const { budgetId, ...limits } = event.data;
      return { ...state, budgets: state.budgets.map((one) => (one.id === budgetId ? { ...one, ...limits } : one)) };
    }
    case 'spend.reserved': {
      return { ...state, underWay: { ...state.underWay, [event.data.callId]: { ...event.data, at } } };
    }
    case 'spend.settled': {
      const { [event.data.callId]: known, ...underWay } = state.underWay;
      if (known === undefined && hasSettled(state, event.data.callId)) return state;
      const settled = [...state.settled, { ...event.data, at }].slice(-SETTLED_MAX);
      // A lost call was paid for when it began, whenever it is noticed that it is lost.
      const since = known !== undefined && isLost(known, at) ? known.at : at;
      const budgets = state.budgets.map((budget) => spent(budget, event.data, { at, since }));
      return { ...state, budgets, underWay, settled };
    }
  }
}

/** The name of the period that a time belongs to. */
export function periodKey(period: BudgetDefinition['period'], at: string): string {
  return period === 'day' ? at.slice(0, 10) : period === 'month' ? at.slice(0, 7) : 'total';
}

/** Whether a budget counts a call. */
export function counts(budget: BudgetDefinition, call: Pick<CountedCall, 'agentId' | 'sessionId'>): boolean {
  if (budget.scope === 'tenant') return true;
  return budget.scope === 'agent' ? budget.agentId === call.agentId : budget.sessionId === call.sessionId;
}

/** What a budget has spent in the period of a time: of another period, nothing. */
export function spentAt(budget: Budget, at: string): { readonly usd: number; readonly tokens: number } {
  const isNow = budget.periodKey === periodKey(budget.period, at);
  return isNow ? { usd: budget.spentUsd, tokens: budget.spentTokens } : { usd: 0, tokens: 0 };
}

/** Whether a call that is under way has been so for too long to end. */
export function isLost(call: { readonly at: string }, at: string): boolean {
  return toMs(at) - toMs(call.at) > LOST_AFTER_MS;
}

export function hasSettled({ settled }: BudgetState, callId: string): boolean {
  return settled.some((call) => call.callId === callId);
}

/** Whether two definitions are of one budget: its limits may change, what it counts may not. */
export function sameBudget(one: BudgetDefinition, other: BudgetDefinition): boolean {
  return (
    one.id === other.id &&
    one.scope === other.scope &&
    one.period === other.period &&
    one.agentId === other.agentId &&
    one.sessionId === other.sessionId
  );
}

function saved(
  state: BudgetState,
  definition: BudgetDefinition,
  { at, opening }: { readonly at: string; readonly opening: readonly BudgetOpening[] },
): Budget {
  const before = state.budgets.find((one) => sameBudget(one, definition));
  const {
    periodKey: key,
    spentUsd,
    spentTokens,
    calls,
    callsUsd,
    callsTokens,
  } = before ?? begun(definition, at, opening);
  return { ...definition, periodKey: key, spentUsd, spentTokens, calls, callsUsd, callsTokens };
}

function begun(
  { id, period }: BudgetDefinition,
  at: string,
  openings: readonly BudgetOpening[],
): Omit<Budget, keyof BudgetDefinition> {
  const nothing = { periodKey: periodKey(period, at), costUsd: 0, tokens: 0, calls: 0 };
  const { periodKey: key, costUsd, tokens, calls } = openings.find(({ budgetId }) => budgetId === id) ?? nothing;
  return { periodKey: key, spentUsd: costUsd, spentTokens: tokens, calls, callsUsd: costUsd, callsTokens: tokens };
}

/** A call that failed or was cancelled before it cost anything says nothing about what others cost. */
export function hasUsed({ costUsd, tokens }: Pick<CountedCall, 'costUsd' | 'tokens'>): boolean {
  return costUsd > 0 || tokens > 0;
}

function spent(
  budget: Budget,
  call: CountedCall,
  { at, since }: { readonly at: string; readonly since: string },
): Budget {
  if (!counts(budget, call)) return budget;
  const before = spentAt(budget, at);
  const isOfNow = periodKey(budget.period, since) === periodKey(budget.period, at);
  return {
    ...budget,
    periodKey: periodKey(budget.period, at),
    spentUsd: before.usd + (isOfNow ? call.costUsd : 0),
    spentTokens: before.tokens + (isOfNow ? call.tokens : 0),
    calls: budget.calls + (hasUsed(call) ? 1 : 0),
    callsUsd: budget.callsUsd + call.costUsd,
    callsTokens: budget.callsTokens + call.tokens,
  };
}

/** A budget as it is shown: its limits, and what has been spent of it at a given time. */
export type BudgetWithSpend = BudgetDefinition & { readonly spentUsd: number; readonly spentTokens: number };

export function budgetsWithSpend({ budgets }: BudgetState, at: string): BudgetWithSpend[] {
  return budgets.map((budget) => {
    const { id, scope, agentId, sessionId, period, limitUsd, limitTokens } = budget;
    const { usd: spentUsd, tokens: spentTokens } = spentAt(budget, at);
    return { id, scope, agentId, sessionId, period, limitUsd, limitTokens, spentUsd, spentTokens };
  });
}

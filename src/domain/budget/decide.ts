import type { Decision } from '../kernel/decision.ts';
import { reject } from '../kernel/rejection.ts';
import { toMs } from '../kernel/time.ts';
import type { BudgetDefinition, BudgetEvent, CountedCall } from './events.ts';
import { openingsOf, startedBefore } from './opening.ts';
import type { LedgerReading } from './opening.ts';
import { counts, hasSettled, spentAt } from './state.ts';
import type { Budget, BudgetState } from './state.ts';
import { optional } from '../kernel/optional.ts';

/** A call that has not ended after this long never will: it is assumed to have cost what was expected. */
const LOST_AFTER_MS = 3_600_000;

/** @param ledger of the budgets that begin with this list; null: none begins */
export function decideSaveBudgets(
  state: BudgetState,
  budgets: readonly BudgetDefinition[],
  ledger: LedgerReading | null,
): Decision<BudgetEvent, null> {
  const before = JSON.stringify(state.budgets.map((budget) => definitionOf(budget)));
  if (before === JSON.stringify(budgets.map(definitionOf))) return { kind: 'unchanged', reply: null };
  const opening = ledger === null ? [] : openingsOf(state, budgets, ledger);
  const underWay = ledger === null ? [] : startedBefore(state, budgets, { openings: opening, ledger });
  const data = {
    budgets: [...budgets],
    ...(opening.length === 0 ? {} : { opening }),
    ...(underWay.length === 0 ? {} : { underWay }),
  };
  return { kind: 'accepted', events: [{ type: 'budgets.saved', data }], reply: null };
}

function definitionOf(budget: BudgetDefinition): unknown[] {
  const { id, scope, agentId, sessionId, period, limitUsd, limitTokens } = budget;
  return [id, scope, agentId, sessionId, period, limitUsd, limitTokens];
}

/** New limits of one budget; those not named are kept. */
export interface BudgetRaise {
  readonly budgetId: string;
  readonly limitUsd?: number | undefined;
  readonly limitTokens?: number | undefined;
}

/**
 * The answer to a question about a budget. A limit that is not above what has been spent would raise the question again
 * at once.
 */
export function decideRaiseBudget(state: BudgetState, raise: BudgetRaise, at: string): Decision<BudgetEvent, null> {
  const { budgetId, limitUsd, limitTokens } = raise;
  const budget = state.budgets.find(({ id }) => id === budgetId);
  // It was removed meanwhile: nothing is in the way any more.
  if (budget === undefined) return { kind: 'unchanged', reply: null };
  const spent = spentAt(budget, at);
  const usd = limitUsd ?? budget.limitUsd;
  const tokens = limitTokens ?? budget.limitTokens;
  if ((usd !== undefined && usd <= spent.usd) || (tokens !== undefined && tokens <= spent.tokens)) {
    const message = `The limits must be above what has been spent: ${spent.usd} USD, ${spent.tokens} tokens.`;
    return reject('invalid_request', message);
  }
  return { kind: 'accepted', events: [{ type: 'budget.raised', data: { budgetId, ...limitsOf(raise) } }], reply: null };
}

/** The limits that a raise names. */
export function limitsOf({ limitUsd, limitTokens }: BudgetRaise): Pick<BudgetDefinition, 'limitUsd' | 'limitTokens'> {
  return {
    ...optional({ limitUsd, limitTokens }),
  };
}

/** What is known about a call before it starts. */
export interface ExpectedCall {
  readonly callId: string;
  readonly agentId: string;
  readonly sessionId: string;
  /** What the previous call cost; null: it is the first. */
  readonly before: { readonly costUsd: number; readonly tokens: number } | null;
}

export interface Reserved {
  /** The budget that the call would exceed; null: it may start. */
  readonly refusedBy: Budget | null;
  /** Whether the budgets now count it as in progress. */
  readonly reserved: boolean;
}

/**
 * Whether a call may start. It counts at the cost of the previous call, or at the average of the budget's calls, and so
 * do calls in progress on any node.
 */
export function decideReserve(state: BudgetState, call: ExpectedCall, at: string): Decision<BudgetEvent, Reserved> {
  const isUnderWay = state.underWay[call.callId] !== undefined;
  if (isUnderWay || state.budgets.length === 0) {
    return { kind: 'unchanged', reply: { refusedBy: null, reserved: isUnderWay } };
  }
  const expected = expectedOf(state, call);
  const refusedBy = state.budgets.find((budget) => wouldPass(state, budget, { ...call, ...expected, at })) ?? null;
  if (refusedBy !== null) return { kind: 'unchanged', reply: { refusedBy, reserved: false } };
  const { callId, agentId, sessionId } = call;
  const lost = Object.values(state.underWay).filter((other) => toMs(at) - toMs(other.at) > LOST_AFTER_MS);
  const events: BudgetEvent[] = lost.map(({ at: _since, ...other }) => ({ type: 'spend.settled', data: other }));
  events.push({ type: 'spend.reserved', data: { callId, agentId, sessionId, ...expected } });
  return { kind: 'accepted', events, reply: { refusedBy: null, reserved: true } };
}

function expectedOf(state: BudgetState, { before, ...call }: ExpectedCall): { costUsd: number; tokens: number } {
  if (before !== null) return before;
  const known = state.budgets.filter((budget) => budget.calls > 0 && counts(budget, call));
  const most = (of: (budget: Budget) => number): number => Math.max(0, ...known.map(of));
  return {
    costUsd: most(({ callsUsd, calls }) => callsUsd / calls),
    tokens: Math.ceil(most(({ callsTokens, calls }) => callsTokens / calls)),
  };
}

function wouldPass(state: BudgetState, budget: Budget, call: CountedCall & { readonly at: string }): boolean {
  if (!counts(budget, call)) return false;
  const { limitUsd, limitTokens } = budget;
  const spent = spentAt(budget, call.at);
  const underWay = Object.values(state.underWay).filter((other) => counts(budget, other));
  const usd = underWay.reduce((sum, other) => sum + other.costUsd, spent.usd);
  const tokens = underWay.reduce((sum, other) => sum + other.tokens, spent.tokens);
  const passesUsd = limitUsd !== undefined && (usd >= limitUsd || usd + call.costUsd > limitUsd);
  return passesUsd || (limitTokens !== undefined && (tokens >= limitTokens || tokens + call.tokens > limitTokens));
}

/**
 * A call has ended, and this is what it cost. A reserved one is in progress until it is settled, or considered lost:
 * then it is already counted, however long ago that was. For one started before its worker knew of any budget, only the
 * newest settled calls can tell.
 */
export function decideSettle(
  state: BudgetState,
  call: CountedCall,
  { wasReserved }: { readonly wasReserved: boolean },
): Decision<BudgetEvent, null> {
  if (state.underWay[call.callId] === undefined && (wasReserved || hasSettled(state, call.callId))) {
    return { kind: 'unchanged', reply: null };
  }
  return { kind: 'accepted', events: [{ type: 'spend.settled', data: call }], reply: null };
}

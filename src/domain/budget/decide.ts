import { Draft } from '../kernel/decision.ts';
import type { Decision } from '../kernel/decision.ts';
import { reject } from '../kernel/rejection.ts';
import { allotmentFor, heldOf, limitsIn, silentSince } from './allot.ts';
import type { AllotmentWish, Amount, DrawnOn } from './allot.ts';
import type { BudgetDefinition, BudgetEvent, CountedCall } from './events.ts';
import { openingsOf, startedBefore } from './opening.ts';
import type { LedgerReading } from './opening.ts';
import { counts, evolveBudgets, hasSettled, isLost, spentAt } from './state.ts';
import type { Budget, BudgetState } from './state.ts';
import { optional } from '../kernel/optional.ts';

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
  const raised: BudgetEvent = { type: 'budget.raised', data: { budgetId, ...limitsOf(raise) } };
  // A person may answer with a lower limit too: what nodes have was measured by the one before.
  const isLower = below(usd, budget.limitUsd) || below(tokens, budget.limitTokens);
  const isRecalled = isLower && hasOpen(state);
  return {
    kind: 'accepted',
    events: isRecalled ? [raised, { type: 'allotments.recalled', data: {} }] : [raised],
    reply: null,
  };
}

/** Undefined: there is no limit. */
function below(limit: number | undefined, before: number | undefined): boolean {
  return limit !== undefined && (before === undefined || limit < before);
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
  readonly before: Amount | null;
  /** Its node would spend on further calls of the agent without asking. */
  readonly wish?: AllotmentWish | undefined;
}

export interface Reserved {
  /** The budget that the call would exceed; null: it may start, or is to ask again. */
  readonly refusedBy: Budget | null;
  /** Whether the budgets now count it as in progress. */
  readonly reserved: boolean;
  /** It would fit if allotments were smaller: they are recalled, and it is to ask again once the budgets have changed. */
  readonly awaits: boolean;
}

/**
 * Whether a call may start. It counts at the cost of the previous call, or at the average of the budget's calls, and so
 * do calls in progress on any node, and allotments as a whole.
 */
export function decideReserve(state: BudgetState, call: ExpectedCall, at: string): Decision<BudgetEvent, Reserved> {
  const isUnderWay = state.underWay[call.callId] !== undefined;
  const nothing = { refusedBy: null, reserved: isUnderWay, awaits: false };
  if (isUnderWay || state.budgets.length === 0) return { kind: 'unchanged', reply: nothing };
  const draft = new Draft<BudgetState, BudgetEvent>(state, evolveBudgets, at);
  for (const { allotmentId } of silentSince(state, at))
    draft.add({ type: 'allotment.returned', data: { allotmentId } });
  const lost = Object.values(state.underWay).filter((other) => isLost(other, at));
  for (const { at: _since, ...other } of lost) draft.add({ type: 'spend.settled', data: other });
  const { callId, agentId, sessionId, wish } = call;
  const expected = expectedOf(state, call);
  const one = { callId, agentId, sessionId, ...expected };
  const refusedBy = inTheWay(draft.state, one, at);
  if (refusedBy !== null) {
    const awaits = inTheWay(withoutLoose(draft.state), one, at) === null;
    if (awaits && hasOpen(draft.state)) draft.add({ type: 'allotments.recalled', data: {} });
    const reply = { refusedBy: awaits ? null : refusedBy, reserved: false, awaits };
    // What lost calls hold is settled in any case: they would be in the way in every later period, too. Nothing waits for
    // the rest, which is recorded with the next call that may start.
    return draft.events.length > 0 && (awaits || lost.length > 0)
      ? { kind: 'accepted', events: draft.events, reply }
      : { kind: 'unchanged', reply };
  }
  draft.add({ type: 'spend.reserved', data: one });
  const granted = wish === undefined ? null : allotmentFor(draft.state, call, { wish, expected, at });
  if (granted !== null) draft.add(granted);
  return { kind: 'accepted', events: draft.events, reply: { ...nothing, reserved: true } };
}

/** What a call is taken to cost before it has ended. */
export function expectedOf(
  state: BudgetState,
  { before, ...call }: Pick<ExpectedCall, 'agentId' | 'sessionId' | 'before'>,
): Amount {
  if (before !== null) return before;
  const known = state.budgets.filter((budget) => budget.calls > 0 && counts(budget, call));
  const most = (of: (budget: Budget) => number): number => Math.max(0, ...known.map(of));
  return {
    costUsd: most(({ callsUsd, calls }) => callsUsd / calls),
    tokens: Math.ceil(most(({ callsTokens, calls }) => callsTokens / calls)),
  };
}

/** The budget that the call would pass; null: none. */
function inTheWay(state: BudgetState, call: CountedCall, at: string): Budget | null {
  return state.budgets.find((budget) => wouldPass(state, budget, { ...call, at })) ?? null;
}

function wouldPass(state: BudgetState, budget: Budget, call: CountedCall & { readonly at: string }): boolean {
  if (!counts(budget, call)) return false;
  const held = heldOf(state, budget, call.at);
  return limitsIn(budget).some(([of, limit]) => held[of] >= limit || held[of] + call[of] > limit);
}

/** Without the allotments of which a holder may still give something back. */
function withoutLoose(state: BudgetState): BudgetState {
  const kept = Object.entries(state.allotments).filter(([, { phase }]) => phase === 'shrunk');
  return { ...state, allotments: Object.fromEntries(kept) };
}

function hasOpen({ allotments }: BudgetState): boolean {
  return Object.values(allotments).some(({ phase }) => phase === 'open');
}

/**
 * A call has ended, and this is what it cost. A reserved one is in progress until it is settled, or considered lost:
 * then it is already counted, however long ago that was. For one started before its worker knew of any budget, only the
 * newest settled calls can tell.
 */
export function decideSettle(
  state: BudgetState,
  call: CountedCall,
  { wasReserved, on }: { readonly wasReserved: boolean; readonly on?: DrawnOn | undefined },
): Decision<BudgetEvent, null> {
  const settled: BudgetEvent = { type: 'spend.settled', data: call };
  const allotment = on === undefined ? undefined : state.allotments[on.allotmentId];
  if (on !== undefined && allotment !== undefined) {
    const { callId, costUsd, tokens } = call;
    if (allotment.drawn.includes(callId)) return { kind: 'unchanged', reply: null };
    // Of one that is closing, nothing stays behind that no call needs.
    const frees = { costUsd: Math.max(costUsd, on.frees.costUsd), tokens: Math.max(tokens, on.frees.tokens) };
    const data = { allotmentId: on.allotmentId, callId, ...frees };
    const drawn: BudgetEvent = { type: 'allotment.drawn', data };
    // Another run of it has been settled, and both were paid for.
    const again: BudgetEvent[] = hasSettled(state, callId) ? [{ type: 'spend.reserved', data: call }] : [];
    return { kind: 'accepted', events: [...again, settled, drawn], reply: null };
  }
  // One that started on an allotment that has been returned since was never counted by itself.
  const isCounted = (wasReserved && on === undefined) || hasSettled(state, call.callId);
  if (state.underWay[call.callId] === undefined && isCounted) return { kind: 'unchanged', reply: null };
  return { kind: 'accepted', events: [settled], reply: null };
}

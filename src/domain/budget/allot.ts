import { toMs, toTimestamp } from '../kernel/time.ts';
import { countedAs } from './allotments.ts';
import type { Allotment } from './allotments.ts';
import type { BudgetEvent } from './events.ts';
import { counts, spentAt } from './state.ts';
import type { Budget, BudgetState } from './state.ts';

/** How long an allotment lasts without a sign of its holder, ms. */
export const ALLOTMENT_MS = 15_000;
/** Others return it this long after its end, because clocks differ, ms. */
const GRACE_MS = 5_000;
/** Its holder draws no more on it this long before its end, ms. */
const MARGIN_MS = 1_000;
/** An allotment is for this many calls, as calls go. */
const CALLS_MAX = 256;
const CALLS_MIN = 4;
/** At most one part in so many of what no call and no other allotment has: the nearer the limit, the smaller. */
const SHARES = 8;
/** Calls that are settled from one: their ids stay in the fold as long as it does. */
const DRAWN_MAX = 512;

export interface Amount {
  readonly costUsd: number;
  readonly tokens: number;
}

/** A worker's wish: its node would spend without asking if the budgets have plenty. */
export interface AllotmentWish {
  readonly allotmentId: string;
  readonly holder: string;
}

interface AllottedCall {
  readonly callId: string;
  readonly agentId: string;
  readonly sessionId: string;
}

/** The amounts of `limits` that a budget limits. */
type Limited = keyof Amount;

/**
 * What a node may spend, if every budget that counts the call has at least {@link CALLS_MIN} times {@link SHARES} such
 * calls left; null: calls are checked one by one. So they are where a budget is of the session, and where nothing is known
 * of what calls cost.
 * @param expected of the call, which the state counts already
 */
export function allotmentFor(
  state: BudgetState,
  { agentId, sessionId }: Pick<AllottedCall, 'agentId' | 'sessionId'>,
  { wish, expected, at }: { readonly wish: AllotmentWish; readonly expected: Amount; readonly at: string },
): Extract<BudgetEvent, { type: 'allotment.granted' }> | null {
  const counting = state.budgets.filter((budget) => counts(budget, { agentId, sessionId }));
  if (counting.length === 0 || counting.some(({ scope }) => scope === 'session')) return null;
  const each = counting.reduce(dearer, expected);
  const calls = Math.min(
    CALLS_MAX,
    ...counting.flatMap((budget) =>
      limitsIn(budget).map(([of, limit]) => {
        return each[of] > 0 ? Math.floor((limit - heldOf(state, budget, at)[of]) / (SHARES * each[of])) : 0;
      }),
    ),
  );
  if (calls < CALLS_MIN) return null;
  const data = {
    ...{ ...wish, agentId, costUsd: calls * each.costUsd, tokens: Math.floor(calls * each.tokens) },
    until: toTimestamp(toMs(at) + ALLOTMENT_MS),
  };
  return { type: 'allotment.granted', data };
}

function dearer({ costUsd, tokens }: Amount, { calls, callsUsd, callsTokens }: Budget): Amount {
  if (calls === 0) return { costUsd, tokens };
  return { costUsd: Math.max(costUsd, callsUsd / calls), tokens: Math.max(tokens, callsTokens / calls) };
}

export function limitsIn({ limitUsd, limitTokens }: Budget): readonly (readonly [Limited, number])[] {
  const usd = limitUsd === undefined ? [] : [['costUsd', limitUsd] as const];
  return limitTokens === undefined ? usd : [...usd, ['tokens', limitTokens] as const];
}

/** What a budget has spent, and what calls in progress and allotments hold of it. */
export function heldOf(state: BudgetState, budget: Budget, at: string): Amount {
  const { usd, tokens } = spentAt(budget, at);
  const held = [...Object.values(state.underWay), ...Object.values(state.allotments).map(countedAs)];
  return held.filter((one) => counts(budget, one)).reduce((sum, one) => plus(sum, one), { costUsd: usd, tokens });
}

export function plus(a: Amount, b: Amount): Amount {
  return { costUsd: a.costUsd + b.costUsd, tokens: a.tokens + b.tokens };
}

/** The allotment that a call started on. */
export interface DrawnOn {
  readonly allotmentId: string;
  /** At least as much leaves the allotment when the call ends. */
  readonly frees: Amount;
}

/** A holder's own view of an allotment. */
export interface Holding {
  readonly allotmentId: string;
  /** What its calls in progress are expected to cost, together. */
  readonly held: Amount;
  readonly calls: number;
}

/**
 * Whether a call of its agent may start on an allotment; its holder adds it to what it holds at once. `never`: such calls
 * are checked one by one. `over`: nothing more should start on it.
 */
export function decideDraw(
  state: BudgetState,
  { allotmentId, held, calls }: Holding,
  { call, expected, nowMs }: { readonly call: AllottedCall; readonly expected: Amount; readonly nowMs: number },
): 'yes' | 'never' | 'over' {
  const known = state.allotments[allotmentId];
  if (known?.phase !== 'open' || known.agentId !== call.agentId) return 'over';
  if (nowMs >= toMs(known.until) - MARGIN_MS || known.drawn.length + calls >= DRAWN_MAX) return 'over';
  // Run again after it was settled, it counts again: by itself, because an allotment settles it once.
  if (known.drawn.includes(call.callId)) return 'never';
  const counting = state.budgets.filter((budget) => counts(budget, call));
  const limited = counting.flatMap(limitsIn);
  if (counting.some(({ scope }) => scope === 'session') || limited.some(([of]) => expected[of] === 0)) return 'never';
  const wanted = plus(held, expected);
  return limited.every(([of]) => wanted[of] <= known[of]) ? 'yes' : 'over';
}

/** Those whose holder has been silent for too long: what they held comes back. */
export function silentSince({ allotments }: BudgetState, at: string): readonly Allotment[] {
  return Object.values(allotments).filter(({ until }) => toMs(at) > toMs(until) + GRACE_MS);
}

/**
 * A holder's sign: it extends an open allotment that it uses, and gives back of another what no call in progress needs.
 * Null: there is nothing to record.
 */
export function decideKeep(
  { allotments }: BudgetState,
  { allotmentId, held, calls, isWanted }: Holding & { readonly isWanted: boolean },
  at: string,
): BudgetEvent | null {
  const known = allotments[allotmentId];
  if (known === undefined) return null;
  const until = toTimestamp(toMs(at) + ALLOTMENT_MS);
  if (isWanted) {
    // Recalled meanwhile: its holder hears of it, starts nothing more on it, and then says what it holds.
    if (known.phase !== 'open') return null;
    const { costUsd, tokens } = known;
    return { type: 'allotment.changed', data: { allotmentId, costUsd, tokens, until } };
  }
  if (calls === 0) return { type: 'allotment.returned', data: { allotmentId } };
  const [costUsd, tokens] = [Math.min(known.costUsd, held.costUsd), Math.min(known.tokens, held.tokens)];
  return { type: 'allotment.changed', data: { allotmentId, costUsd, tokens, until } };
}

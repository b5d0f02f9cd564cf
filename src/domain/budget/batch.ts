import { Draft } from '../kernel/decision.ts';
import type { Decision } from '../kernel/decision.ts';
import { decideKeep } from './allot.ts';
import type { DrawnOn, Holding } from './allot.ts';
import { decideReserve, decideSettle } from './decide.ts';
import type { ExpectedCall, Reserved } from './decide.ts';
import type { BudgetEvent, CountedCall } from './events.ts';
import { evolveBudgets } from './state.ts';
import type { BudgetState } from './state.ts';

/** A call has ended. */
export interface Settlement {
  readonly kind: 'settle';
  readonly call: CountedCall;
  readonly wasReserved: boolean;
  /** Absent: it was reserved by itself, or started without a budget. */
  readonly on?: DrawnOn | undefined;
}

/** What a worker asks of the budgets: whether a call may start, to count one that has ended, to keep an allotment. */
export type BudgetRequest =
  | { readonly kind: 'reserve'; readonly call: ExpectedCall }
  | Settlement
  | ({ readonly kind: 'keep'; readonly isWanted: boolean } & Holding);

/** In the order of the requests; null: of one that only says something. */
export type BudgetReplies = readonly (Reserved | null)[];

/**
 * Several requests at once, in one commit: each is decided on what the ones before it leave, so that they are answered as
 * if they had come one after the other.
 */
export function decideBudgetRequests(
  state: BudgetState,
  requests: readonly BudgetRequest[],
  at: string,
): Decision<BudgetEvent, BudgetReplies> {
  const draft = new Draft<BudgetState, BudgetEvent>(state, evolveBudgets, at);
  const reply = requests.map((request) => {
    const decision = decideOne(draft.state, request, at);
    if (decision.kind === 'rejected') throw new Error(`budgets refuse no request of a worker: ${decision.code}`);
    if (decision.kind === 'accepted') for (const event of decision.events) draft.add(event);
    return decision.reply;
  });
  const { events } = draft;
  return events.length === 0 ? { kind: 'unchanged', reply } : { kind: 'accepted', events, reply };
}

function decideOne(state: BudgetState, request: BudgetRequest, at: string): Decision<BudgetEvent, Reserved | null> {
  switch (request.kind) {
    case 'reserve':
      return decideReserve(state, request.call, at);
    case 'settle':
      return decideSettle(state, request.call, request);
    case 'keep': {
      const event = decideKeep(state, request, at);
      return event === null ? { kind: 'unchanged', reply: null } : { kind: 'accepted', events: [event], reply: null };
    }
  }
}

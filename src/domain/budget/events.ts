import { z } from 'zod';

/*
 * What a tenant allows its model calls to cost. Definitions and spending are one aggregate, because whether a call may
 * start is decided on both at once: of two calls that would exceed a budget together, one is refused, on whichever
 * nodes they start.
 */

export const budgetDefinition = z.strictObject({
  id: z.string(),
  scope: z.enum(['tenant', 'agent', 'session']),
  /** Of the scopes `agent` and `session`. */
  agentId: z.string().optional(),
  sessionId: z.string().optional(),
  period: z.enum(['day', 'month', 'total']),
  limitUsd: z.number().positive().optional(),
  limitTokens: z.int().positive().optional(),
});

/** A call as budgets count it. */
const call = {
  callId: z.string(),
  agentId: z.string(),
  sessionId: z.string(),
  costUsd: z.number().min(0),
  tokens: z.int().min(0),
};

/** What was spent in the period of a budget before it began, from the ledger of model calls. */
const opening = z.strictObject({
  budgetId: z.string(),
  periodKey: z.string(),
  costUsd: z.number().min(0),
  tokens: z.int().min(0),
  calls: z.int().min(0),
});

const allotment = {
  allotmentId: z.string(),
  costUsd: z.number().min(0),
  tokens: z.int().min(0),
  until: z.string(),
};

export const budgetEventSchemas = {
  /**
   * Replaces the list; what has been spent of a budget that stays is kept. A new one starts with its `opening`, and
   * calls in progress without a reservation are counted as reserved.
   */
  'budgets.saved': z.strictObject({
    budgets: z.array(budgetDefinition),
    opening: z.array(opening).optional(),
    underWay: z.array(z.strictObject(call)).optional(),
  }),
  'budget.raised': z.strictObject({
    budgetId: z.string(),
    limitUsd: z.number().positive().optional(),
    limitTokens: z.int().positive().optional(),
  }),
  /** A call may start; until it has ended it counts at its expected cost. */
  'spend.reserved': z.strictObject(call),
  /** It has ended. One that was not reserved started before its worker knew of any budget. */
  'spend.settled': z.strictObject(call),
  /** A node may spend as much on calls of an agent without asking: it counts as in progress until it is settled or returned. */
  'allotment.granted': z.strictObject({ ...allotment, holder: z.string(), agentId: z.string() }),
  /** What is left of it, and how long it lasts; its holder extends it, or gives back what no call in progress needs. */
  'allotment.changed': z.strictObject(allotment),
  /** A call that started on it has ended: as much leaves it. `spend.settled` beside it has what the call cost. */
  'allotment.drawn': z.strictObject({
    allotmentId: z.string(),
    callId: z.string(),
    costUsd: z.number().min(0),
    tokens: z.int().min(0),
  }),
  /** A call would fit if the allotments were smaller: their holders start no more calls on them, and shrink them. */
  'allotments.recalled': z.strictObject({}),
  /** By its holder; or its holder was silent past its end. */
  'allotment.returned': z.strictObject({ allotmentId: z.string() }),
} as const;

type Schemas = typeof budgetEventSchemas;
export type BudgetEvent = {
  [T in keyof Schemas]: { readonly type: T; readonly data: z.infer<Schemas[T]> };
}[keyof Schemas];
export type BudgetDefinition = z.infer<typeof budgetDefinition>;
export type BudgetOpening = z.infer<typeof opening>;
export type CountedCall = z.infer<(typeof budgetEventSchemas)['spend.reserved']>;

/** Of one tenant: all of them are checked before each model call. */
export const BUDGETS_MAX = 100;

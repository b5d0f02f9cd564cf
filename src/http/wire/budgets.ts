import { z } from 'zod';
import { BUDGETS_MAX } from '../../domain/budget/events.ts';
import { clientId } from '../../domain/kernel/schemas.ts';
import { TURN_BUDGET } from '../../domain/turn/usage.ts';
import { requestId } from './parts.ts';

/** Shapes of the budget routes. */
const fields = {
  scope: z.enum(['tenant', 'agent', 'session']),
  agentId: clientId.optional(),
  sessionId: clientId.optional(),
  period: z.enum(['day', 'month', 'total']),
  limitUsd: z.number().positive().max(1_000_000_000).optional(),
  limitTokens: z.int().positive().max(1_000_000_000_000).optional(),
};

const budgetToSave = z
  .strictObject({ id: clientId.optional(), ...fields })
  .refine(({ id }) => id !== TURN_BUDGET, `the id ${TURN_BUDGET} is that of the limit of a single turn`)
  .refine(
    ({ limitUsd, limitTokens }) => limitUsd !== undefined || limitTokens !== undefined,
    'needs limitUsd or limitTokens',
  )
  .refine(
    ({ scope, agentId }) => (scope === 'agent') === (agentId !== undefined),
    'agentId belongs to the scope "agent"',
  )
  .refine(
    ({ scope, sessionId }) => (scope === 'session') === (sessionId !== undefined),
    'sessionId belongs to the scope "session"',
  );

export const saveBudgetsBody = z.strictObject({
  requestId: requestId.optional(),
  budgets: z.array(budgetToSave).max(BUDGETS_MAX),
});

const budget = z
  .object({ id: z.string(), ...fields, spentUsd: z.number(), spentTokens: z.int() })
  .meta({ id: 'Budget' });
export const budgetList = z.object({ budgets: z.array(budget) });

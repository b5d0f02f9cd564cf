import { z } from 'zod';

/** The id under which a turn's own cost limit shows among budgets. */
export const TURN_BUDGET = 'limits.maxCostUsd';

/** What model calls used; the sum of several keeps the same form. */
export const usageSchema = z.strictObject({
  inputTokens: z.int().min(0),
  outputTokens: z.int().min(0),
  totalTokens: z.int().min(0),
  cachedTokens: z.int().min(0),
  cacheWriteTokens: z.int().min(0),
  reasoningTokens: z.int().min(0),
  costUsd: z.number().min(0),
  /** A second billed call for the same step. */
  duplicate: z.boolean(),
  /** Whether the provider reported tokens; otherwise they are estimated of what was sent and received, or 0. */
  tokensReported: z.boolean(),
  /** Whether a price is known for the model. */
  costKnown: z.boolean(),
});

export type Usage = z.infer<typeof usageSchema>;

/** Of a call that reported nothing, and the sum of no calls. */
export const NO_USAGE: Usage = {
  inputTokens: 0,
  outputTokens: 0,
  totalTokens: 0,
  cachedTokens: 0,
  cacheWriteTokens: 0,
  reasoningTokens: 0,
  costUsd: 0,
  duplicate: false,
  tokensReported: false,
  costKnown: false,
};

/** Whether anything is known of what a call used: its provider reported it, or it is estimated. */
export function isUsageKnown({ tokensReported, totalTokens }: Usage): boolean {
  return tokensReported || totalTokens > 0;
}

/** The total of nothing yet: all of its (no) parts are known, so adding keeps `known` true until one is not. */
export const ZERO_TOTAL: Usage = { ...NO_USAGE, tokensReported: true, costKnown: true };

export function addUsage(total: Usage, call: Usage): Usage {
  return {
    inputTokens: total.inputTokens + call.inputTokens,
    outputTokens: total.outputTokens + call.outputTokens,
    totalTokens: total.totalTokens + call.totalTokens,
    cachedTokens: total.cachedTokens + call.cachedTokens,
    cacheWriteTokens: total.cacheWriteTokens + call.cacheWriteTokens,
    reasoningTokens: total.reasoningTokens + call.reasoningTokens,
    costUsd: total.costUsd + call.costUsd,
    duplicate: total.duplicate || call.duplicate,
    tokensReported: total.tokensReported && call.tokensReported,
    costKnown: total.costKnown && call.costKnown,
  };
}

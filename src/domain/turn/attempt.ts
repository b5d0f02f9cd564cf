import { z } from 'zod';

/** Why a model stopped; `length`: its answer was cut. */
export const FINISH_REASONS = ['stop', 'length', 'tool_calls', 'content_filter', 'other'] as const;
export type FinishReason = (typeof FINISH_REASONS)[number];

/** How an attempt at a model went; absent in what a Host before 0.13 recorded. */
export const attemptFigures = {
  finishReason: z.enum(FINISH_REASONS).optional(),
  /** From the request to the end of the answer. */
  latencyMs: z.int().min(0).optional(),
  /** From the request to the first piece of the answer. */
  firstTokenMs: z.int().min(0).optional(),
};

import { z } from 'zod';
import { modelSelection } from '../agent/manifest.ts';

/** Entries of one tenant's list. */
export const PRICES_MAX = 200;
const { provider, model } = modelSelection.shape;
const usdPerMillion = z.number().min(0).max(1_000_000);

/** What a tenant pays for a model, US dollars per million tokens; what is absent costs as much as other input. */
export const modelPrice = z.strictObject({
  provider: provider.exclude(['fixture']),
  model,
  inputUsdPerMillion: usdPerMillion,
  outputUsdPerMillion: usdPerMillion,
  /** Of input that a cache had. */
  cacheReadUsdPerMillion: usdPerMillion.optional(),
  /** Of input that was put into one. */
  cacheWriteUsdPerMillion: usdPerMillion.optional(),
  /** Tokens that the model accepts, including its answer. */
  contextWindow: z.int().min(1).max(1_000_000_000).optional(),
});

export type TenantModelPrice = z.infer<typeof modelPrice>;

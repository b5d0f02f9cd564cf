import { z } from 'zod';
import { modelSelection } from '../../domain/agent/manifest.ts';
import { text } from '../../domain/kernel/schemas.ts';
import { modelPrice, PRICES_MAX } from '../../domain/tenant/model-prices.ts';
import type { TenantModelPrice } from '../../domain/tenant/model-prices.ts';
import { isCallableBase } from '../../lib/egress.ts';
import { url } from './parts.ts';

/** Shapes of the model settings. Keys come in and never go out. */

const requestId = text(1, 256).optional();
const { provider, model } = modelSelection.shape;
const remoteProvider = provider.exclude(['fixture']);
const apiKey = z.string().regex(/^[\x21-\x7e]{1,4096}$/, 'must be 1 to 4096 visible ASCII characters');
const baseUrl = url(isCallableBase, 'must be an https or http address without credentials, query or fragment');

const saved = modelSelection.extend({
  baseUrl: baseUrl.optional(),
  credential: z.strictObject({ apiKey }).optional(),
});
type Saved = z.output<typeof saved>;

const NEEDS_ADDRESS = { error: 'is required for the provider openai-compatible', path: ['baseUrl'] };
const TAKES_NONE = { error: 'the provider fixture takes neither baseUrl nor credential', path: ['provider'] };
const hasAddress = (body: Saved): boolean => body.provider !== 'openai-compatible' || body.baseUrl !== undefined;
const isPlain = (body: Saved): boolean =>
  body.provider !== 'fixture' || (body.baseUrl === undefined && body.credential === undefined);

export const modelSeed = saved.refine(hasAddress, NEEDS_ADDRESS).refine(isPlain, TAKES_NONE);
export const saveModelBody = saved.extend({ requestId }).refine(hasAddress, NEEDS_ADDRESS).refine(isPlain, TAKES_NONE);
export type ModelSeed = z.output<typeof modelSeed>;

export const tenantModel = z
  .object({ configured: z.boolean(), ...modelSelection.partial().shape, baseUrl: z.string().optional() })
  .meta({ id: 'TenantModel' });
export const selectModelBody = z.strictObject({ requestId, provider, model });

export const credentialPath = z.strictObject({ provider: remoteProvider });
export const saveCredentialBody = z.strictObject({ requestId, apiKey });
export const modelCredential = z
  .object({ provider: remoteProvider, configured: z.boolean(), savedAt: z.iso.datetime().optional() })
  .meta({ id: 'ModelCredential' });
export const credentialSaved = modelCredential.extend({ rotated: z.boolean() });
export const credentialDeleted = z.object({ provider: remoteProvider, deleted: z.literal(true) });

const key = ({ provider: of, model: name }: TenantModelPrice): string => `${of} ${name}`;
const prices = z
  .array(modelPrice)
  .max(PRICES_MAX)
  .refine((list) => new Set(list.map(key)).size === list.length, 'a model is named twice');
export const savePricesBody = z.strictObject({ requestId, prices });
export const modelPrices = z.object({ prices: z.array(modelPrice) }).meta({ id: 'ModelPrices' });

const price = z.number().min(0).optional();
export const modelCatalog = z.object({
  providers: z.array(
    z.object({
      id: provider,
      name: z.string(),
      configured: z.boolean(),
      models: z.array(
        z.object({
          id: z.string(),
          name: z.string(),
          contextWindow: z.int().optional(),
          inputUsdPerMillion: price,
          outputUsdPerMillion: price,
        }),
      ),
    }),
  ),
});

import { z } from 'zod';
import { modelSelection } from '../agent/manifest.ts';
import { budgetDefinition } from '../budget/events.ts';
import { modelPrice } from './model-prices.ts';

const sha256 = z.string().regex(/^[0-9a-f]{64}$/);

/** What a deletion does with running turns. */
export const ACTIVE_WORK = ['refuse', 'drain', 'cancel'] as const;
export type ActiveWork = (typeof ACTIVE_WORK)[number];
const activeWork = z.enum(ACTIVE_WORK);

const { provider } = modelSelection.shape;

/** A registered issuer of tokens, with the defaults filled in. Public keys only. */
export const issuerSchema = z.strictObject({
  issuer: z.string(),
  audience: z.string(),
  jwksUrl: z.string().optional(),
  jwks: z.strictObject({ keys: z.array(z.record(z.string(), z.unknown())) }).optional(),
  subjectClaim: z.string(),
  scopesClaim: z.string(),
  allowedScopes: z.array(z.string()),
  agentsClaim: z.string().optional(),
  sandboxesClaim: z.string().optional(),
  maxLifetimeSeconds: z.int(),
});

export const tenantEventSchemas = {
  'tenant.created': z.strictObject({
    tenantId: z.string(),
    name: z.string(),
    /** The first application key: only its SHA-256 is ever recorded. */
    principalId: z.string(),
    credentialHash: sha256,
    studioCredentialHash: sha256,
    /** What a repeated creation is compared with. */
    bodyHash: sha256,
    idempotencyKey: z.string().nullable(),
  }),
  'key.saved': z.strictObject({
    keyId: z.string(),
    role: z.enum(['application', 'management']),
    hash: sha256,
    /** Whether it replaces an earlier key with the same id, which is invalid from here on. */
    rotated: z.boolean(),
  }),
  'key.deleted': z.strictObject({ keyId: z.string() }),
  'executor.saved': z.strictObject({
    agentId: z.string(),
    /** What the executor says it runs; null: nothing. */
    implementationVersion: z.string().nullable(),
    hash: sha256,
    /** Whether it replaces an earlier token of this agent's executor, which is invalid from here on. */
    rotated: z.boolean(),
  }),
  'executor.deleted': z.strictObject({ agentId: z.string() }),
  'issuer.saved': z.strictObject({ name: z.string(), issuer: issuerSchema }),
  'issuer.deleted': z.strictObject({ name: z.string() }),
  /** The model of turns that name none of their own; baseUrl null: the provider's own address. */
  'model.saved': modelSelection.extend({ baseUrl: z.string().nullable() }),
  'model.selected': modelSelection.pick({ provider: true, model: true }),
  /** A key for a provider is in the secret store under this id, which says nothing about it. */
  'model-credential.saved': z.strictObject({ provider, secretId: z.string(), rotated: z.boolean() }),
  'model-credential.deleted': z.strictObject({ provider }),
  /**
   * No new message is accepted; running turns may end. Once more while it drains: another request gives it more time.
   * `until`: when the request gives up; nodes of 0.12 record none, and skip it.
   */
  'tenant.drained': z.strictObject({ activeWork, until: z.string().optional() }),
  /** The deletion was abandoned before it began: work was still active, or (`interrupted`) could not be counted. */
  'tenant.reopened': z.strictObject({ activeTurns: z.int(), interrupted: z.literal(true).optional() }),
  /** From here on there is no way back: the keys are invalid, and the tenant's data is deleted step by step. */
  'tenant.deleting': z.strictObject({ activeWork }),
  /** What model calls may cost; the spending itself is kept apart, in an aggregate of its own. */
  'budgets.saved': z.strictObject({
    budgets: z.array(budgetDefinition),
    /**
     * What they do cost, where the tenant says so; absent: as before. In an event of its own nodes of 0.12 would lose the
     * tenant; they fold this one as budgets that have not changed.
     */
    prices: z.array(modelPrice).optional(),
  }),
  /** What a seed wrote because it was absent. */
  'tenant.seeded': z.strictObject({ fixtureModel: z.literal(true) }),
} as const;

type Schemas = typeof tenantEventSchemas;
export type TenantEvent = {
  [T in keyof Schemas]: { readonly type: T; readonly data: z.infer<Schemas[T]> };
}[keyof Schemas];
export type Issuer = z.infer<typeof issuerSchema>;
export type ModelProvider = z.infer<typeof provider>;

import { z } from 'zod';
import { agentIdSchema, hookPoint, notYet } from '../../domain/agent/manifest.ts';
import { clientId, jsonObject, labels, tenantId, text } from '../../domain/kernel/schemas.ts';
import { sandboxChoice } from '../../domain/sandbox/spec.ts';
import { ACTIVE_WORK } from '../../domain/tenant/events.ts';
import { FINISH_REASONS } from '../../domain/turn/attempt.ts';
import { usageSchema } from '../../domain/turn/usage.ts';
import { SCOPES } from '../../auth/caller.ts';
import { isCallableForm, isLoopbackHost } from '../../lib/egress.ts';
import { record } from './events.ts';
import { PROBLEM_CODES } from '../problem.ts';
import { modelSeed, tenantModel } from './model.ts';
import { count, cursor, idempotencyKey, nullableCursor, requestId, sha256, timestamp, url } from './parts.ts';

/** Shapes of requests and responses: they validate, and the OpenAPI document is made from them. */

export const problem = z
  .object({
    status: z.literal('rejected'),
    code: z.enum(PROBLEM_CODES),
    message: z.string(),
    requestId: z.string().optional(),
    details: z.record(z.string(), z.unknown()).optional(),
    activeTurnId: z.string().optional(),
  })
  .meta({ id: 'Problem' });

const protocol = z.object({ min: z.int(), max: z.int(), features: z.array(z.string()) });
const check = z.object({ ok: z.boolean(), detail: z.string().optional() });

export const health = z.object({ status: z.literal('ok'), service: z.string(), version: z.string(), protocol });
export const ready = z.object({
  status: z.enum(['ready', 'not_ready']),
  checks: z.object({ database: check, engine: check, streams: check, objects: check }),
});

export const me = z.object({
  subject: z.string().optional(),
  scopes: z.array(z.enum(SCOPES)),
  agents: z.union([z.literal('*'), z.array(z.string())]),
  sandboxes: z.array(z.string()).optional(),
  via: z.string(),
});

export const tenant = z
  .object({
    id: z.string(),
    name: z.string(),
    state: z.enum(['open', 'draining', 'deleting']),
    createdAt: timestamp,
    updatedAt: timestamp,
  })
  .meta({ id: 'Tenant' });

export const createTenantBody = z.strictObject({
  name: text(1, 200),
  requestId: requestId.optional(),
  idempotencyKey: idempotencyKey.optional(),
  tenantId: tenantId.optional(),
  principalId: clientId.refine((id) => id !== 'studio', 'the principal id "studio" is reserved').default('app'),
  credentialHash: sha256.optional(),
  studioCredentialHash: sha256.optional(),
});
export const tenantCreated = z.object({ tenant, applicationKey: z.string().nullable(), principalId: z.string() });
export const tenantList = z.object({ tenants: z.array(tenant), nextCursor: nullableCursor });
/** Of routes that take no query. */
export const noQuery = z.strictObject({});
export const listQuery = z.strictObject({ limit: count(1, 200, 50), cursor: cursor.optional() });
export const deleteTenantQuery = z.strictObject({
  activeWork: z.enum(ACTIVE_WORK).default('refuse'),
  timeoutSeconds: count(1, 600, 30),
});
export const tenantDeleted = z.object({ tenantId: z.string(), deleted: z.literal(true) });
export const tenantPath = z.strictObject({ tenantId });
export const tenantInspected = z.object({
  tenant,
  counts: z.object({
    sessions: z.int(),
    activeTurns: z.int(),
    pendingActions: z.int(),
    sandboxes: z.int(),
    artifactBytes: z.int(),
  }),
});
export const hostStatus = z.object({
  service: z.string(),
  version: z.string(),
  protocol,
  ready: z.boolean(),
  checks: ready.shape.checks,
  nodes: z.array(
    z.object({
      nodeId: z.string(),
      roles: z.array(z.string()),
      version: z.string(),
      startedAt: timestamp,
      lastSeenAt: timestamp,
    }),
  ),
  tenants: z.object({ total: z.int(), open: z.int(), draining: z.int(), deleting: z.int() }),
  activeTurns: z.int(),
  pendingActions: z.int(),
  projections: z.array(
    z.object({
      name: z.string(),
      schema: z.string(),
      built: z.boolean(),
      shard: z.int(),
      position: z.int(),
      lagEvents: z.int(),
      lagMs: z.int(),
      parked: z.int(),
    }),
  ),
});
export const shuttingDown = z.object({ status: z.literal('shutting_down') });

export const keyPath = z.strictObject({
  keyId: clientId.refine((id) => id !== 'studio', 'the key id "studio" is reserved'),
});
export const saveKeyBody = z.strictObject({
  requestId: requestId.optional(),
  role: z.enum(['application', 'management']).default('application'),
  credentialHash: sha256.optional(),
});
const keyRole = z.enum(['application', 'management']);
const tenantKey = z.object({ id: z.string(), role: keyRole, createdAt: timestamp }).meta({ id: 'TenantKey' });
export const keySaved = tenantKey.extend({ key: z.string().nullable(), rotated: z.boolean() });
export const keyList = z.object({ keys: z.array(tenantKey) });
export const deleted = z.object({ id: z.string(), deleted: z.literal(true) });

const claim = text(1, 100);
/** Public keys only: a private member would be a secret in an event. */
const publicKey = jsonObject
  .refine((key) => typeof key['kty'] === 'string', 'must be a JSON Web Key')
  .refine(
    (key) => ['d', 'p', 'q', 'dp', 'dq', 'qi', 'k', 'oth'].every((name) => !(name in key)),
    'must be a public key',
  );
const jwksUrl = url(
  (value) => isCallableForm(value) && (value.startsWith('https:') || isLoopbackHost(new URL(value).hostname)),
  'must be https, or http on loopback, without credentials',
);
const issuerFields = {
  issuer: text(1, 500),
  audience: text(1, 500),
  jwksUrl: jwksUrl.optional(),
  jwks: z.strictObject({ keys: z.array(publicKey).min(1).max(20) }).optional(),
  subjectClaim: claim.default('sub'),
  scopesClaim: claim.default('scope'),
  allowedScopes: z.array(z.enum(SCOPES)).max(SCOPES.length),
  agentsClaim: claim.optional(),
  sandboxesClaim: claim.optional(),
  maxLifetimeSeconds: z.int().min(60).max(86_400).default(3_600),
};
export const issuerPath = z.strictObject({ name: clientId });
export const saveIssuerBody = z
  .strictObject({ requestId: requestId.optional(), ...issuerFields })
  .refine(
    ({ jwksUrl: address, jwks }) => (address === undefined) !== (jwks === undefined),
    'needs exactly one of jwksUrl and jwks',
  );
export const issuer = z
  .object({ name: z.string(), ...issuerFields, allowedScopes: z.array(z.string()) })
  .meta({ id: 'Issuer' });
export const issuerList = z.object({ issuers: z.array(issuer) });

export const seedBody = z.strictObject({
  requestId,
  fixtureModel: z.literal(true).optional(),
  model: modelSeed.optional(),
  sandbox: notYet('seeds of a sandbox'),
});
export const seeded = z.object({ applied: z.array(z.string()), kept: z.array(z.string()) });

/** What a tenant has a limited number of. */
const held = { keys: z.int(), issuers: z.int(), executors: z.int() };
export const tenantStatus = z.object({
  tenant,
  checks: z.object({ store: check, execution: check, streams: check, objects: check }),
  model: tenantModel,
  counts: z.object({
    agents: z.int(),
    sessions: z.int(),
    activeTurns: z.int(),
    pendingActions: z.int(),
    ...held,
    artifactBytes: z.int(),
  }),
  limits: z.object({ bodyBytes: z.int(), ...held, streams: z.int(), fileBytes: z.int(), totalBytes: z.int() }),
});

const auditEntry = z
  .object({
    at: timestamp,
    actor: z.string(),
    requestId: z.string(),
    action: z.string(),
    resource: z.string(),
    details: z.record(z.string(), z.unknown()),
  })
  .meta({ id: 'AuditEntry' });
export const auditTrail = z.object({ entries: z.array(auditEntry), nextCursor: nullableCursor });

export const sessionPath = z.strictObject({ sessionId: clientId });
export const openSessionBody = z.strictObject({
  requestId: requestId.optional(),
  agentId: agentIdSchema,
  subject: z
    .string()
    .regex(/^[\x21-\x7e]{1,200}$/, 'must be 1 to 200 visible ASCII characters')
    .refine((subject) => subject !== 'host' && subject !== 'studio', 'is reserved')
    .optional(),
  info: jsonObject.optional(),
  labels: labels.optional(),
  vaultIds: z
    .array(text(1, 200))
    .max(32)
    .refine((ids) => new Set(ids).size === ids.length, 'must name each vault once')
    .optional(),
  sandbox: z.union([z.literal(false), z.strictObject({ id: clientId }), sandboxChoice]).optional(),
});

const lastTurn = z.object({
  turnId: z.string(),
  outcome: z.enum(['completed', 'failed', 'cancelled']),
  endedAt: timestamp,
});
const status = z.enum(['idle', 'running', 'waiting', 'paused', 'uncertain']);
const wait = z
  .object({
    kind: z.enum(['interaction', 'action', 'effect']),
    id: z.string(),
    turnId: z.string(),
    agentId: z.string().optional(),
    interactionKind: z.enum(['approval', 'question']).optional(),
    toolName: z.string().optional(),
    hook: hookPoint.optional(),
    prompt: z.string().optional(),
    budgetId: z.string().optional(),
    server: z.string().optional(),
    credentialId: z.string().optional(),
  })
  .meta({ id: 'Wait' });
export const session = z
  .object({
    id: z.string(),
    agentId: z.string(),
    agentVersion: z.int(),
    manifestHash: z.string(),
    subject: z.string().nullable(),
    status,
    activeTurnId: z.string().nullable(),
    lastTurn: lastTurn.nullable(),
    labels: z.record(z.string(), z.string()),
    info: z.record(z.string(), z.unknown()),
    vaultIds: z.array(z.string()),
    sandboxId: z.string().nullable(),
    waits: z.array(wait),
    usage: usageSchema,
    cursor: nullableCursor,
    createdAt: timestamp,
    updatedAt: timestamp,
  })
  .meta({ id: 'Session' });
export const sessionList = z.object({
  sessions: z.array(session),
  nextCursor: nullableCursor,
  asOf: timestamp.meta({ description: 'The time up to which the list is complete.' }),
});
/** Of one question for sessions. */
const LABELS_MAX = 16;
const label = text(1, 400).regex(/^[^=]+=.*$/su, 'must be name=value');
export const sessionListQuery = z.strictObject({
  agentId: agentIdSchema.optional(),
  status: status.optional(),
  label: z
    .union([label, z.array(label).max(LABELS_MAX)])
    .optional()
    .transform((given) => [given ?? []].flat())
    .meta({ type: 'array', items: { type: 'string' }, description: 'name=value; repeated, all must match' }),
  subject: text(1, 200).optional(),
  limit: count(1, 200, 50),
  cursor: cursor.optional(),
});

export const commandAccepted = z.object({
  status: z.literal('accepted'),
  turnId: z.string().nullable(),
  cursor: z.string().nullable(),
  requestId: z.string(),
});

export const itemsQuery = z.strictObject({
  cursor: cursor.optional(),
  limit: count(1, 1_000, 200),
  agent: text(1, 400).optional(),
  order: z.enum(['asc', 'desc']).default('asc'),
});
export const items = z.object({ items: z.array(record), cursor: nullableCursor, hasMore: z.boolean() });
export const eventsQuery = z.strictObject({
  cursor: cursor.optional(),
  agent: text(1, 400).optional(),
  previews: z
    .enum(['true', 'false'])
    .optional()
    .describe(
      '`true`: also frames `event: preview` without id, about every 50 ms while a model answers, and with the progress of tools of MCP servers.',
    ),
});

export const callsQuery = z.strictObject({
  turnId: text(1, 200).optional(),
  limit: count(1, 200, 50),
  cursor: cursor.optional(),
});
const modelCall = z
  .object({
    id: z.string(),
    sessionId: z.string(),
    turnId: z.string(),
    agentId: z.string(),
    provider: z.string(),
    model: z.string(),
    at: timestamp,
    outcome: z.enum(['completed', 'failed', 'cancelled', 'lost']),
    attempt: z.int().min(1).describe('Of the attempts at its step.'),
    finishReason: z.enum(FINISH_REASONS).optional(),
    latencyMs: z.int().min(0).optional().describe('Not known of a call that is lost.'),
    firstTokenMs: z.int().min(0).optional().describe('Until the first piece of the answer.'),
    usage: usageSchema,
  })
  .meta({ id: 'ModelCall' });
export const calls = z.object({ calls: z.array(modelCall), nextCursor: nullableCursor, asOf: timestamp });

export type OpenSessionBody = z.infer<typeof openSessionBody>;

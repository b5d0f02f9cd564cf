import { expect } from 'vitest';
import { z } from 'zod';
import { usageSchema } from '#src/domain/turn/usage.ts';
import { problem } from '#src/http/wire/schemas.ts';
import { AdminClient } from '../../support/client.ts';
import type { Answer, EventRecord, TenantClient } from '../../support/client.ts';

/** What the suites need of a Host: where it listens and the admin key. Two nodes may be the same one twice. */
export interface HttpTarget {
  readonly adminKey: string;
  readonly nodes: readonly [{ readonly url: string }, { readonly url: string }];
}

let made = 0;

/** A name that no other test has. */
export function fresh(what: string): string {
  made += 1;
  return `${what}-${process.pid.toString(36)}-${made}`;
}

export function adminOf({ adminKey, nodes }: HttpTarget, node: 0 | 1 = 0): AdminClient {
  return new AdminClient({ url: nodes[node].url, adminKey });
}

/** A tenant of its own with the agent `agent`, at the first node. */
export async function newTenant(target: HttpTarget): Promise<TenantClient> {
  const tenant = await adminOf(target).createTenant();
  await tenant.saveAgent();
  return tenant;
}

/** A session of a new id, open on the agent `agent`. */
export async function newSession(tenant: TenantClient, body: Record<string, unknown> = {}): Promise<string> {
  const id = fresh('s');
  await tenant.openSession(id, body);
  return id;
}

/** The answer's body, when it has the status and is exactly what the schema says: a member that the document does not name is drift. */
export function shaped<S extends z.ZodType>(answer: Answer, status: number, schema: S): z.output<S> {
  expect(answer.status, answer.text.slice(0, 500)).toBe(status);
  expect(answer.headers['content-type']).toMatch(/^application\/json; *charset=utf-8$/);
  expect(answer.headers['x-request-id']).toMatch(/^[\x21-\x7e]{1,128}$/);
  const parsed = schema.parse(answer.json);
  expect(parsed, 'the body has exactly the members of its schema').toEqual(answer.json);
  return parsed;
}

/** What no answer may ever tell: code, addresses, SQL, subjects of the log, or words of the libraries inside. */
const INTERNAL =
  /node_modules|\bat .*\.ts:\d+|file:\/\/|\/src\/|postgres|slonik|select .* from|jetstream|nats|evt\.\d|127\.0\.0\.1|FST_ERR|ZodError|\[object/i;

/** A refusal in the one form that all have. */
export function refused(answer: Answer, status: number, code: string): z.output<typeof problem> {
  const told = `${answer.status} ${answer.text.slice(0, 500)}`;
  expect(answer.status, told).toBe(status);
  expect(answer.headers['content-type'], told).toMatch(/^application\/json/);
  const body = problem.loose().parse(answer.json);
  expect(body.code, told).toBe(code);
  expect(body.message.length, told).toBeGreaterThan(0);
  expect(body.requestId, told).toBe(answer.headers['x-request-id']);
  expect(answer.text).not.toMatch(INTERNAL);
  const extra = Object.keys(body).filter((name) => !Object.keys(problem.shape).includes(name));
  expect(extra, told).toEqual(code === 'protocol_unsupported' ? ['protocol'] : []);
  expect(answer.headers['www-authenticate']).toBe(code === 'credential_required' ? 'Bearer' : undefined);
  if (status === 429 || status === 503) expect(Number(answer.headers['retry-after'])).toBeGreaterThan(0);
  return body;
}

const requestId = z.string().min(1);
const subject = z.string().optional();

const actionId = z.string().regex(/^ac_[0-9a-hjkmnp-tv-z]{26}$/);
const agentRef = z.strictObject({ id: z.string(), path: z.string(), delegationId: z.string() });
const agent = agentRef.optional();
const point = z.strictObject({ at: z.enum(['before', 'after']), scope: z.enum(['turn', 'step']) });
const named = { toolName: z.string().optional(), hook: point.optional(), agent };
const outcome = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.literal('completed'), output: z.unknown() }),
  z.strictObject({ kind: z.literal('failed'), code: z.string(), message: z.string() }),
]);

/** Payloads of the history, as documented. */
const PAYLOADS: Readonly<Record<string, z.ZodType>> = {
  'command.message': z.strictObject({
    requestId,
    subject,
    content: z.string().optional(),
    parts: z.array(z.unknown()).optional(),
    manifest: z.unknown().optional(),
    whenBusy: z.string().optional(),
  }),
  'command.cancel': z.strictObject({
    requestId,
    subject,
    turnId: z.string().optional(),
    reason: z.string().optional(),
  }),
  'message.assistant': z.strictObject({
    modelCallId: z.string().regex(/^mc_[0-9a-hjkmnp-tv-z]{26}$/),
    text: z.string(),
    toolCalls: z.array(z.strictObject({ callId: z.string(), name: z.string(), input: z.unknown() })),
    truncated: z.literal(true).optional(),
    reasoning: z.string().optional(),
    agent,
  }),
  'turn.completed': z.strictObject({ output: z.unknown(), usage: usageSchema }),
  'turn.failed': z.strictObject({ error: z.strictObject({ code: z.string(), message: z.string() }) }),
  'turn.cancelled': z.strictObject({ reason: z.string().optional() }),
  'effect.uncertain': z.strictObject({
    effectId: z.string(),
    kind: z.enum(['model', 'sandbox', 'mcp']),
    reason: z.enum(['lost', 'cancelled']),
    agent,
  }),
  'command.approve': z.strictObject({
    requestId,
    subject,
    interactionId: z.string(),
    approved: z.boolean(),
    reason: z.string().optional(),
  }),
  'command.retry': z.strictObject({ requestId, subject, retryOf: z.string() }),
  'command.respond': z.strictObject({ requestId, subject, interactionId: z.string(), value: z.unknown() }),
  'action.pending': z.strictObject({
    ...{ actionId, kind: z.enum(['tool', 'hook']), callId: z.string(), input: z.unknown(), generation: z.int() },
    ...named,
  }),
  'action.claimed': z.strictObject({ actionId, generation: z.int(), agent }),
  'action.completed': z.strictObject({
    ...{ actionId, kind: z.enum(['tool', 'hook']), callId: z.string(), outcome },
    ...named,
  }),
  'action.uncertain': z.strictObject({ actionId, generation: z.int(), agent }),
  'delegation.started': z.strictObject({ agent: agentRef, callId: z.string(), task: z.string() }),
  'delegation.completed': z.strictObject({ agent: agentRef, callId: z.string(), status: z.string(), outcome }),
  'turn.paused': z.strictObject({ interactions: z.array(z.looseObject({ interactionId: z.string() })).min(1) }),
  'turn.waiting': z.strictObject({ actionIds: z.array(actionId).min(1) }),
  'turn.uncertain': z.strictObject({ effectIds: z.array(z.string()).min(1) }),
  'artifact.created': z.strictObject({
    artifactId: z.string().regex(/^af_/),
    kind: z.enum(['file', 'folder']),
    name: z.string(),
    contentType: z.string(),
    version: z.int().min(1),
    size: z.int().min(0),
    sha256: z.string().regex(/^[0-9a-f]{64}$/),
    source: z.enum(['upload', 'export', 'tool']),
  }),
  'artifact.deleted': z.strictObject({ artifactId: z.string().regex(/^af_/), name: z.string() }),
};

/** What holds of every history, whatever was done to its session. */
export function historyHolds(items: readonly EventRecord[], sessionId: string): void {
  for (const item of items) {
    expect(item.sessionId).toBe(sessionId);
    expect(item.eventId).toMatch(/^ev_[0-9a-hjkmnp-tv-z]{26}$/);
    expect(item.createdAt).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
    if (item.turnId !== null) expect(item.turnId).toMatch(/^tu_[0-9a-hjkmnp-tv-z]{26}$/);
    const schema = PAYLOADS[item.type];
    expect(schema, `the type ${item.type} is documented`).toBeDefined();
    schema?.parse(item.payload);
  }
  expect(new Set(items.map(({ eventId }) => eventId)).size).toBe(items.length);
  expect(new Set(items.map(({ cursor }) => cursor)).size).toBe(items.length);
  const ends = items
    .filter(({ type }) => /^turn\.(completed|failed|cancelled)$/.test(type))
    .map(({ turnId }) => turnId);
  expect(new Set(ends).size, 'a turn ends once').toBe(ends.length);
}

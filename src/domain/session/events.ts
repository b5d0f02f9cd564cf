import { z } from 'zod';
import { manifestSchema, usedAgents } from '../agent/manifest.ts';
import { forkEventSchemas, forkOrigin } from './fork-events.ts';
import { turnEventSchemas } from '../turn/events.ts';
import type { TurnEvent } from '../turn/events.ts';
import { sessionArtifactEventSchemas } from './artifact-events.ts';
import type { SessionArtifactEvent } from './artifact-events.ts';

export const partSchema = z.discriminatedUnion('type', [
  z.strictObject({ type: z.literal('text'), text: z.string() }),
  /** A version of an artifact, as it was found when the message was accepted. */
  z.strictObject({ type: z.literal('file'), artifactId: z.string(), version: z.int().min(1) }),
]);

/** A sandbox that a session works in. `own`: it was made for the session, and is deleted with it. */
const sessionSandbox = z.strictObject({ sandboxId: z.string(), own: z.boolean() });
export type SessionSandbox = z.infer<typeof sessionSandbox>;

const sessionOnly = {
  'session.created': z.strictObject({
    agentId: z.string(),
    agentVersion: z.int(),
    manifestHash: z.string(),
    manifest: manifestSchema,
    /** Those that the manifest uses as tools. */
    agents: usedAgents.optional(),
    subject: z.string().nullable(),
    info: z.record(z.string(), z.unknown()),
    labels: z.record(z.string(), z.string()),
    /** What a repeated PUT is compared with: SHA-256 of the canonical body without what may change. */
    bodyHash: z.string(),
    /** Vaults whose credentials its tools may use; absent: none. */
    vaultIds: z.array(z.string()).optional(),
    /** Of a fork: the history that comes before its own. */
    origin: forkOrigin.optional(),
    /** Where its sandbox tools run; absent: no sandbox. */
    sandbox: sessionSandbox.optional(),
  }),
  /** Vaults absent: they are kept. */
  'session.updated': z.strictObject({
    labels: z.record(z.string(), z.string()),
    vaultIds: z.array(z.string()).optional(),
  }),
  /** The session's id is free again: what comes after is another session. */
  'session.deleted': z.strictObject({}),
  ...forkEventSchemas,
  'command.message': z.strictObject({
    turnId: z.string(),
    requestId: z.string(),
    subject: z.string().optional(),
    content: z.string().optional(),
    parts: z.array(partSchema).optional(),
    whenBusy: z.string().optional(),
    manifest: manifestSchema.optional(),
    /** The sender's trace, as its header named it: the turn's own trace links to it. */
    traceparent: z.string().optional(),
  }),
  'command.cancel': z.strictObject({
    /** The turn that it ended; null when there was nothing to cancel. */
    turnId: z.string().nullable(),
    requestId: z.string(),
    subject: z.string().optional(),
    /** The turn that the command named. */
    namedTurnId: z.string().optional(),
    reason: z.string().optional(),
  }),
  'command.retry': z.strictObject({
    /** The new turn. */
    turnId: z.string(),
    requestId: z.string(),
    subject: z.string().optional(),
    /** The failed turn that it continues from. */
    retryOf: z.string(),
  }),
} as const;

export const sessionEventSchemas = {
  ...sessionOnly,
  ...turnEventSchemas,
  ...sessionArtifactEventSchemas,
} as const;

export type MessagePart = z.infer<typeof partSchema>;
type Schemas = typeof sessionOnly;
export type SessionEvent =
  | { [T in keyof Schemas]: { readonly type: T; readonly data: z.infer<Schemas[T]> } }[keyof Schemas]
  | TurnEvent
  | SessionArtifactEvent;

import { z } from 'zod';
import { podSpec, SANDBOX_KINDS, virtualSpec } from './spec.ts';

const sha256 = z.string().regex(/^[0-9a-f]{64}$/);

/** Which files a workspace has: the manifest is an object of the store, however many files it lists. */
export const filesRef = z.strictObject({
  /** Of the manifest's text. */
  manifest: sha256,
  /** Where it is: `<workspace>/<name>`. */
  object: z.string(),
  /** Whose objects it names, its own included: a fork names those of its parent. */
  workspaces: z.array(z.string()),
  files: z.int().min(0),
  /** Of all files together. */
  bytes: z.int().min(0),
});
export type FilesRef = z.infer<typeof filesRef>;

/** Of a call: null when it has changed nothing. `storedBytes` is what was new in the object store. */
const changed = { files: filesRef.nullable(), storedBytes: z.int().min(0) };

/** A session that a sandbox was made for; it is deleted with it. */
const ownerSchema = z.strictObject({ sessionId: z.string() });

export const EXEC_OUTCOMES = ['completed', 'failed', 'timeout', 'killed'] as const;

/** What `sandbox.exec` shows, in a session as in the sandbox. */
export const execFigures = z.strictObject({
  tool: z.string(),
  /** The beginning of the script. */
  command: z.string().max(500).optional(),
  path: z.string().optional(),
  exitCode: z.int().optional(),
  durationMs: z.int().min(0),
  cpuMs: z.int().min(0),
  bytesWritten: z.int().min(0),
  outcome: z.enum(EXEC_OUTCOMES),
});
export type ExecFigures = z.infer<typeof execFigures>;

/** What the model gets for a call. */
export const toolOutcome = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.literal('completed'), output: z.unknown() }),
  z.strictObject({ kind: z.literal('failed'), code: z.string(), message: z.string() }),
]);
export type ToolOutcome = z.infer<typeof toolOutcome>;

export const sandboxEventSchemas = {
  'sandbox.created': z.strictObject({
    sandboxId: z.string(),
    kind: z.enum(SANDBOX_KINDS),
    spec: z.union([virtualSpec, podSpec]),
    subject: z.string().nullable(),
    labels: z.record(z.string(), z.string()),
    /** Owner of what it writes into the object store: no other sandbox has it, before or after. */
    workspace: z.string(),
    /** The session that it was made for; null: it was made on its own. */
    owner: ownerSchema.nullable(),
    /** What it starts with: those of the forked session, or those of its source. */
    files: filesRef.nullable(),
    storedBytes: z.int().min(0),
  }),
  /** A session that it was not made for works in it. */
  'sandbox.attached': z.strictObject({ sessionId: z.string() }),
  'sandbox.detached': z.strictObject({ sessionId: z.string() }),
  'sandbox.labelled': z.strictObject({ labels: z.record(z.string(), z.string()) }),
  /**
   * A turn has the sandbox. A higher epoch fences every lower one. `segment`: epoch of the turn's worker, so that a
   * worker that lost the turn loses the sandbox, too.
   */
  'sandbox.held': z.strictObject({
    sessionId: z.string(),
    turnId: z.string(),
    epoch: z.int().min(1),
    segment: z.int().min(0),
  }),
  'sandbox.released': z.strictObject({ epoch: z.int().min(1) }),
  /**
   * A call of a tool, with its result and the files as they are after it: one commit, so neither exists without the
   * other.
   */
  'sandbox.executed': z.strictObject({
    epoch: z.int().min(1),
    sessionId: z.string(),
    turnId: z.string(),
    callId: z.string(),
    /** Of the agent that made it; absent: not known. */
    agentId: z.string().optional(),
    exec: execFigures,
    outcome: toolOutcome,
    ...changed,
  }),
  /** A client wrote or deleted a file, or files of a message were put there. */
  'sandbox.written': z.strictObject({ files: filesRef, storedBytes: z.int().min(0) }),
  /** Everything in it was removed. */
  'sandbox.reset': z.strictObject({ files: filesRef.nullable(), storedBytes: z.int().min(0) }),
  'sandbox.stopped': z.strictObject({ hostEpoch: z.int().min(1) }),
  'sandbox.started': z.strictObject({ hostEpoch: z.int().min(1) }),
  /**
   * What became of a pod, as its driver finds it. One of an earlier start or volume changes nothing: it was outrun.
   */
  'sandbox.observed': z.strictObject({
    observed: z.enum(['running', 'lost', 'failed']),
    hostEpoch: z.int().min(1),
    volumeGeneration: z.int().min(1),
    reason: z.string().max(500).optional(),
  }),
  /** A call is about to begin that cannot be made twice: if its worker dies, what it did is not known. */
  'sandbox.called': z.strictObject({ epoch: z.int().min(1), turnId: z.string(), callId: z.string() }),
  /** The time that a pod was given is over; it does not start again. */
  'sandbox.expired': z.strictObject({ hostEpoch: z.int().min(1) }),
  /** The id is free again: what comes after is another sandbox. */
  'sandbox.deleted': z.strictObject({}),
} as const;

type Schemas = typeof sandboxEventSchemas;
export type SandboxEvent = {
  [T in keyof Schemas]: { readonly type: T; readonly data: z.infer<Schemas[T]> };
}[keyof Schemas];

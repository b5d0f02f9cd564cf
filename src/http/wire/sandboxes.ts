import { z } from 'zod';
import { clientId, labels, text } from '../../domain/kernel/schemas.ts';
import { manifestPath } from '../../domain/sandbox/manifest.ts';
import { podSpec, SANDBOX_KINDS, virtualSpec } from '../../domain/sandbox/spec.ts';
import { SHOWN_STATES } from '../../domain/sandbox/shown.ts';
import { count, cursor, nullableCursor, requestId, sha256, timestamp } from './parts.ts';

/** Shapes of the routes of sandboxes. */

export const sandboxPath = z.strictObject({ sandboxId: clientId });
export const filePath = z.strictObject({ sandboxId: clientId, path: manifestPath });
/** The same with the path's slashes as they are. */
export const deepFilePath = z.strictObject({ sandboxId: clientId, '*': manifestPath });

const common = { requestId: requestId.optional(), labels: labels.optional() };
export const openBody = z.union([
  z.strictObject({ ...common, kind: z.literal('virtual').default('virtual'), spec: virtualSpec.optional() }),
  z.strictObject({ ...common, kind: z.literal('pod'), spec: podSpec.optional() }),
]);

const LABELS_MAX = 16;
const label = text(1, 400).regex(/^[^=]+=.*$/su, 'must be name=value');
export const listQuery = z.strictObject({
  label: z
    .union([label, z.array(label).max(LABELS_MAX)])
    .optional()
    .transform((given) => [given ?? []].flat())
    .meta({ type: 'array', items: { type: 'string' }, description: 'name=value; repeated, all must match' }),
  state: z.enum(SHOWN_STATES).optional(),
  limit: count(1, 200, 50),
  cursor: cursor.optional(),
});
export const eventsQuery = z.strictObject({ cursor: cursor.optional() });
/** A record of a session that works in the sandbox; neither: the files as they are. */
const moment = {
  sessionId: clientId.optional().describe('The session whose record `cursor` names.'),
  cursor: cursor.optional().describe('The files as they were at this record of the session; absent: as they are.'),
};
const isMoment = ({ sessionId, cursor: at }: Moment): boolean => (sessionId === undefined) === (at === undefined);
const halved = { error: 'sessionId and cursor name a record together', path: ['cursor'] };
export const treeQuery = z.strictObject({ path: manifestPath.optional(), ...moment }).refine(isMoment, halved);
export const fileQuery = z.strictObject(moment).refine(isMoment, halved);
export interface Moment {
  readonly sessionId?: string | undefined;
  readonly cursor?: string | undefined;
}

const machine = z.object({
  desired: z.enum(['running', 'suspended', 'deleted']),
  observed: z.enum(['creating', 'running', 'suspended', 'expired', 'lost', 'failed', 'deleting']),
  volumeGeneration: z.int(),
  hostEpoch: z.int(),
  expiresAt: timestamp.optional(),
  reason: z.string().optional(),
});
export const sandbox = z
  .object({
    id: z.string(),
    kind: z.enum(SANDBOX_KINDS),
    labels: z.record(z.string(), z.string()),
    spec: z.record(z.string(), z.unknown()),
    state: z.enum(SHOWN_STATES),
    subject: z.string().nullable(),
    pod: machine.optional(),
    sessions: z.array(z.object({ id: z.string(), activeTurnId: z.string().nullable() })),
    /** Of its workspace: how many, and their bytes together. */
    files: z.object({ count: z.int(), bytes: z.int() }),
    createdAt: timestamp,
    updatedAt: timestamp,
  })
  .meta({ id: 'Sandbox' });
export const sandboxList = z.object({ sandboxes: z.array(sandbox), nextCursor: nullableCursor });
export const sandboxDeleted = z.object({ id: z.string(), deleted: z.literal(true) });
const entry = z.object({ path: z.string(), size: z.int(), sha256, contentType: z.string() });
export const tree = z.object({ sandboxId: z.string(), files: z.array(entry) });
export const fileWritten = z.object({ path: z.string(), size: z.int(), sha256 });
export const fileDeleted = z.object({ path: z.string(), deleted: z.literal(true) });

export const tenantSandbox = z.object({
  virtual: z.object({ available: z.boolean(), reason: z.string().optional() }),
  pod: z.object({ available: z.boolean(), backend: z.string().nullable(), reason: z.string().optional() }),
  defaults: z.object({
    kind: z.enum(SANDBOX_KINDS),
    files: z.int(),
    totalBytes: z.int(),
    fileBytes: z.int(),
    callSeconds: z.int(),
    callSecondsMax: z.int(),
  }),
  limits: z.object({ sandboxes: z.int() }),
  usage: z.object({ sandboxes: z.int() }),
});

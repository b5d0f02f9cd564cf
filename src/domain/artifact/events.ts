import { z } from 'zod';

export const ARTIFACT_KINDS = ['file', 'folder'] as const;
export const ARTIFACT_SOURCES = ['upload', 'export', 'tool'] as const;
export type ArtifactKind = (typeof ARTIFACT_KINDS)[number];

const sha256 = z.string().regex(/^[0-9a-f]{64}$/);

/** One version, as it is recorded. Its bytes are in the object store already: bytes first, then the event. */
const versionSchema = z.strictObject({
  version: z.int().min(1),
  /** The operation that stored it; names its reservation and its objects. */
  uploadId: z.string(),
  /** Of a folder: the sum of its files. */
  size: z.int().min(0),
  /** Of a folder: the digest of its canonical tree. */
  sha256,
  contentType: z.string(),
  source: z.enum(ARTIFACT_SOURCES),
  /** Name of the object that holds the file, or the tree of a folder. */
  object: z.string(),
  /** Names of every object that this version brought into the store; those of earlier versions are not repeated. */
  objects: z.array(z.string()),
  /** Bytes that count towards the tenant's total for it: what it brought, without the tree. */
  storedBytes: z.int().min(0),
  /** The turn that exported it; null: none did. */
  turnId: z.string().nullable(),
});

/** The session that an artifact belongs to, with what decides who may see it; none of it ever changes. */
const ownerSchema = z.strictObject({
  sessionId: z.string(),
  /** Position of the session's creation: a later one with the same id is another session. */
  sessionPosition: z.int(),
  subject: z.string().nullable(),
  agentId: z.string(),
});

export const artifactEventSchemas = {
  /** The artifact with its first version. */
  'artifact.stored': z.strictObject({
    artifactId: z.string(),
    kind: z.enum(ARTIFACT_KINDS),
    name: z.string(),
    owner: ownerSchema.nullable(),
    labels: z.record(z.string(), z.string()),
    version: versionSchema,
  }),
  'artifact.version_stored': z.strictObject({ version: versionSchema }),
  /** An upload that did not finish in time may no longer record its version. */
  'artifact.upload_abandoned': z.strictObject({ uploadId: z.string() }),
  /** Every version is gone; the bytes follow. The operation that removed it returns its bytes. */
  'artifact.removed': z.strictObject({ removalId: z.string() }),
} as const;

type Schemas = typeof artifactEventSchemas;
export type ArtifactEvent = {
  [T in keyof Schemas]: { readonly type: T; readonly data: z.infer<Schemas[T]> };
}[keyof Schemas];
export type VersionData = z.infer<typeof versionSchema>;
export type ArtifactOwner = z.infer<typeof ownerSchema>;

import { z } from 'zod';
import { artifactName, treePath } from '../../domain/artifact/names.ts';
import { ARTIFACT_KINDS, ARTIFACT_SOURCES } from '../../domain/artifact/events.ts';
import { clientId, labels, text } from '../../domain/kernel/schemas.ts';
import { LINK_SECONDS_DEFAULT, LINK_SECONDS_MAX } from '../../commands/artifact/links.ts';
import { count, cursor, nullableCursor, requestId, sha256, timestamp } from './parts.ts';

/** Shapes of the artifact routes. */

const artifactId = clientId;
const versionName = z
  .string()
  .regex(/^(latest|[1-9]\d{0,8})$/, "must be a version number or 'latest'")
  .meta({ examples: ['1', 'latest'] });

export const artifactPath = z.strictObject({ artifactId });
export const versionPath = z.strictObject({ artifactId, version: versionName });
export const filePath = z.strictObject({ artifactId, version: versionName, path: treePath });
/** The same with the path's slashes as they are. */
export const deepFilePath = z.strictObject({ artifactId, version: versionName, '*': treePath });
export const linkPath = z.strictObject({ token: z.string() });

const label = text(1, 400).regex(/^[^=]+=.*$/su, 'must be key=value');
export const uploadQuery = z.strictObject({
  name: artifactName,
  sessionId: clientId.optional(),
  label: z
    .union([label, z.array(label)])
    .optional()
    .transform((given) => Object.fromEntries([given ?? []].flat().map(labelOf)))
    .pipe(labels)
    .meta({ type: 'array', items: { type: 'string' }, description: 'key=value; repeat it for several labels' }),
});
export const listQuery = z.strictObject({
  sessionId: clientId.optional(),
  limit: count(1, 1_000, 1_000),
  cursor: cursor.optional(),
});
export const diffQuery = z.strictObject({ from: versionName.optional() });

function labelOf(pair: string): [string, string] {
  const at = pair.indexOf('=');
  return [pair.slice(0, at), pair.slice(at + 1)];
}

export const artifactVersion = z
  .object({
    version: z.int().min(1),
    size: z.int().min(0),
    sha256,
    contentType: z.string(),
    source: z.enum(ARTIFACT_SOURCES),
    createdAt: timestamp,
  })
  .meta({ id: 'ArtifactVersion' });
const artifactFields = {
  artifactId: z.string(),
  kind: z.enum(ARTIFACT_KINDS),
  name: z.string(),
  contentType: z.string(),
  sessionId: z.string().optional(),
  latestVersion: z.int().min(1),
  labels: z.record(z.string(), z.string()),
  createdAt: timestamp,
  updatedAt: timestamp,
};
export const artifact = z
  .object({ ...artifactFields, versions: z.array(artifactVersion).optional() })
  .meta({ id: 'Artifact' });
export const artifactList = z.object({ artifacts: z.array(artifact), nextCursor: nullableCursor });
export const uploaded = z.object({ artifact, version: artifactVersion });
export const artifactDeleted = z.object({ artifactId: z.string(), deleted: z.literal(true) });

const fileEntry = z
  .object({ path: z.string(), size: z.int().min(0), sha256, contentType: z.string() })
  .meta({ id: 'FileEntry' });
export const tree = z.object({ artifactId: z.string(), version: z.int().min(1), files: z.array(fileEntry) });
export const diff = z
  .object({
    artifactId: z.string(),
    from: z.int().min(1).optional(),
    to: z.int().min(1),
    added: z.array(fileEntry),
    removed: z.array(fileEntry),
    changed: z.array(z.object({ path: z.string(), from: fileEntry, to: fileEntry })),
  })
  .meta({ id: 'ArtifactDiff' });

export const linkBody = z.strictObject({
  requestId: requestId.optional(),
  version: z.int().min(1).max(999_999_999).optional(),
  expiresIn: z.int().min(1).max(LINK_SECONDS_MAX).default(LINK_SECONDS_DEFAULT),
});
export const link = z.object({ path: z.string(), expiresAt: timestamp });

/** 10,000 parts of 5 MiB, the most that S3 combines, less a margin. */
export const ARTIFACT_FILE_BYTES_MAX = 51_539_607_552;
/** Far beyond any disk, and still an exact number. */
const TOTAL_BYTES_MAX = 2 ** 50;
export const limitBody = z.strictObject({
  requestId: requestId.optional(),
  limits: z.strictObject({
    fileBytes: z.int().min(0).max(ARTIFACT_FILE_BYTES_MAX).optional(),
    totalBytes: z.int().min(0).max(TOTAL_BYTES_MAX).optional(),
  }),
});
export const use = z.object({ limits: z.object({ fileBytes: z.int(), totalBytes: z.int() }), usedBytes: z.int() });

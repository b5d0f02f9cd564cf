import { z } from 'zod';
import type { ArtifactState, KnownArtifact } from '../artifact/state.ts';
import { ARTIFACT_KINDS, ARTIFACT_SOURCES } from '../artifact/events.ts';

/**
 * What a session's history says about its artifacts. The artifact's own history is authoritative; a session is brought
 * up to it, any number of times.
 */
export const sessionArtifactEventSchemas = {
  'artifact.created': z.strictObject({
    turnId: z.string().nullable(),
    artifactId: z.string(),
    kind: z.enum(ARTIFACT_KINDS),
    name: z.string(),
    contentType: z.string(),
    version: z.int().min(1),
    size: z.int().min(0),
    sha256: z.string(),
    source: z.enum(ARTIFACT_SOURCES),
  }),
  'artifact.deleted': z.strictObject({ turnId: z.string().nullable(), artifactId: z.string(), name: z.string() }),
} as const;

type Schemas = typeof sessionArtifactEventSchemas;
export type SessionArtifactEvent = {
  [T in keyof Schemas]: { readonly type: T; readonly data: z.infer<Schemas[T]> };
}[keyof Schemas];

/** By artifact: how many of its versions the history has; -1: its deletion. */
type RecordedVersions = Readonly<Record<string, number>>;

/**
 * What the history says about every artifact that the session ever had. The bucket is chosen by the last character of
 * an id, which is random: an event copies one bucket, not all.
 */
export interface RecordedArtifacts {
  readonly count: number;
  readonly buckets: Readonly<Record<string, RecordedVersions>>;
}

export const noneRecorded: RecordedArtifacts = { count: 0, buckets: {} };

const DELETED = -1;

function bucketOf(artifactId: string): string {
  return artifactId.slice(-1);
}

function versionsOf({ buckets }: RecordedArtifacts, artifactId: string): number | undefined {
  return buckets[bucketOf(artifactId)]?.[artifactId];
}

export function evolveRecorded(recorded: RecordedArtifacts, event: SessionArtifactEvent): RecordedArtifacts {
  const { artifactId } = event.data;
  const known = versionsOf(recorded, artifactId);
  if (known === DELETED) return recorded;
  const next = event.type === 'artifact.created' ? Math.max(known ?? 0, event.data.version) : DELETED;
  const { count, buckets } = recorded;
  const bucket = bucketOf(artifactId);
  return {
    count: known === undefined ? count + 1 : count,
    buckets: { ...buckets, [bucket]: { ...buckets[bucket], [artifactId]: next } },
  };
}

/** What the history lacks about an artifact: each version once and in order, then its deletion. */
export function missingArtifactEvents(recorded: RecordedArtifacts, artifact: ArtifactState): SessionArtifactEvent[] {
  if (artifact.status === 'absent') return [];
  const { artifactId, name } = artifact;
  const known = versionsOf(recorded, artifactId) ?? 0;
  if (known === DELETED) return [];
  const created = artifact.versions.slice(known).map((version) => createdEvent(artifact, version));
  if (artifact.status === 'stored') return created;
  return [...created, { type: 'artifact.deleted', data: { turnId: null, artifactId, name } }];
}

function createdEvent(
  { artifactId, kind, name }: KnownArtifact,
  { turnId, contentType, version, size, sha256, source }: KnownArtifact['versions'][number],
): SessionArtifactEvent {
  return {
    type: 'artifact.created',
    data: { turnId, artifactId, kind, name, contentType, version, size, sha256, source },
  };
}

/** What the canonical history shows of them, member by member. */
export function artifactPayload(event: SessionArtifactEvent): Readonly<Record<string, unknown>> {
  if (event.type === 'artifact.deleted') {
    const { artifactId, name } = event.data;
    return { artifactId, name };
  }
  const { artifactId, kind, name, contentType, version, size, sha256, source } = event.data;
  return { artifactId, kind, name, contentType, version, size, sha256, source };
}

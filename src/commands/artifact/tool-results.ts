import type { OpenSession } from '../../domain/session/state.ts';
import type { AggregateRef } from '../../streams/subjects.ts';
import type { ArtifactDeps } from './deps.ts';
import { uploadArtifact } from './upload.ts';

/* What a model and the history get of a tool's result that is too long for them: it becomes an artifact of the session. */

/** Characters of JSON text that a result may have in the history. */
const RESULT_CHARS_MAX = 262_144;
/** What is shown of a longer one. */
const BEGINNING_CHARS = 2_000;

/** The call whose result it is. */
export interface ResultOf {
  readonly ref: AggregateRef;
  readonly session: Pick<OpenSession, 'subject' | 'agentId' | 'createdPosition'>;
  readonly tool: string;
  readonly effectId: string;
  readonly actor: string;
  readonly signal: AbortSignal;
  /** Repeats what needs the object store or the log until they are there: one file at a time, so that none is stored twice. */
  readonly whileAway: <T>(work: () => Promise<T>) => Promise<T>;
}

/** A version of an artifact, as a result names it. */
export type StoredResult = { artifactId: string; version: number };

/** What stands in the place of a file, or says why there is none. */
interface Kept {
  readonly shown: Readonly<Record<string, unknown>>;
  readonly file: StoredResult | null;
}

export function isTooLong(value: unknown): boolean {
  return (JSON.stringify(value) ?? '').length > RESULT_CHARS_MAX;
}

/**
 * A result that is too long for the history is an artifact, of which the beginning is shown.
 * @throws what `whileAway` throws
 */
export async function keptResult(deps: ArtifactDeps, of: ResultOf, value: unknown): Promise<Kept> {
  const isText = typeof value === 'string';
  const text = isText ? value : JSON.stringify(value);
  const { end, contentType } = isText
    ? { end: 'txt', contentType: 'text/plain' }
    : { end: 'json', contentType: 'application/json' };
  const bytes = new TextEncoder().encode(text);
  const { shown, file } = await storeResult(deps, of, { name: `${of.tool}.${end}`, contentType, bytes });
  const beginning = text.slice(0, BEGINNING_CHARS).toWellFormed();
  const note = 'The result is too long to be shown whole; the artifact has all of it.';
  return { shown: { note, ...shown, beginning }, file };
}

/** Stores one file of a result. @throws what `whileAway` throws */
export async function storeResult(
  deps: ArtifactDeps,
  { ref, session, effectId: causation, actor, signal, whileAway }: ResultOf,
  { name: named, contentType, bytes }: { name: string; contentType: string; bytes: Uint8Array },
): Promise<Kept> {
  const { subject, agentId, createdPosition: sessionPosition } = session;
  const owner = { sessionId: ref.id, sessionPosition, subject, agentId };
  const name = named.replaceAll(/[^A-Za-z0-9._-]/g, '_').slice(-200);
  const size = bytes.length;
  const upload = async () =>
    await uploadArtifact(deps, {
      ...{ tenant: ref.tenant, actor, causation, signal, declaredBytes: size, source: 'tool' },
      target: { kind: 'new', name, owner, labels: {} },
      contentTypeOf: () => contentType,
      body: (async function* () {
        yield bytes;
      })(),
    });
  const outcome = await whileAway(upload);
  if (outcome.kind === 'rejected') return { shown: { name, size, notStored: outcome.message }, file: null };
  const { artifactId } = outcome.artifact;
  const { version } = outcome;
  return { shown: { artifactId, version, name, size }, file: { artifactId, version } };
}

import { uploadArtifact } from '../commands/artifact/upload.ts';
import type { ArtifactDeps } from '../commands/artifact/deps.ts';
import type { OpenSession } from '../domain/session/state.ts';
import type { McpResult } from '../domain/turn/steps/mcp-tools.ts';
import type { McpContent, McpOutcome } from '../drivers/mcp/port.ts';
import type { AggregateRef } from '../streams/subjects.ts';

/* What a model and the history get of a tool's result: what is large, or no text, becomes an artifact of the session. */

/** Characters of JSON text that a result may have in the history. */
const RESULT_CHARS_MAX = 262_144;
/** What is shown of a longer one, and of a text file in a result. */
const BEGINNING_CHARS = 2_000;
const INLINE_BYTES_MAX = 32_768;
const ERROR_CHARS_MAX = 10_000;
const TEXTS = /^(text\/|application\/(json|xml|yaml)\b|[^;]*\+(json|xml)\b)/;

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

type Answered = Extract<McpOutcome, { kind: 'result' }>;
type Part = Readonly<Record<string, unknown>>;
type Stored = { artifactId: string; version: number };

/** @throws what `whileAway` throws */
export async function mcpResult(deps: ArtifactDeps, of: ResultOf, answer: Answered): Promise<McpResult> {
  const text = answer.content.flatMap((part) => (part.type === 'text' ? [part.text] : [])).join('\n');
  if (answer.isError) {
    const message =
      text === '' ? 'The tool failed and does not say why.' : text.slice(0, ERROR_CHARS_MAX).toWellFormed();
    return { outcome: { kind: 'failed', code: 'tool_error', message } };
  }
  const parts: Part[] = [];
  const files: Stored[] = [];
  for (const [n, part] of answer.content.entries()) {
    if (part.type === 'text') continue;
    const { shown, stored } = await partOf(deps, of, part, n);
    parts.push(shown);
    if (stored !== null) files.push(stored);
  }
  const body = await bounded(deps, of, answer.structured ?? text);
  const output = parts.length === 0 ? body : { ...(body === '' ? {} : { result: body }), content: parts };
  // Each part may fit and all of them not: the commit has a largest size.
  return {
    outcome: { kind: 'completed', output: parts.length === 0 ? output : await bounded(deps, of, output) },
    files,
  };
}

async function partOf(
  deps: ArtifactDeps,
  of: ResultOf,
  part: Exclude<McpContent, { type: 'text' }>,
  n: number,
): Promise<{ shown: Part; stored: Stored | null }> {
  if (part.type === 'link') {
    const { uri, name, contentType } = part;
    return { shown: { type: 'link', uri, name, ...(contentType === null ? {} : { contentType }) }, stored: null };
  }
  const contentType = part.contentType ?? 'application/octet-stream';
  const from = part.type === 'resource' ? { uri: part.uri } : {};
  if (part.type === 'resource' && TEXTS.test(contentType) && part.bytes.length <= INLINE_BYTES_MAX) {
    const text = new TextDecoder().decode(part.bytes).replaceAll('\u0000', '');
    return { shown: { type: 'resource', ...from, contentType, text }, stored: null };
  }
  const stored = await store(deps, of, { name: `${of.tool}-${n + 1}`, contentType, bytes: part.bytes });
  return { shown: { type: 'file', ...from, contentType, ...stored.shown }, stored: stored.file };
}

/** A result that is too long for the history is an artifact, of which the beginning is shown. */
async function bounded(deps: ArtifactDeps, of: ResultOf, value: unknown): Promise<unknown> {
  const text = typeof value === 'string' ? value : JSON.stringify(value);
  if (JSON.stringify(value).length <= RESULT_CHARS_MAX) return value;
  const kind =
    typeof value === 'string'
      ? { end: 'txt', contentType: 'text/plain' }
      : { end: 'json', contentType: 'application/json' };
  const bytes = new TextEncoder().encode(text);
  const { contentType } = kind;
  const { shown } = await store(deps, of, { name: `${of.tool}.${kind.end}`, contentType, bytes });
  const beginning = text.slice(0, BEGINNING_CHARS).toWellFormed();
  return { note: 'The result is too long to be shown whole; the artifact has all of it.', ...shown, beginning };
}

async function store(
  deps: ArtifactDeps,
  { ref, session, effectId: causation, actor, signal, whileAway }: ResultOf,
  { name: named, contentType, bytes }: { name: string; contentType: string; bytes: Uint8Array },
): Promise<{ shown: Part; file: Stored | null }> {
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

import type { ArtifactDeps } from '../commands/artifact/deps.ts';
import { isTooLong, keptResult, storeResult } from '../commands/artifact/tool-results.ts';
import type { ResultOf, StoredResult } from '../commands/artifact/tool-results.ts';
import type { McpResult } from '../domain/turn/steps/mcp-tools.ts';
import type { McpContent, McpOutcome } from '../drivers/mcp/port.ts';

/* What a model and the history get of a tool's result: what is large, or no text, becomes an artifact of the session. */

/** Of a text file in a result. */
const INLINE_BYTES_MAX = 32_768;
const ERROR_CHARS_MAX = 10_000;
const TEXTS = /^(text\/|application\/(json|xml|yaml)\b|[^;]*\+(json|xml)\b)/;

type Answered = Extract<McpOutcome, { kind: 'result' }>;
type Part = Readonly<Record<string, unknown>>;

/** @throws what `whileAway` throws */
export async function mcpResult(deps: ArtifactDeps, of: ResultOf, answer: Answered): Promise<McpResult> {
  const text = answer.content.flatMap((part) => (part.type === 'text' ? [part.text] : [])).join('\n');
  if (answer.isError) {
    const message =
      text === '' ? 'The tool failed and does not say why.' : text.slice(0, ERROR_CHARS_MAX).toWellFormed();
    return { outcome: { kind: 'failed', code: 'tool_error', message } };
  }
  const parts: Part[] = [];
  const files: StoredResult[] = [];
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
): Promise<{ shown: Part; stored: StoredResult | null }> {
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
  const stored = await storeResult(deps, of, { name: `${of.tool}-${n + 1}`, contentType, bytes: part.bytes });
  return { shown: { type: 'file', ...from, contentType, ...stored.shown }, stored: stored.file };
}

async function bounded(deps: ArtifactDeps, of: ResultOf, value: unknown): Promise<unknown> {
  return isTooLong(value) ? (await keptResult(deps, of, value)).shown : value;
}

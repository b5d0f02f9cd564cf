import { createHash } from 'node:crypto';
import { setImmediate } from 'node:timers/promises';
import { fileAt, FILE_MODE, isDirectory, isFault, sameManifest, withFile } from '../../domain/sandbox/manifest.ts';
import type { WorkspaceFile, WorkspaceManifest } from '../../domain/sandbox/manifest.ts';
import { resolvePath } from '../../domain/sandbox/paths.ts';
import { globPattern, linePattern, SearchError } from '../../domain/sandbox/search.ts';
import type { LinePattern } from '../../domain/sandbox/search.ts';
import { MATCHES, MATCHES_MAX } from '../../domain/sandbox/tools.ts';
import type { GrepMatch, SandboxFailure, SandboxResults, SandboxToolCall } from '../../domain/sandbox/tools.ts';
import { cut, OUTPUT_CHARACTERS, storable } from './output.ts';
import type { SandboxAnswer, SandboxCall } from './port.ts';

/**
 * The tools that need no process. They run in the Host's thread, so each does a little at a time, and within a limit.
 */
export type FileToolCall = Exclude<SandboxToolCall, { name: 'bash' }>;
type InputOf<Name extends FileToolCall['name']> = Extract<FileToolCall, { name: Name }>['input'];

/** How long a call uses the thread before others have their turn, and in all, ms. */
const SLICE_MS = 4;
const THREAD_MS_MAX = 2_000;
/** Characters of a line that a match shows. */
const MATCH_TEXT_MAX = 500;
/** Places of a text that one edit changes. */
const REPLACEMENTS_MAX = 10_000;
/** A NUL in the first bytes: not text. */
const BINARY_PROBE = 8_000;

interface Done {
  readonly result: SandboxResults[FileToolCall['name']];
  readonly files?: WorkspaceManifest;
  readonly bytesWritten?: number;
}

class ToolFailure extends Error {
  readonly code: SandboxFailure;
  constructor(code: SandboxFailure, message: string) {
    super(message);
    this.code = code;
  }
}

export interface FileToolRun {
  readonly signal: AbortSignal;
  readonly queuedMs: number;
}

/** @throws the signal's reason, what the content store throws */
export async function runFileTool(call: SandboxCall, tool: FileToolCall, run: FileToolRun): Promise<SandboxAnswer> {
  const clock = new Clock(run.signal);
  try {
    const { result, files, bytesWritten = 0 } = await dispatch(call, tool, clock);
    const changed = files === undefined || sameManifest(call.files, files) ? null : files;
    const usage = { ...clock.usage(), queuedMs: run.queuedMs, bytesWritten: changed === null ? 0 : bytesWritten };
    return { outcome: 'completed', result, files: changed, usage };
  } catch (error) {
    if (!(error instanceof ToolFailure || error instanceof SearchError)) throw error;
    const usage = { ...clock.usage(), queuedMs: run.queuedMs, bytesWritten: 0 };
    return { outcome: 'failed', code: error.code, message: error.message, usage };
  }
}

async function dispatch(call: SandboxCall, tool: FileToolCall, clock: Clock): Promise<Done> {
  switch (tool.name) {
    case 'read':
      return await read(call, tool.input, clock);
    case 'write':
      return await write(call, tool.input, clock);
    case 'edit':
      return await edit(call, tool.input, clock);
    case 'grep':
      return await grep(call, tool.input, clock);
    case 'glob':
      return await glob(call, tool.input, clock);
  }
}

async function read(call: SandboxCall, input: InputOf<'read'>, clock: Clock): Promise<Done> {
  const text = new TextDecoder().decode(await bytesOf(call, fileOf(call, input.path), clock));
  const from = lineStart(text, 0, input.offset ?? 0);
  const to = input.limit === undefined ? text.length : lineStart(text, from, input.limit);
  const content = storable(cut(text.slice(from, to), OUTPUT_CHARACTERS));
  return { result: { content, ...(to - from > OUTPUT_CHARACTERS ? { truncated: true } : {}) } };
}

async function write(call: SandboxCall, input: InputOf<'write'>, clock: Clock): Promise<Done> {
  const path = pathOf(input.path);
  if (isDirectory(call.files, path)) throw new ToolFailure('is_directory', `${path || '/workspace'} is a directory`);
  const bytes = new TextEncoder().encode(input.content);
  const files = await kept(call, path, bytes, clock);
  return { result: { path, size: bytes.byteLength }, files, bytesWritten: bytes.byteLength };
}

async function edit(call: SandboxCall, input: InputOf<'edit'>, clock: Clock): Promise<Done> {
  const { oldText, newText, replaceAll = false } = input;
  const file = fileOf(call, input.path);
  const text = strictText(await bytesOf(call, file, clock), file.path);
  const places = placesOf(text, oldText, replaceAll ? REPLACEMENTS_MAX : 1);
  if (places === 0)
    throw new ToolFailure('no_match', `oldText is not in ${file.path}; read it and copy the text exactly`);
  if (places > REPLACEMENTS_MAX) {
    throw new ToolFailure('limit_exceeded', `oldText is in ${file.path} more than ${REPLACEMENTS_MAX} times; use sed`);
  }
  if (places > 1 && !replaceAll) {
    throw new ToolFailure(
      'not_unique',
      `oldText is in ${file.path} more than once; add what is around it, or set replaceAll`,
    );
  }
  const added = places * (new TextEncoder().encode(newText).byteLength - new TextEncoder().encode(oldText).byteLength);
  if (file.size + added > call.limits.fileBytes) {
    throw new ToolFailure('limit_exceeded', `a file has ${call.limits.fileBytes} bytes at most; replace less`);
  }
  const bytes = new TextEncoder().encode(text.split(oldText).join(newText));
  const files = await kept(call, file.path, bytes, clock);
  return { result: { path: file.path, replacements: places }, files, bytesWritten: bytes.byteLength };
}

async function grep(call: SandboxCall, input: InputOf<'grep'>, clock: Clock): Promise<Done> {
  const pattern = linePattern(input.pattern, input.ignoreCase ?? false);
  // A name alone fits in every directory, as for ripgrep.
  const glob =
    input.glob === undefined ? null : globPattern(input.glob.includes('/') ? input.glob : `**/${input.glob}`);
  const under = input.path === undefined ? '' : pathOf(input.path);
  const found = new Matches(input.maxResults ?? MATCHES);
  for (const file of filesUnder(call.files, under)) {
    await clock.yield();
    if (glob !== null && !glob(file.path)) continue;
    const bytes = await bytesOf(call, file, clock);
    if (bytes.subarray(0, BINARY_PROBE).includes(0)) continue;
    await searchLines(new TextDecoder().decode(bytes), pattern, { path: file.path, found, clock });
    if (found.isFull) break;
  }
  return { result: { matches: found.matches, ...(found.isFull ? { truncated: true } : {}) } };
}

async function searchLines(
  text: string,
  pattern: LinePattern,
  { path, found, clock }: { path: string; found: Matches; clock: Clock },
): Promise<void> {
  let line = 0;
  for (let from = 0; from < text.length && !found.isFull;) {
    const at = text.indexOf('\n', from);
    const end = at < 0 ? text.length : at;
    line += 1;
    const content = text.slice(from, end);
    if (pattern(content)) found.add({ path, line, text: storable(cut(content, MATCH_TEXT_MAX)) });
    from = end + 1;
    await clock.yield();
  }
}

async function glob(call: SandboxCall, input: InputOf<'glob'>, clock: Clock): Promise<Done> {
  const under = input.path === undefined ? '' : pathOf(input.path);
  const fits = globPattern(input.pattern);
  const paths: string[] = [];
  let characters = 0;
  for (const { path } of filesUnder(call.files, under)) {
    await clock.yield();
    if (!fits(under === '' ? path : path.slice(under.length + 1))) continue;
    characters += path.length;
    if (paths.length === MATCHES_MAX || characters > OUTPUT_CHARACTERS) return { result: { paths, truncated: true } };
    paths.push(path);
  }
  return { result: { paths } };
}

/** Matches until there are enough of them, or enough of their text. */
class Matches {
  readonly matches: GrepMatch[] = [];
  isFull = false;
  readonly #max: number;
  #characters = 0;

  constructor(max: number) {
    this.#max = max;
  }

  add(match: GrepMatch): void {
    this.#characters += match.path.length + match.text.length;
    if (this.matches.length === this.#max || this.#characters > OUTPUT_CHARACTERS) this.isFull = true;
    else this.matches.push(match);
  }
}

/** Yields the thread to others now and then, and measures its use. */
class Clock {
  readonly #signal: AbortSignal;
  readonly #startedMs = performance.now();
  #sliceMs = performance.now();
  #usedMs = 0;

  constructor(signal: AbortSignal) {
    this.#signal = signal;
  }

  async yield(): Promise<void> {
    if (performance.now() - this.#sliceMs < SLICE_MS) return;
    await this.away(async () => await setImmediate());
    this.#signal.throwIfAborted();
    if (this.#usedMs > THREAD_MS_MAX) {
      throw new ToolFailure(
        'limit_exceeded',
        'the search takes too long; name a path or a glob, or do it by a command',
      );
    }
  }

  /** Work of others that this one waits for. */
  async away<T>(work: () => Promise<T>): Promise<T> {
    this.#usedMs += performance.now() - this.#sliceMs;
    try {
      return await work();
    } finally {
      this.#sliceMs = performance.now();
    }
  }

  usage(): { readonly durationMs: number; readonly cpuMs: number } {
    const now = performance.now();
    return { durationMs: Math.round(now - this.#startedMs), cpuMs: Math.round(this.#usedMs + now - this.#sliceMs) };
  }
}

function pathOf(text: string): string {
  const resolved = resolvePath(text);
  if (!resolved.ok) throw new ToolFailure('invalid_path', `the path ${resolved.reason}; name one below /workspace`);
  return resolved.path;
}

function fileOf(call: SandboxCall, text: string): WorkspaceFile {
  const path = pathOf(text);
  const file = fileAt(call.files, path);
  if (file !== undefined) return file;
  if (isDirectory(call.files, path)) throw new ToolFailure('is_directory', `${path || '/workspace'} is a directory`);
  throw new ToolFailure('not_found', `there is no file ${path}; use glob to see which there are`);
}

function filesUnder(manifest: WorkspaceManifest, under: string): readonly WorkspaceFile[] {
  const file = fileAt(manifest, under);
  if (file !== undefined) return [file];
  if (!isDirectory(manifest, under)) throw new ToolFailure('not_found', `there is no file or directory ${under}`);
  return under === '' ? manifest.files : manifest.files.filter(({ path }) => path.startsWith(`${under}/`));
}

async function bytesOf(call: SandboxCall, file: WorkspaceFile, clock: Clock): Promise<Uint8Array> {
  return await clock.away(async () => await call.contents.read(file.sha256));
}

/** The manifest with other bytes for a path, which are on their way to the store. */
async function kept(call: SandboxCall, path: string, bytes: Uint8Array, clock: Clock): Promise<WorkspaceManifest> {
  const sha256 = createHash('sha256').update(bytes).digest('hex');
  const mode = fileAt(call.files, path)?.mode ?? FILE_MODE;
  const files = withFile(call.files, { path, sha256, size: bytes.byteLength, mode }, call.limits);
  if (isFault(files)) throw new ToolFailure(files.code, files.message);
  if (!call.files.files.some((file) => file.sha256 === sha256)) {
    await clock.away(async () => await call.contents.write(sha256, bytes));
  }
  return files;
}

/** Where the text continues after this many lines. */
function lineStart(text: string, from: number, lines: number): number {
  let at = from;
  for (let i = 0; i < lines && at < text.length; i++) {
    const end = text.indexOf('\n', at);
    if (end < 0) return text.length;
    at = end + 1;
  }
  return at;
}

/** Bytes that are not text would come back changed. */
function strictText(bytes: Uint8Array, path: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new ToolFailure('no_match', `${path} is not a text in UTF-8; change it by a command`);
  }
}

/** How often a text is in another, one more than `max` at most. */
function placesOf(text: string, part: string, max: number): number {
  let places = 0;
  for (let at = text.indexOf(part); at >= 0 && places <= max; at = text.indexOf(part, at + part.length)) places += 1;
  return places;
}

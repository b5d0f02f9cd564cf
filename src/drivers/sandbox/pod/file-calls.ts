import { createHash } from 'node:crypto';
import { EMPTY_MANIFEST, MANIFEST_ENTRIES_MAX } from '../../../domain/sandbox/manifest.ts';
import type { WorkspaceFile, WorkspaceManifest } from '../../../domain/sandbox/manifest.ts';
import { resolvePath } from '../../../domain/sandbox/paths.ts';
import { runFileTool } from '../file-tools.ts';
import type { FileToolCall, FileToolRun } from '../file-tools.ts';
import type { PodCall, SandboxAnswer } from '../port.ts';
import { VolumeFullError } from './volume-files.ts';
import type { VolumeFiles } from './volume-files.ts';

/** Where the tools look and write. */
export interface ToolVolume {
  readonly files: Pick<VolumeFiles, 'entry' | 'list' | 'read' | 'write'>;
}

/**
 * The tools that need no process, on a volume: they see a manifest of the part that they look at, in which the names of
 * contents stand for paths, and what they write is put into the volume.
 */
export async function runPodFileTool(
  { volume, usedBytes }: { readonly volume: ToolVolume; readonly usedBytes: () => Promise<number> },
  { tool, call }: { readonly tool: FileToolCall; readonly call: PodCall },
  run: FileToolRun,
): Promise<SandboxAnswer> {
  const { storageBytes } = call.limits;
  const seen = await seenBy(volume, tool);
  if (seen === null) return failed(run, `there are more than ${MANIFEST_ENTRIES_MAX} files; name a path`);
  const large = seen.files.find(({ size }) => size > call.fileBytes);
  if (large !== undefined && (tool.name === 'read' || tool.name === 'edit'))
    return failed(run, `${large.path} has ${large.size} bytes; use a command to read or change a part of it`);
  const isSearched = ({ size }: WorkspaceFile): boolean => tool.name !== 'grep' || size <= call.fileBytes;
  const files: WorkspaceManifest = { ...seen, files: seen.files.filter(isSearched) };
  const kept: Uint8Array[] = [];
  const contents = {
    read: async (name: string) => {
      const path = files.files.find(({ sha256 }) => sha256 === name)?.path;
      // It was there a moment ago; a reader then finds it empty.
      return (path === undefined ? null : await volume.files.read(path, call.fileBytes)) ?? new Uint8Array();
    },
    write: async (_: string, written: Uint8Array) => {
      kept.push(Uint8Array.from(written));
      await Promise.resolve();
    },
  };
  const limits = { files: MANIFEST_ENTRIES_MAX, totalBytes: Number.MAX_SAFE_INTEGER, fileBytes: call.fileBytes };
  const answer = await runFileTool(
    { tenant: call.volume.tenant, tool, files, contents, limits, python: false },
    tool,
    run,
  );
  if (answer.outcome !== 'completed') return answer;
  const written = kept.at(-1);
  const target = changedFile(files, answer.files);
  if (target === null || written === undefined) return { ...answer, files: null };
  const size = written.byteLength;
  if ((await usedBytes()) + size > storageBytes)
    return failed(run, `the volume holds ${storageBytes} bytes at most; remove something first`);
  const put = await volume.files.write(target.path, written, target.mode).catch((error: unknown) => {
    if (error instanceof VolumeFullError) return 'full' as const;
    throw error;
  });
  if (put === 'full') return failed(run, 'the disk of the volume is full; remove something first');
  if (!put) {
    const message = `a file, a link or a directory's rights are in the way of ${target.path}; choose another name`;
    return { ...failed(run, message), code: 'invalid_path' };
  }
  return { ...answer, files: null };
}

function changedFile(before: WorkspaceManifest, after: WorkspaceManifest | null): WorkspaceFile | null {
  const known = new Set(before.files.map(({ sha256 }) => sha256));
  return after?.files.find(({ sha256 }) => !known.has(sha256)) ?? null;
}

/** The part of the volume that a tool looks at; null: it has too many files. */
async function seenBy({ files: volume }: ToolVolume, { name, input }: FileToolCall): Promise<WorkspaceManifest | null> {
  const resolved = input.path === undefined ? { ok: true as const, path: '' } : resolvePath(input.path);
  // The tool refuses it by itself.
  if (!resolved.ok) return EMPTY_MANIFEST;
  const { path } = resolved;
  if (name === 'grep' || name === 'glob') {
    const listed = await volume.list(path, MANIFEST_ENTRIES_MAX);
    if (listed === null) return null;
    return {
      v: 1,
      files: listed.files.map((file) => ({ ...file, sha256: nameOf(file.path) })),
      directories: listed.directories,
    };
  }
  const entry = path === '' ? null : await volume.entry(path);
  if (entry === null) return EMPTY_MANIFEST;
  if (entry.kind === 'directory') return { v: 1, files: [], directories: [path] };
  const { size, mode } = entry;
  return { v: 1, files: [{ path, size, mode, sha256: nameOf(path) }], directories: [] };
}

/** Stands for the contents of a file while a tool looks at it. */
function nameOf(path: string): string {
  return createHash('sha256').update(`path ${path}`).digest('hex');
}

function failed({ queuedMs }: FileToolRun, message: string) {
  const usage = { durationMs: 0, queuedMs, cpuMs: 0, bytesWritten: 0 };
  return { outcome: 'failed' as const, code: 'limit_exceeded' as 'limit_exceeded' | 'invalid_path', message, usage };
}

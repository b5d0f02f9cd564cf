import { z } from 'zod';
import { foldedPath, parentsOf, pathFault } from './paths.ts';

/** A path as it appears in manifests. */
export const manifestPath = z.string().refine((path) => pathFault(path) === null, {
  error: ({ input }) => `a path of the workspace ${pathFault(String(input)) ?? 'is malformed'}`,
});

/** A file of a workspace: its name, and which bytes it has. The bytes are stored under their hash. */
export const workspaceFile = z.strictObject({
  path: manifestPath,
  /** Of its bytes, hexadecimal. */
  sha256: z.string().regex(/^[0-9a-f]{64}$/),
  size: z.int().min(0),
  /** Permission bits, 0 to 0o777. */
  mode: z.int().min(0).max(0o777),
});
export type WorkspaceFile = z.infer<typeof workspaceFile>;

/** Maximum entries of a manifest, whatever is configured: it is read and compared whole. */
export const MANIFEST_ENTRIES_MAX = 100_000;

/**
 * All that a workspace holds at one moment: its files and its empty directories, both sorted by code units. Other
 * directories follow from the files. There are no links: nothing in a workspace leads out of it.
 */
export const workspaceManifest = z.strictObject({
  v: z.literal(1),
  files: z.array(workspaceFile).max(MANIFEST_ENTRIES_MAX),
  directories: z.array(manifestPath).max(MANIFEST_ENTRIES_MAX),
});
export interface WorkspaceManifest {
  readonly v: 1;
  readonly files: readonly WorkspaceFile[];
  readonly directories: readonly string[];
}

export const EMPTY_MANIFEST: WorkspaceManifest = { v: 1, files: [], directories: [] };

/** How many names of files and directories are allowed per allowed file. */
const DIRECTORIES_PER_FILE = 2;

/** Mode of a file unless stated otherwise. */
export const FILE_MODE = 0o644;

/** What a workspace may hold. */
export interface WorkspaceLimits {
  readonly files: number;
  readonly totalBytes: number;
  readonly fileBytes: number;
}

export const WORKSPACE_LIMITS: WorkspaceLimits = { files: 10_000, totalBytes: 104_857_600, fileBytes: 10_485_760 };

export interface ManifestFault {
  readonly code: 'invalid_path' | 'limit_exceeded';
  /** Says which path or limit, and what to do. */
  readonly message: string;
}

/**
 * A manifest of files and directories in any order; directories that are not empty are left out. A fault when a path is
 * malformed or occurs twice, when two differ only by case or Unicode form, when one is both file and directory, or when
 * a limit is exceeded.
 */
export function manifestOf(
  files: readonly WorkspaceFile[],
  directories: readonly string[],
  limits: WorkspaceLimits,
): WorkspaceManifest | ManifestFault {
  const sorted = files.toSorted((a, b) => byCodeUnit(a.path, b.path));
  const manifest: WorkspaceManifest = { v: 1, files: sorted, directories: emptyOnes(sorted, directories) };
  return limitFault(manifest, limits) ?? pathsFault(manifest, limits) ?? manifest;
}

export function isFault(value: WorkspaceManifest | ManifestFault): value is ManifestFault {
  return 'code' in value;
}

/** Which limit a manifest exceeds; null: none. */
export function limitFault(manifest: WorkspaceManifest, limits: WorkspaceLimits): ManifestFault | null {
  const entries = manifest.files.length + manifest.directories.length;
  if (entries > limits.files) {
    return exceeded(`a workspace holds ${limits.files} files and empty directories at most, not ${entries}`);
  }
  const large = manifest.files.find(({ size }) => size > limits.fileBytes);
  if (large !== undefined) {
    return exceeded(`${large.path} has ${large.size} bytes; a file of a workspace has ${limits.fileBytes} at most`);
  }
  const total = bytesOf(manifest);
  if (total <= limits.totalBytes) return null;
  return exceeded(`the files have ${total} bytes together; a workspace holds ${limits.totalBytes} at most`);
}

/** Bytes of all files together. */
export function bytesOf(manifest: WorkspaceManifest): number {
  return manifest.files.reduce((sum, { size }) => sum + size, 0);
}

/** The file at a path; undefined: none. */
export function fileAt(manifest: WorkspaceManifest, path: string): WorkspaceFile | undefined {
  const at = firstNotBefore(manifest.files, path);
  const file = manifest.files[at];
  return file?.path === path ? file : undefined;
}

/**
 * Whether a path is a directory, listed as one or because something is in it. The empty path is the workspace itself.
 */
export function isDirectory(manifest: WorkspaceManifest, path: string): boolean {
  if (path === '') return true;
  if (manifest.directories.some((other) => other === path || other.startsWith(`${path}/`))) return true;
  return holds(manifest.files, path);
}

/** The manifest with a file added or replaced, or why it cannot be. */
export function withFile(
  manifest: WorkspaceManifest,
  file: WorkspaceFile,
  limits: WorkspaceLimits,
): WorkspaceManifest | ManifestFault {
  const others = manifest.files.filter(({ path }) => path !== file.path);
  return manifestOf([...others, file], manifest.directories, limits);
}

/** The manifest without a file, or without a directory and its contents. A directory that this empties stays. */
export function withoutPath(manifest: WorkspaceManifest, path: string): WorkspaceManifest {
  const stays = (other: string) => other !== path && !other.startsWith(`${path}/`);
  const files = manifest.files.filter((file) => stays(file.path));
  const above = parentsOf(path).at(-1);
  const directories = [...manifest.directories.filter(stays), ...(above === undefined ? [] : [above])];
  return { v: 1, files, directories: emptyOnes(files, directories) };
}

/** The files below a directory, with paths relative to it, sorted as before. */
export function filesBelow(manifest: WorkspaceManifest, directory: string): readonly WorkspaceFile[] {
  if (directory === '') return manifest.files;
  const prefix = `${directory}/`;
  return manifest.files
    .filter(({ path }) => path.startsWith(prefix))
    .map((file) => ({ ...file, path: file.path.slice(prefix.length) }));
}

/** Whether two manifests say the same. */
export function sameManifest(a: WorkspaceManifest, b: WorkspaceManifest): boolean {
  if (a.files.length !== b.files.length || a.directories.length !== b.directories.length) return false;
  const sameFile = (file: WorkspaceFile, i: number) => {
    const other = b.files[i];
    return other?.path === file.path && other.sha256 === file.sha256 && other.mode === file.mode;
  };
  return a.files.every(sameFile) && a.directories.every((path, i) => path === b.directories[i]);
}

/** By code unit: the same on every machine and in every language. */
function byCodeUnit(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

function firstNotBefore(files: readonly { readonly path: string }[], path: string): number {
  let [low, high] = [0, files.length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((files[middle]?.path ?? '') < path) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** @param files sorted by path */
function emptyOnes(files: readonly WorkspaceFile[], directories: readonly string[]): string[] {
  const sorted = [...new Set(directories)].toSorted(byCodeUnit);
  const below = sorted.map((path) => ({ path }));
  return sorted.filter((path) => !holds(files, path) && !holds(below, path));
}

/** Whether something of a sorted list is below a directory. */
function holds(sorted: readonly { readonly path: string }[], directory: string): boolean {
  const prefix = `${directory}/`;
  return sorted[firstNotBefore(sorted, prefix)]?.path.startsWith(prefix) ?? false;
}

/** A directory or a file while the paths of a manifest are compared. */
interface Node {
  readonly name: string;
  /** By folded name; null: a file, or an empty directory. */
  readonly below: Map<string, Node> | null;
}

/** Takes time in proportion to the text of the paths, and memory in proportion to the limit: both come from outside. */
function pathsFault(manifest: WorkspaceManifest, limits: WorkspaceLimits): ManifestFault | null {
  const root: Node = { name: '', below: new Map() };
  let left = DIRECTORIES_PER_FILE * limits.files;
  for (const path of [...manifest.files.map((file) => file.path), ...manifest.directories]) {
    const fault = pathFault(path);
    if (fault !== null) return invalid(`${shown(path)} ${fault}; choose another name`);
    const names = path.split('/');
    let at = root;
    for (const [i, name] of names.entries()) {
      if (at.below === null) return invalid(`${shown(path)} is in a file; choose another name`);
      const isLast = i === names.length - 1;
      const found = at.below.get(foldedPath(name));
      if (found !== undefined && found.name !== name) {
        return invalid(`${shown(path)} differs from ${shown(found.name)} by case or Unicode form only; rename one`);
      }
      if (found !== undefined && isLast) return invalid(`${shown(path)} is there twice; choose another name`);
      if (found === undefined && --left < 0) return exceeded('a workspace has too many directories; remove some');
      const next = found ?? { name, below: isLast ? null : new Map<string, Node>() };
      at.below.set(foldedPath(name), next);
      at = next;
    }
  }
  return null;
}

/** A path as a message may hold it. */
function shown(path: string): string {
  return JSON.stringify(path.toWellFormed().slice(0, 200));
}

function invalid(message: string): ManifestFault {
  return { code: 'invalid_path', message };
}

function exceeded(message: string): ManifestFault {
  return { code: 'limit_exceeded', message };
}

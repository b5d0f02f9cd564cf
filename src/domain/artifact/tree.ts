import { z } from 'zod';
import { treePath } from './names.ts';

/** A file of a tree as the wire shows it. */
export interface FileEntry {
  readonly path: string;
  readonly size: number;
  readonly sha256: string;
  readonly contentType: string;
}

/**
 * The same with the object that holds its bytes: its name among those of the artifact, or `<owner>/<name>` for one that
 * the artifact shares with the workspaces of its tenant.
 */
export interface StoredFile extends FileEntry {
  readonly object: string;
}

/** Whether a file's bytes are not the artifact's own. */
export function isShared({ object }: Pick<StoredFile, 'object'>): boolean {
  return object.includes('/');
}

/** Maximum files of one folder, and bytes of its tree's text: it is read whole. */
export const TREE_FILES_MAX = 10_000;
export const TREE_BYTES_MAX = 8_388_608;

/** A folder's tree as its object holds it: sorted by path. */
export const storedTree = z.strictObject({
  v: z.literal(1),
  files: z
    .array(
      z.strictObject({
        path: treePath,
        size: z.int().min(0),
        sha256: z.string(),
        contentType: z.string(),
        object: z.string(),
      }),
    )
    .max(TREE_FILES_MAX),
});

/** By code unit: the same on every machine and in every language. */
export function byPath(a: { readonly path: string }, b: { readonly path: string }): number {
  return a.path < b.path ? -1 : a.path > b.path ? 1 : 0;
}

export interface TreeDiff {
  readonly added: readonly FileEntry[];
  readonly removed: readonly FileEntry[];
  readonly changed: readonly { readonly path: string; readonly from: FileEntry; readonly to: FileEntry }[];
}

/**
 * How the files differ from one tree to another, each list sorted by path. A file changes with its bytes or its type.
 */
export function diffTrees(from: readonly FileEntry[], to: readonly FileEntry[]): TreeDiff {
  const before = new Map(from.map((file) => [file.path, file]));
  const after = new Set(to.map(({ path }) => path));
  const sorted = to.toSorted(byPath);
  return {
    added: sorted.filter(({ path }) => !before.has(path)),
    removed: from.filter(({ path }) => !after.has(path)).toSorted(byPath),
    changed: sorted.flatMap((file) => {
      const old = before.get(file.path);
      if (old === undefined || (old.sha256 === file.sha256 && old.contentType === file.contentType)) return [];
      return [{ path: file.path, from: old, to: file }];
    }),
  };
}

/** A path that is both a file and the folder of another; null: none. */
export function clashingPath(files: readonly { readonly path: string }[]): string | null {
  const paths = new Set(files.map(({ path }) => path));
  if (paths.size !== files.length)
    return files.find(({ path }, i) => files.findIndex((f) => f.path === path) < i)?.path ?? null;
  for (const path of paths) {
    for (let at = path.lastIndexOf('/'); at > 0; at = path.lastIndexOf('/', at - 1)) {
      if (paths.has(path.slice(0, at))) return path.slice(0, at);
    }
  }
  return null;
}

/** Where the files of a sandbox are for the tools that work in it. Manifests, routes and trees name paths relative to it. */
export const WORKSPACE = '/workspace';

/**
 * Longest path of a file, and longest name of it or of a directory, bytes of UTF-8. Longer ones do not fit into
 * archives.
 */
export const PATH_BYTES_MAX = 1_024;
export const NAME_BYTES_MAX = 255;
/** Maximum nesting of directories. */
export const PATH_DEPTH_MAX = 64;

/** Control characters and line separators: they could end a header line or act on a terminal. */
const UNPRINTABLE = /[\p{Cc}\p{Zl}\p{Zp}]/u;

/** What is wrong with a path in its canonical form, relative to the workspace; null: nothing. */
export function pathFault(path: string): string | null {
  if (path === '') return 'is empty';
  if (!path.isWellFormed()) return 'has a lone surrogate';
  if (UNPRINTABLE.test(path)) return 'has a control character or a line separator';
  if (path.includes('\\')) return 'has a backslash';
  const names = path.split('/');
  if (names.some((name) => name === '')) return 'has an empty segment';
  if (names.some((name) => name === '.' || name === '..')) return 'has "." or ".." as a segment';
  if (names.length > PATH_DEPTH_MAX) return `is deeper than ${PATH_DEPTH_MAX} directories`;
  if (names.some((name) => utf8Bytes(name) > NAME_BYTES_MAX)) return `has a name of more than ${NAME_BYTES_MAX} bytes`;
  if (utf8Bytes(path) > PATH_BYTES_MAX) return `is longer than ${PATH_BYTES_MAX} bytes`;
  return null;
}

export type ResolvedPath =
  /** Relative to the workspace; empty: the workspace itself. */
  { readonly ok: true; readonly path: string } | { readonly ok: false; readonly reason: string };

/**
 * What a path that a model or a client writes means: relative to the workspace, or absolute below it. `.` and doubled
 * slashes are harmless and are dropped; `..` is refused wherever it leads, so that no two readers can disagree about
 * it.
 */
export function resolvePath(text: string): ResolvedPath {
  const isAbsolute = text.startsWith('/');
  if (isAbsolute && text !== WORKSPACE && !text.startsWith(`${WORKSPACE}/`)) {
    return { ok: false, reason: `is outside ${WORKSPACE}` };
  }
  const below = isAbsolute ? text.slice(WORKSPACE.length) : text;
  // Longer than any path can be before normalisation: not worth splitting.
  if (below.length > 4 * PATH_BYTES_MAX) return { ok: false, reason: `is longer than ${PATH_BYTES_MAX} bytes` };
  const path = below
    .split('/')
    .filter((name) => name !== '' && name !== '.')
    .join('/');
  const fault = path === '' ? null : pathFault(path);
  return fault === null ? { ok: true, path } : { ok: false, reason: fault };
}

/**
 * The same for all spellings of a path that differ only by case or Unicode form. Two of them would be one file on other
 * systems where a workspace is unpacked, so a manifest holds at most one.
 */
export function foldedPath(path: string): string {
  return path.normalize('NFD').toUpperCase().toLowerCase().normalize('NFC');
}

/** The directories above a path, outermost first; none above a path of one name. */
export function parentsOf(path: string): string[] {
  const parents: string[] = [];
  for (let at = path.indexOf('/'); at > 0; at = path.indexOf('/', at + 1)) parents.push(path.slice(0, at));
  return parents;
}

/** Bytes of a well-formed text as UTF-8. */
export function utf8Bytes(text: string): number {
  let bytes = text.length;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    if (unit >= 0x80) bytes += unit >= 0x800 && (unit < 0xd800 || unit > 0xdfff) ? 2 : 1;
  }
  return bytes;
}

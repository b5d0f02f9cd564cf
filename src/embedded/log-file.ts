import { open, rename, stat } from 'node:fs/promises';
import type { FileHandle } from 'node:fs/promises';
import { readIfPresent } from '../lib/files.ts';

const ROTATE_BYTES = 10 * 1024 * 1024;

/** Opens a child's log for appending, 0600; past 10 MB the old one is kept as `.1` and a new one begun. */
export async function openLog(path: string): Promise<FileHandle> {
  const size = await stat(path).then(
    (info) => info.size,
    () => 0,
  );
  if (size > ROTATE_BYTES) await rename(path, `${path}.1`);
  return open(path, 'a', 0o600);
}

/** The last lines of a log in one line, for an error message; what precedes `fromByte` is left out. */
export async function logTail(path: string, fromByte: number): Promise<string> {
  const text = Buffer.from((await readIfPresent(path)) ?? '')
    .subarray(fromByte)
    .toString();
  return text
    .trim()
    .split('\n')
    .slice(-4)
    .map((line) => line.trim())
    .join(' | ');
}

import { randomBytes } from 'node:crypto';
import { renameSync, rmSync, writeFileSync } from 'node:fs';
import { chmod, open, readFile, rename, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { StartError } from './start-error.ts';

/** True for a failed system call with one of these codes, such as `ENOENT`. */
export function hasCode(error: unknown, ...codes: readonly string[]): boolean {
  return error instanceof Error && 'code' in error && codes.includes(String(error.code));
}

/** The text of a file, or `undefined` when there is no such file. */
export async function readIfPresent(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return undefined;
    throw error;
  }
}

/** Writes a file so that a reader, and a crash at any instant, sees the old text or the new one, never a part. */
export async function writeAtomically(path: string, text: string, mode: number): Promise<void> {
  const temporary = temporaryOf(path);
  try {
    const file = await open(temporary, 'wx', mode);
    try {
      await file.writeFile(text);
      await file.sync();
    } finally {
      await file.close();
    }
    await chmod(temporary, mode);
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
  await syncDirectory(dirname(path));
}

/**
 * Writes a file that is true only while this process runs: a reader sees the old text or the new one, never a part; after a
 * power cut it may be empty. The thread waits, for 0.2 ms (measured): at the end of a start the event loop is so busy that
 * the nine trips of `writeAtomically` to the thread pool took 190 ms (docs/benchmark-results.md).
 */
export function replaceFile(path: string, text: string, mode: number): void {
  const temporary = temporaryOf(path);
  try {
    writeFileSync(temporary, text, { mode, flag: 'wx' });
    renameSync(temporary, path);
  } catch (error) {
    rmSync(temporary, { force: true });
    throw error;
  }
}

function temporaryOf(path: string): string {
  return `${path}.${process.pid}-${randomBytes(4).toString('hex')}.tmp`;
}

/**
 * A secret that is made once and kept: the file's text without outer blanks, or `make()` written to it with mode
 * 0600. An existing file is set to 0600, too. Fails on an empty file, which would otherwise be an empty key.
 */
export async function readOrCreateSecret(path: string, make: () => string): Promise<string> {
  const found = await readIfPresent(path);
  if (found === undefined) {
    const made = make();
    await writeAtomically(path, `${made}\n`, 0o600);
    return made;
  }
  const text = found.trim();
  if (text === '')
    throw new StartError(`${path} is empty; put the secret back, or remove the file to have a new one made`);
  await chmod(path, 0o600);
  return text;
}

/** Makes renames and links in a directory survive a power cut. */
export async function syncDirectory(path: string): Promise<void> {
  const directory = await open(path, 'r');
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}

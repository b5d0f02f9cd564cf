import { rm } from 'node:fs/promises';
import { existsSync } from 'node:fs';
import { hasCode } from '../../lib/files.ts';
import { EXIT, StartError } from '../../lib/start-error.ts';

/** Writes a file that must not exist; one that was begun and failed is removed. @throws StartError */
export async function refusingToOverwrite<T>(path: string, write: (path: string) => Promise<T>): Promise<T> {
  const exists = (): never => {
    throw new StartError(`${path} exists; name another file with --out, or remove it`);
  };
  if (existsSync(path)) return exists();
  try {
    return await write(path);
  } catch (error) {
    if (hasCode(error, 'EEXIST')) return exists();
    await rm(path, { force: true });
    if (hasCode(error, 'ENOENT', 'EACCES', 'EISDIR', 'ENOTDIR'))
      throw new StartError(`${path} cannot be written`, { cause: error });
    throw error;
  }
}

/** Runs until it ends, or Ctrl-C or SIGTERM end it: its signal is aborted then. Returns the exit code. */
export async function untilInterrupted(work: (signal: AbortSignal) => Promise<void>): Promise<number> {
  const controller = new AbortController();
  const stop = (): void => controller.abort(new Error('interrupted'));
  const signals = ['SIGINT', 'SIGTERM'] as const;
  for (const signal of signals) process.once(signal, stop);
  try {
    await work(controller.signal);
    return 0;
  } catch (error) {
    if (!controller.signal.aborted) throw error;
    return EXIT.interrupted;
  } finally {
    for (const signal of signals) process.off(signal, stop);
  }
}

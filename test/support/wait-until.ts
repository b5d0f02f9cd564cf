import { setTimeout as pause } from 'node:timers/promises';

const PAUSE_MS = { min: 5, max: 100 };
/** Of what has been waited so far: a look is late by this part at most, and those of a long wait do not use up the machine. */
const PAUSE_PART = 0.1;
/**
 * What takes a second on an idle machine takes ten on a small one that runs three test files at a time, and more where
 * each of the processes between may stand still for seconds.
 */
const TIMEOUT_MS = 60_000;

/**
 * Waits for a level, at most `timeoutMs`. Returns what `look` gave once it was neither `undefined` nor `false`; fails
 * with `what` otherwise.
 */
export async function until<T>(
  what: string,
  look: () => Promise<T | undefined | false> | T | undefined | false,
  timeoutMs = TIMEOUT_MS,
): Promise<T> {
  const began = performance.now();
  for (;;) {
    const value = await look();
    if (value !== false && value !== undefined) return value;
    const waitedMs = performance.now() - began;
    if (waitedMs >= timeoutMs) throw new Error(`after ${timeoutMs} ms still not: ${what}`);
    await pause(Math.min(PAUSE_MS.max, PAUSE_MS.min + waitedMs * PAUSE_PART));
  }
}

import { setTimeout as pause } from 'node:timers/promises';

/** How long, in milliseconds, and how often to check. `onWait` is called with the milliseconds waited after each failed check. */
export interface WaitBounds {
  readonly timeoutMs: number;
  readonly intervalMs?: number;
  readonly onWait?: (waitedMs: number) => void;
}

/**
 * Checks a condition until it gives something other than `undefined`, and returns that; `undefined` once the time is
 * up. Level-triggered on purpose: files and other processes give no event that cannot be missed.
 */
export async function waitUntil<T>(
  look: () => Promise<T | undefined> | T | undefined,
  bounds: WaitBounds,
): Promise<T | undefined> {
  const began = performance.now();
  for (;;) {
    const seen = await look();
    if (seen !== undefined) return seen;
    const waited = performance.now() - began;
    if (waited >= bounds.timeoutMs) return undefined;
    bounds.onWait?.(waited);
    await pause(bounds.intervalMs ?? 10);
  }
}

import { setTimeout as pause } from 'node:timers/promises';

/** How long, in milliseconds, and how often to check. `onWait` is called with the waited milliseconds after each check that failed. */
export interface WaitBounds {
  readonly timeoutMs: number;
  readonly intervalMs?: number;
  readonly onWait?: (waitedMs: number) => void;
}

/**
 * Looks at a condition until it gives something other than `undefined`, which is returned; `undefined` once the time is up.
 * Level-triggered on purpose: files and foreign processes give no event that cannot be missed.
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

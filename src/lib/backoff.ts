/** Delay before try number `attempt` (from 0) in milliseconds: exponential, capped, with full jitter in its upper half. */
export function backoffMs(attempt: number, options: { baseMs: number; capMs: number }): number {
  const full = Math.min(options.capMs, options.baseMs * 2 ** Math.min(attempt, 20));
  return full / 2 + Math.random() * (full / 2);
}

/** Resolves after `ms`, or at once when `signal` aborts. Never rejects: the caller checks its signal. */
export function delay(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) {
      resolve();
      return;
    }
    const done = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal?.addEventListener('abort', done, { once: true });
  });
}

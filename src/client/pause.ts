/** Waits, or throws the reason of the signal as soon as it is aborted. */
export async function pause(ms: number, signal?: AbortSignal): Promise<void> {
  signal?.throwIfAborted();
  await new Promise<void>((resolve, reject) => {
    const done = (): void => {
      signal?.removeEventListener('abort', stop);
      resolve();
    };
    const timer = setTimeout(done, ms);
    const stop = (): void => {
      clearTimeout(timer);
      reject(reasonOf(signal));
    };
    signal?.addEventListener('abort', stop, { once: true });
  });
}

/** What an aborted signal was aborted with, as an error. */
export function reasonOf(signal: AbortSignal | undefined): Error {
  const reason: unknown = signal?.reason;
  if (reason instanceof Error) return reason;
  return new DOMException(typeof reason === 'string' ? reason : 'aborted', 'AbortError');
}

const FIRST_MS = 100;
const LAST_MS = 5_000;

/** How long to wait before the next try: doubling, and spread so that many clients do not return together. */
export function backoffMs(failures: number): number {
  const full = Math.min(LAST_MS, FIRST_MS * 2 ** Math.min(failures, 10));
  return full / 2 + (Math.random() * full) / 2;
}

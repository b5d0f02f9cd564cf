import { waitUntil } from '#src/app/embedded/wait-until.ts';

/**
 * Waits for a level, at most `timeoutMs`. Returns what `look` gave once it was neither `undefined` nor `false`; fails
 * with `what` otherwise.
 */
export async function until<T>(
  what: string,
  look: () => Promise<T | undefined | false> | T | undefined | false,
  timeoutMs = 10_000,
): Promise<T> {
  const seen = await waitUntil(
    async () => {
      const value = await look();
      return value === false || value === undefined ? undefined : { value };
    },
    { timeoutMs, intervalMs: 5 },
  );
  if (seen === undefined) throw new Error(`after ${timeoutMs} ms still not: ${what}`);
  return seen.value;
}

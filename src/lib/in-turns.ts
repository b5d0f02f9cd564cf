import { setImmediate } from 'node:timers/promises';

/** Documents that are opened and read at once: less than a millisecond. */
export const PER_TURN = 25;

/**
 * The same items; after each few of them, what else has arrived has its turn. A page of hundreds of sealed documents is
 * milliseconds of work, and one tenant may ask for many at a time: without turns, whatever others ask for waits for all of it.
 */
export async function* inTurns<T>(items: readonly T[]): AsyncGenerator<T> {
  for (const [n, item] of items.entries()) {
    if (n > 0 && n % PER_TURN === 0) await setImmediate();
    yield item;
  }
}

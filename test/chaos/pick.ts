import type { Random } from '../support/random.ts';

/** One of a list, each as likely as the others. */
export function pick<T>(random: Random, list: readonly T[]): T {
  const one = list[random.int(0, list.length - 1)];
  if (one === undefined) throw new Error('there is nothing to choose from');
  return one;
}

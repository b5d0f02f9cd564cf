/** Random numbers that a seed repeats; the seed is printed, so that a failing run can be done again with `SEED=…`. */
export interface Random {
  readonly seed: number;
  /** A whole number from `min` to `max`, both included. */
  readonly int: (min: number, max: number) => number;
}

export function seededRandom(what: string): Random {
  const seed = Number(process.env['SEED'] ?? Math.floor(Math.random() * 2 ** 31));
  process.stdout.write(`${what}: SEED=${seed}\n`);
  let state = seed;
  // mulberry32
  const next = (): number => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
  return { seed, int: (min, max) => min + Math.floor(next() * (max - min + 1)) };
}

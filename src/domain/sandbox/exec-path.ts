import { z } from 'zod';

/**
 * Where a session's history has the calls of its sandbox. Each call names two earlier ones by position: the one before
 * it, and the one whose number is its own without the lowest bit that is set. So the last call before any record is found by
 * reading a few commits, however many calls there were.
 */
export const earlierCalls = z.strictObject({
  /** Number of the call, from 1. */
  n: z.int().min(1),
  /** Position of the call before it; null: it is the first. */
  last: z.int().nullable(),
  /** Position of the one further back; null: there is none. */
  skip: z.int().nullable(),
});
export type EarlierCalls = z.infer<typeof earlierCalls>;

/** A call and those that are reached from it by `skip`, newest first: at most one for each bit of its number. */
export type ExecPath = readonly { readonly n: number; readonly position: number }[];

/** What the next call names. */
export function earlierThanNext(path: ExecPath): EarlierCalls {
  const n = (path[0]?.n ?? 0) + 1;
  const skip = path.find((call) => call.n === withoutLowestBit(n));
  return { n, last: path[0]?.position ?? null, skip: skip?.position ?? null };
}

/** The path from a call that was recorded after those of a path. */
export function withCall(path: ExecPath, call: ExecPath[number]): ExecPath {
  return [call, ...path.filter(({ n }) => n <= withoutLowestBit(call.n))];
}

function withoutLowestBit(n: number): number {
  let bit = 1;
  while (n % (bit * 2) === 0) bit *= 2;
  return n - bit;
}

/**
 * Where to search for the last call at or before a position. `newer`: a call after it, from which the search continues with
 * `nextBack`; null: `found` is the call. Both null: there is none.
 */
export function searchStart(
  path: ExecPath,
  position: number,
): { readonly newer: number | null; readonly found: number | null } {
  const newer = path.findLast((call) => call.position > position);
  const found = path.find((call) => call.position <= position);
  return { newer: newer?.position ?? null, found: newer === undefined ? (found?.position ?? null) : null };
}

/** The next position to read on the way back to one; null: no call is that old. */
export function nextBack({ last, skip }: EarlierCalls, position: number): number | null {
  return skip !== null && skip > position ? skip : last;
}

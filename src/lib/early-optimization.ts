import { setFlagsFromString } from 'node:v8';

/**
 * How long V8 watches a function before it optimizes it. Its own figures are those of pages, whose time goes into few
 * functions. A turn of a Host goes through a thousand, a few times each: after 4,600 turns V8 had optimized 353 of them, and
 * after 20,000 a turn still took a tenth more of the processor than it has to (docs/benchmark-results.md).
 */
export const EARLY: readonly string[] = [
  // V8 has 400 and 3,000 calls, and 500 since a call has shown a new type.
  '--invocation-count-for-maglev=100',
  '--invocation-count-for-turbofan=1000',
  '--minimum-invocations-after-ic-update=100',
];

/** Has V8 optimize sooner. Call it before most code is loaded: code that is kept on disk is good only for the same flags. */
export function optimizeEarly(): void {
  for (const flag of EARLY) setFlagsFromString(flag);
}

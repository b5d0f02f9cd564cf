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

/**
 * How long a Host has been there before V8 optimizes sooner, ms. A start, and the take-overs after a crash, are over before
 * optimized code is of use, and to make it took a seventh of a start's processor time. With 10 s a turn cost a tenth more in
 * the first half minute.
 */
const SETTLED_MS = 2_000;

/** Has V8 optimize sooner. Call it when the program is loaded: code that is kept on disk is good only for the same flags. */
export function optimizeEarly(): void {
  for (const flag of EARLY) setFlagsFromString(flag);
}

/** The same for a Host that has just started: in a while. Returns what takes it back. */
export function optimizeOnceSettled(): () => void {
  const timer = setTimeout(optimizeEarly, SETTLED_MS).unref();
  return () => clearTimeout(timer);
}

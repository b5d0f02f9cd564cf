import { setFlagsFromString } from 'node:v8';

/**
 * How long V8 watches a function before it optimizes it, in the stages in which it is told. Its own figures are those of
 * pages, whose time goes into few functions. A turn of a Host goes through a thousand, a few times each: after 4,600 turns
 * V8 had optimized 353 of them, and after 20,000 a turn still took a tenth more of the processor than it has to
 * (docs/benchmark-results.md).
 */
export const STAGES: readonly { readonly afterMs: number; readonly flags: readonly string[] }[] = [
  // A start, and the take-overs after a crash, are over before optimized code is of use, and to make it took a seventh of a
  // start's processor time. With 10 s a turn cost a tenth more in the first half minute.
  // V8 has 400 calls, and 500 since a call has shown a new type.
  { afterMs: 2_000, flags: ['--invocation-count-for-maglev=100', '--minimum-invocations-after-ic-update=100'] },
  // V8 has 3,000 calls. The compiler that makes the best code takes longest, and all of a Host at once takes its processors
  // from the turns: a Host made a fifth more of them in its first eight seconds under load when it was told later.
  { afterMs: 15_000, flags: ['--invocation-count-for-turbofan=1000'] },
];

/** Has V8 optimize sooner. Call it when the program is loaded: code that is kept on disk is good only for the same flags. */
export function optimizeEarly(): void {
  for (const { flags } of STAGES) tell(flags);
}

/** The same for a Host that has just started, stage by stage. Returns what takes back the stages to come. */
export function optimizeOnceSettled(): () => void {
  const timers = STAGES.map(({ afterMs, flags }) => setTimeout(tell, afterMs, flags).unref());
  return () => timers.forEach((timer) => clearTimeout(timer));
}

function tell(flags: readonly string[]): void {
  for (const flag of flags) setFlagsFromString(flag);
}

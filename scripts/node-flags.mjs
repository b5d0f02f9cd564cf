import { availableParallelism } from 'node:os';

/** As many processors, or fewer, are busy with the Host itself. */
const FEW_PROCESSORS = 2;

/**
 * Flags of Node for a process that serves as a Host on this machine. V8 compiles and collects garbage on four threads,
 * however many processors there are; on two they take their time from the thread that does the work. One such thread: a
 * sixth more turns a second while V8 still optimizes, and no fewer later (docs/benchmark-results.md). Where NODE_OPTIONS
 * says how many it stays so.
 */
export function hostFlags(processors = availableParallelism(), options = process.env.NODE_OPTIONS ?? '') {
  return processors <= FEW_PROCESSORS && !options.includes('--v8-pool-size') ? ['--v8-pool-size=1'] : [];
}

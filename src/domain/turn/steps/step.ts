/**
 * How a step leaves its thread.
 *
 * - `next`: there is more to do at once.
 * - `waits`: for an effect, an answer, a time, or a worker.
 * - `ended`: the thread is over, and perhaps its turn with it. Nothing more is read of it.
 */
export type Step = 'next' | 'waits' | 'ended';

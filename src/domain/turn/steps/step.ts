/**
 * How a step leaves its thread.
 *
 * - `next`: there is more to do at once.
 * - `waits`: for an effect, an answer, a time, or a worker.
 * - `ended`: the thread has ended, perhaps with its turn. Nothing more is read from it.
 */
export type Step = 'next' | 'waits' | 'ended';

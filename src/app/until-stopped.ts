import { delay } from '../lib/backoff.ts';
import type { Logger } from '../lib/logger.ts';
import { Stack } from '../lib/stack.ts';
import { StartError } from '../lib/start-error.ts';

/** How long a step of the start that is under way is waited for when a stop is asked for, ms. */
const START_STEP_MS = 10_000;
const FAILED_STOP_MS = 3_000;
/** After this and the drain, a graceful stop is abandoned, ms: the engine hands over within 10 s, then the servers end. */
export const STOP_MS = 25_000;

export interface Stoppable {
  readonly stop: AbortController;
  readonly logger: Logger;
  /** After this a graceful stop is abandoned, ms. */
  readonly stopMs: number;
  readonly onStopping: (reason: string) => void;
  /** Starts everything, unless it is stopped between two steps: then it throws the reason. */
  readonly start: (stack: Stack) => Promise<void>;
}

/**
 * Runs something until `stop` aborts, which may be during the start, and unwinds it. Throws what failed: the start, the
 * stop, or the StartError that it was stopped with.
 */
export async function untilStopped({ stop, logger, stopMs, onStopping, ...options }: Stoppable): Promise<void> {
  const stack = new Stack();
  const onError = (name: string, error: unknown): void =>
    logger.error({ err: error, part: name }, 'a part did not stop cleanly');
  try {
    const start = options.start(stack);
    await Promise.race([aborted(stop.signal), start]);
    await aborted(stop.signal);
    const { reason } = stop.signal;
    onStopping(reason instanceof Error ? reason.message : String(reason));
    // A start under way ends after its present step, so that what the step began can be unwound.
    await Promise.race([Promise.allSettled([start]), delay(START_STEP_MS)]);
    const ended = stack.unwind(onError).then(() => true);
    const hung = delay(stopMs).then(() => false);
    if (!(await Promise.race([ended, hung])))
      throw new StartError('the stop took too long and was given up; what was accepted is kept');
    if (reason instanceof StartError) throw reason;
  } catch (error) {
    // What failed may be what the parts need to stop: they get a moment, not the time of a graceful stop.
    await Promise.race([stack.unwind(onError), delay(FAILED_STOP_MS)]);
    throw error;
  }
}

/** Resolves when the signal aborts. */
async function aborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return;
  await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }));
}

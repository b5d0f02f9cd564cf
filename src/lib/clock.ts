/** Milliseconds since the epoch. Passed as an argument wherever time matters, so that tests decide what time it is. */
export interface Clock {
  (): number;
  /** Calls back each time the clock has been set forward, until the returned function is called; absent: it never is. */
  readonly onJump?: (listener: () => void) => () => void;
}

/** The wall clock of this machine. */
export const systemClock: Clock = () => Date.now();

/**
 * Since this process began, whatever the machine's clock is set to: for time that passes here and is compared only with
 * itself, such as how long something has been tried.
 */
export const monotonicClock: Clock = () => performance.now();

/** RFC 3339 UTC with milliseconds, the only time format on the wire and in events. */
export function timestamp(ms: number): string {
  return new Date(ms).toISOString();
}

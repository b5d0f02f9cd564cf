/** Milliseconds since the epoch. Passed as an argument wherever time matters, so that tests decide what time it is. */
export type Clock = () => number;

/** The wall clock of this machine. */
export const systemClock: Clock = () => Date.now();

/** RFC 3339 UTC with milliseconds, the only time format on the wire and in events. */
export function timestamp(ms: number): string {
  return new Date(ms).toISOString();
}

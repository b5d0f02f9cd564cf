/*
 * Conversions between the two representations of a time. They are pure, the clock is not: this is the only place of the
 * domain that may name `Date`.
 */
/* oxlint-disable no-restricted-globals */

/** Milliseconds since the epoch of an RFC 3339 time. */
export function toMs(timestamp: string): number {
  return Date.parse(timestamp);
}

/** RFC 3339 UTC with milliseconds. */
export function toTimestamp(ms: number): string {
  return new Date(ms).toISOString();
}

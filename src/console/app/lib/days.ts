const DAY_MS = 86_400_000;

/** The days in UTC from one time to before another, as `2026-01-31`. */
export function daysBetween(from: string, to: string): readonly string[] {
  const first = Math.floor(Date.parse(from) / DAY_MS);
  const end = Math.ceil(Date.parse(to) / DAY_MS);
  return Array.from({ length: Math.max(0, end - first) }, (_, at) =>
    new Date((first + at) * DAY_MS).toISOString().slice(0, 10),
  );
}

/** Where the last so many days begin, today with them. */
export function daysAgo(days: number, nowMs: number): string {
  return new Date((Math.floor(nowMs / DAY_MS) + 1 - days) * DAY_MS).toISOString();
}

/** What the kept sums know of a time: whole days, hours and minutes, and of the rest each call. */
export interface Buckets {
  /** Named as the sums name them. */
  readonly kept: readonly string[];
  /** Less than the shortest span each; of these the calls themselves are read. */
  readonly edges: readonly { readonly from: string; readonly to: string }[];
}

const MINUTE_MS = 60_000;
export const HOUR_MS = 60 * MINUTE_MS;
export const DAY_MS = 24 * HOUR_MS;
/** Spans, the longest first, with as much of a time as names one of them. */
const SPANS = [
  { ms: DAY_MS, chars: 10 },
  { ms: HOUR_MS, chars: 13 },
  { ms: MINUTE_MS, chars: 16 },
] as const;

/**
 * The fewest sums that make up a time.
 * @param from as the log writes times; `to` is exclusive
 * @param shortestMs the shortest span for which a sum is kept: a minute, or an hour for sums of sessions
 */
export function bucketsOf(from: string, to: string, shortestMs: number = MINUTE_MS): Buckets {
  const [fromMs, toMs] = [Date.parse(from), Date.parse(to)];
  const [first, last] = [Math.ceil(fromMs / shortestMs) * shortestMs, Math.floor(toMs / shortestMs) * shortestMs];
  if (first >= last) return { kept: [], edges: fromMs < toMs ? [{ from, to }] : [] };
  const kept: string[] = [];
  for (let ms = first; ms < last;) {
    const span = SPANS.find((one) => ms % one.ms === 0 && ms + one.ms <= last) ?? SPANS[2];
    kept.push(timeAt(ms).slice(0, span.chars));
    ms += span.ms;
  }
  const edges = [
    ...(fromMs < first ? [{ from, to: timeAt(first) }] : []),
    ...(last < toMs ? [{ from: timeAt(last), to }] : []),
  ];
  return { kept, edges };
}

/** The days from the one that begins at `since` to the one after `at`: what other nodes' clocks have called tomorrow. */
export function daysSince(since: string, at: string): readonly string[] {
  const end = (Math.floor(Date.parse(at) / DAY_MS) + 2) * DAY_MS;
  return bucketsOf(since, timeAt(end)).kept;
}

function timeAt(ms: number): string {
  return new Date(ms).toISOString();
}

interface Stretch {
  readonly fromMs: number;
  readonly toMs: number;
}

/** Where a time is drawn, from 0 to 1, and which time is drawn at a place. */
export interface TimeScale {
  readonly placeOf: (ms: number) => number;
  readonly timeAt: (place: number) => number;
}

/** The share of the busy time that a stretch without work is drawn as at most, where such stretches are shortened. */
const IDLE_SHARE = 0.12;

/**
 * A scale over all of a time. `busy`: where something is done; what is between is waiting, and of no more than a share of
 * the width. Absent: everything is as long as it is.
 */
export function timeScale({ fromMs, toMs }: Stretch, busy?: readonly Stretch[]): TimeScale {
  const end = Math.max(toMs, fromMs + 1);
  const points = [{ ms: fromMs, x: 0 }];
  const works = busy === undefined ? [] : merged(busy, { fromMs, toMs: end });
  const busyMs = works.reduce((sum, work) => sum + work.toMs - work.fromMs, 0);
  const idleMs = busyMs === 0 ? Infinity : busyMs * IDLE_SHARE;
  const add = (ms: number, most: number): void => {
    const last = points.at(-1) ?? { ms, x: 0 };
    if (ms > last.ms) points.push({ ms, x: last.x + Math.min(ms - last.ms, most) });
  };
  for (const work of works) {
    add(work.fromMs, idleMs);
    add(work.toMs, Infinity);
  }
  add(end, idleMs);
  const width = points.at(-1)?.x ?? 1;
  const onLine = points.map(({ ms, x }) => ({ ms, x: x / width }));
  return {
    placeOf: (ms) => between(onLine, { of: 'ms', at: ms, wanted: 'x' }),
    timeAt: (place) => between(onLine, { of: 'x', at: place, wanted: 'ms' }),
  };
}

interface Point {
  readonly ms: number;
  readonly x: number;
}

function between(
  points: readonly Point[],
  { of, at, wanted }: { readonly of: keyof Point; readonly at: number; readonly wanted: keyof Point },
): number {
  const next = Math.max(
    1,
    points.findIndex((point) => point[of] >= at),
  );
  const right = points[next] ?? points.at(-1);
  const left = points[next - 1] ?? right;
  if (left === undefined || right === undefined) return 0;
  const share = right[of] === left[of] ? 0 : (at - left[of]) / (right[of] - left[of]);
  return left[wanted] + Math.min(1, Math.max(0, share)) * (right[wanted] - left[wanted]);
}

/** The stretches within a time, in their order, those that touch as one. */
export function merged(stretches: readonly Stretch[], within: Stretch): readonly Stretch[] {
  const all: { fromMs: number; toMs: number }[] = [];
  for (const stretch of stretches.toSorted((one, other) => one.fromMs - other.fromMs)) {
    const fromMs = Math.max(stretch.fromMs, within.fromMs);
    const toMs = Math.min(stretch.toMs, within.toMs);
    const last = all.at(-1);
    if (last !== undefined && fromMs <= last.toMs) last.toMs = Math.max(last.toMs, toMs);
    else if (toMs > fromMs) all.push({ fromMs, toMs });
  }
  return all;
}

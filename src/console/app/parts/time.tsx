import { useSyncExternalStore } from 'react';
import type { ReactNode } from 'react';
import { ago, dateTime } from '../lib/format.ts';

const STEP_MS = 5_000;
const listeners = new Set<() => void>();
let timer: ReturnType<typeof setInterval> | undefined;
let nowMs = Date.now();

/** One timer for all times that are shown. */
function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  timer ??= setInterval(() => {
    nowMs = Date.now();
    for (const one of listeners) one();
  }, STEP_MS);
  return () => {
    listeners.delete(listener);
    if (listeners.size > 0) return;
    clearInterval(timer);
    timer = undefined;
  };
}

/** The time, to a few seconds. */
export function useNow(): number {
  return useSyncExternalStore(subscribe, () => nowMs);
}

/** How long ago something was; the whole time is its title. */
export function Ago({ at }: { readonly at: string }): ReactNode {
  const now = useNow();
  return (
    <time dateTime={at} title={dateTime(at)}>
      {ago(Date.parse(at), Math.max(now, Date.parse(at)))}
    </time>
  );
}

import { useEffect, useRef, useState } from 'react';

/** How often something that a session's events change is read again. */
export const CHANGE_EVERY_MS = 1_000;

/**
 * A value that changes at most once in `everyMs`, and is the newest one by then. For what is asked of the Host whenever
 * something has changed: in a busy session that is several times a second.
 */
export function useAtMostEvery<T>(value: T, everyMs: number): T {
  const [shown, setShown] = useState(value);
  const changedAt = useRef(-Infinity);
  useEffect(() => {
    if (Object.is(shown, value)) return undefined;
    const timer = setTimeout(
      () => {
        changedAt.current = performance.now();
        setShown(value);
      },
      changedAt.current + everyMs - performance.now(),
    );
    return () => clearTimeout(timer);
  }, [shown, value, everyMs]);
  return shown;
}

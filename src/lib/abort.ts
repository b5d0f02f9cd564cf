/**
 * A signal that aborts with the first of these, until it is released. `AbortSignal.any` releases by itself, by weak
 * references, at several times the cost; where the end is known, they are not needed.
 */
export function firstOf(signals: readonly AbortSignal[]): {
  readonly signal: AbortSignal;
  readonly release: () => void;
} {
  const first = new AbortController();
  const release = (): void => {
    for (const signal of signals) signal.removeEventListener('abort', abort);
  };
  function abort(this: AbortSignal): void {
    release();
    first.abort(this.reason);
  }
  for (const signal of signals) {
    if (signal.aborted) {
      release();
      first.abort(signal.reason);
      break;
    }
    signal.addEventListener('abort', abort);
  }
  return { signal: first.signal, release };
}

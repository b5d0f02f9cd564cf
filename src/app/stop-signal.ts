import cluster from 'node:cluster';
import closeWithGrace from 'close-with-grace';

/** What a process has been asked for by signals. */
export interface Signals {
  readonly stop: AbortController;
  /** What SIGHUP means; null: what the others mean. */
  onHangUp: (() => void) | null;
}

/** The two that ask for a stop, and come to every process of a terminal. */
const STOPPING = ['SIGTERM', 'SIGINT'] as const;

/**
 * Aborts, with the signal's name as the reason, at SIGTERM or SIGINT. The caller unwinds and exits; a second signal or
 * an uncaught error ends the process, and so does the caller when its stop hangs. Call it first: a signal without a
 * handler kills the process where it stands, and is ignored by the first process of a container.
 *
 * One of several processes stops at the first signal, too, but a second one is not for it: Ctrl-C comes to all of them,
 * and the supervisor tells each to stop besides.
 */
export function stopOnSignals(): Signals {
  const stop = new AbortController();
  const signals: Signals = { stop, onHangUp: null };
  const ours = ['SIGHUP', ...(cluster.isWorker ? STOPPING : [])] as const;
  closeWithGrace({ delay: false, logger: false, skip: [...ours] }, async ({ signal, err }) => {
    if (err !== undefined) {
      process.stderr.write(`agent-host: ${err.stack ?? err.message}\n`);
      throw err;
    }
    stop.abort(signal ?? 'nothing is left to do');
    // Until the caller exits this keeps the library from exiting first.
    await new Promise(() => undefined);
  });
  if (cluster.isWorker) for (const signal of STOPPING) process.on(signal, () => stop.abort(signal));
  process.on('SIGHUP', () => {
    if (signals.onHangUp !== null) signals.onHangUp();
    else if (!cluster.isWorker) stop.abort('SIGHUP');
  });
  return signals;
}

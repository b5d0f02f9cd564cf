import closeWithGrace from 'close-with-grace';

/** Past it a graceful stop is given up, ms: the engine drains for up to 10 s, the servers end after it. */
const STOP_MS = 25_000;

/**
 * Aborts, with the signal's name as the reason, at SIGTERM or SIGINT. Whoever calls it unwinds and exits; a second signal,
 * an error that nobody caught or a stop that hangs ends the process. To be called first of all: a signal without a handler
 * kills the process where it stands, and is ignored by the first process of a container.
 */
export function stopOnSignals(): AbortController {
  const stop = new AbortController();
  closeWithGrace({ delay: STOP_MS, logger: false }, async ({ signal, err }) => {
    if (err !== undefined) {
      process.stderr.write(`agent-host: ${err.stack ?? err.message}\n`);
      throw err;
    }
    stop.abort(signal ?? 'nothing is left to do');
    // Until the caller exits this keeps the library from exiting first.
    await new Promise(() => undefined);
  });
  return stop;
}

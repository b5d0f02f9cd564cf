import closeWithGrace from 'close-with-grace';

/**
 * Aborts, with the signal's name as the reason, at SIGTERM or SIGINT. The caller unwinds and exits; a second signal or
 * an uncaught error ends the process, and so does the caller when its stop hangs. Call it first: a signal without a
 * handler kills the process where it stands, and is ignored by the first process of a container.
 */
export function stopOnSignals(): AbortController {
  const stop = new AbortController();
  closeWithGrace({ delay: false, logger: false }, async ({ signal, err }) => {
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

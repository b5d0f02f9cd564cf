import type { Logger } from './logger.ts';
import { OutageLog } from './outage-log.ts';

export interface HeartbeatOptions {
  /** In the log, when it fails: "the worker lease". */
  readonly what: string;
  readonly beat: () => Promise<void>;
  /** From one beat to the next, ms. */
  readonly everyMs: number;
  readonly logger: Logger;
}

/**
 * Beats at a fixed pace until the function that it returns is called; the first time after `everyMs`. A beat that hangs,
 * as in an outage, delays none of those that follow: the first one that gets through renews what runs out.
 */
export function startHeartbeat({ what, beat, everyMs, logger }: HeartbeatOptions): () => void {
  const outage = new OutageLog(logger, what);
  const timer = setInterval(() => {
    beat().then(
      () => outage.worked(),
      (error: unknown) => outage.failed(error),
    );
  }, everyMs);
  return () => clearInterval(timer);
}

import { SandboxUnavailableError } from '../drivers/sandbox/port.ts';
import { backoffMs, delay } from '../lib/backoff.ts';
import type { Logger } from '../lib/logger.ts';
import { isUnavailableError } from '../lib/unavailable.ts';

interface Trying {
  readonly logger: Logger;
  readonly session: string;
  readonly signal: AbortSignal;
}

/** Between two attempts while the object store or the driver of sandboxes is unavailable, ms. */
const RETRY = { baseMs: 50, capMs: 1_000 };

/**
 * Tries again for as long as the object store or the driver is unavailable: what was tried has left nothing behind.
 * Null: it was ended early. @throws what else the attempt throws
 */
export async function whileAway<T>(
  { logger, session, signal }: Trying,
  attempt: () => Promise<T | null>,
): Promise<T | null> {
  for (let failures = 0; !signal.aborted; failures++) {
    try {
      return await attempt();
    } catch (error) {
      if (signal.aborted) return null;
      if (!(error instanceof SandboxUnavailableError) && !isUnavailableError(error, 'objects')) throw error;
      logger.warn({ err: error, session }, 'work on a sandbox waits for what it needs');
      await delay(backoffMs(failures, RETRY), signal);
    }
  }
  return null;
}

import { delay } from './backoff.ts';
import type { Logger } from './logger.ts';
import { OutageLog } from './outage-log.ts';

/** Called for each round that has ended, for the metrics. */
export type OnRound = (task: string, outcome: 'worked' | 'failed') => void;

/** What a round is given: a signal that aborts when the task is stopped. */
export interface Round {
  readonly signal: AbortSignal;
  /** For a long round: it works, whatever failed before. A round that ends without an error says so by itself. */
  readonly worked: () => void;
  /** For a round that continues after an error: it fails, and is retried. */
  readonly failed: (error: unknown) => void;
}

export interface BackgroundTaskOptions {
  /** A metrics label: one of few. */
  readonly name: string;
  /** In the log, when it fails: "the removal of orphaned artifacts". */
  readonly what: string;
  /** One round. What it throws is logged once until a round works again; the next round tries again. */
  readonly work: (round: Round) => Promise<void>;
  /** Between two rounds, ms; `failures`: how many failed in a row. */
  readonly pauseMs: number | ((failures: number) => number);
  /** Before the first round, ms; default none. */
  readonly firstPauseMs?: number;
  readonly logger: Logger;
  /** Instead of the log, where not every error is an outage. */
  readonly onError?: (error: unknown, outage: OutageLog) => void | Promise<void>;
  readonly onRound?: OnRound | undefined;
}

/** Work that is repeated, one round at a time, from `start` to `stop`. No error ends it. */
export class BackgroundTask {
  readonly #options: BackgroundTaskOptions;
  readonly #outage: OutageLog;
  readonly #stop = new AbortController();
  #loop: Promise<void> = Promise.resolve();

  constructor(options: BackgroundTaskOptions) {
    this.#options = options;
    this.#outage = new OutageLog(options.logger, options.what);
  }

  start(): void {
    this.#loop = this.#run();
  }

  /** Resolves when the round under way, which its signal aborts, has ended. */
  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#loop;
  }

  async #run(): Promise<void> {
    const { name, work, pauseMs, firstPauseMs = 0, onRound } = this.#options;
    const { signal } = this.#stop;
    const outage = this.#outage;
    const round: Round = { signal, worked: () => outage.worked(), failed: (error) => outage.failed(error) };
    if (firstPauseMs > 0) await delay(firstPauseMs, signal);
    for (let failures = 0; !signal.aborted;) {
      try {
        await work(round);
        failures = 0;
        outage.worked();
        onRound?.(name, 'worked');
      } catch (error) {
        // What a stop cut short has not failed.
        if (signal.aborted) return;
        failures++;
        onRound?.(name, 'failed');
        await this.#failed(error);
      }
      await delay(typeof pauseMs === 'number' ? pauseMs : pauseMs(failures), signal);
    }
  }

  async #failed(error: unknown): Promise<void> {
    const { onError } = this.#options;
    if (onError === undefined) this.#outage.failed(error);
    else await onError(error, this.#outage);
  }
}

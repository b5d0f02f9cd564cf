import { backoffMs, delay } from '../lib/backoff.ts';
import type { Logger } from '../lib/logger.ts';
import type { EmbeddedServer } from './nats-server.ts';

/** How a server is restarted: on the same port and data, so that clients with its address find it. */
export type StartAgain = (place: { readonly port: number; readonly signal: AbortSignal }) => Promise<EmbeddedServer>;

export interface SupervisedServerOptions {
  readonly name: string;
  readonly server: EmbeddedServer;
  readonly startAgain: StartAgain;
  readonly logger: Logger;
}

/** Pause before a restart; the first is after about 100 ms, the tenth and later ones after 15 to 30 s. */
const PAUSE_MS = { baseMs: 100, capMs: 30_000 };
/** A server that has run this long has recovered from what ended it. */
const HEALTHY_MS = 60_000;

/**
 * A server that is restarted whenever it ends by itself, for as long as it takes: a full disk, a missing program or a
 * port in use may be fixed tomorrow, and the Host has work to do meanwhile.
 */
export class SupervisedServer {
  readonly name: string;
  readonly url: string;
  readonly #port: number;
  readonly #options: SupervisedServerOptions;
  readonly #stop = new AbortController();
  readonly #kept: Promise<void>;
  /** Null: it has ended and is not back yet. */
  #running: EmbeddedServer | null;
  #starts = 0;
  #onChange: () => void = () => undefined;

  constructor(options: SupervisedServerOptions) {
    const { name, server } = options;
    this.name = name;
    this.url = server.url;
    this.#port = Number(new URL(server.url).port);
    this.#options = options;
    this.#running = server;
    this.#kept = this.#keep(server);
  }

  get isRunning(): boolean {
    return this.#running !== null;
  }

  /** From now on called when it has ended by itself, and when it runs again. */
  onChange(listener: () => void): void {
    this.#onChange = listener;
  }

  /** How often it has been restarted. */
  get restarts(): number {
    return this.#starts;
  }

  /** Ends it, or the restart under way. */
  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#running?.stop();
    await this.#kept;
  }

  async #keep(first: EmbeddedServer): Promise<void> {
    const { signal } = this.#stop;
    const { name, logger } = this.#options;
    let server: EmbeddedServer | null = first;
    for (let failures = 0; server !== null;) {
      const begun = performance.now();
      const { code, signal: killedBy } = await server.exited;
      this.#running = null;
      // What has ended by itself leaves a pid file and perhaps more.
      await server.stop();
      if (signal.aborted) return;
      this.#onChange();
      if (performance.now() - begun >= HEALTHY_MS) failures = 0;
      logger.error({ server: name, code, signal: killedBy }, 'an embedded server has ended and is started again');
      const back: { readonly server: EmbeddedServer | null; readonly tries: number } = await this.#startAgain(failures);
      failures += back.tries;
      server = back.server;
      this.#running = server;
      this.#onChange();
    }
  }

  async #startAgain(failures: number): Promise<{ server: EmbeddedServer | null; tries: number }> {
    const { signal } = this.#stop;
    const { name, logger, startAgain } = this.#options;
    for (let tries = 1; ; tries++) {
      await delay(backoffMs(failures + tries - 1, PAUSE_MS), signal);
      if (signal.aborted) return { server: null, tries };
      try {
        const server = await startAgain({ port: this.#port, signal });
        if (signal.aborted) {
          await server.stop();
          return { server: null, tries };
        }
        this.#starts++;
        logger.warn({ server: name, tries }, 'an embedded server runs again');
        return { server, tries };
      } catch (error) {
        if (signal.aborted) return { server: null, tries };
        logger.error({ err: error, server: name, tries }, 'an embedded server cannot be started again yet');
      }
    }
  }
}

/** How long a provider may take, ms. */
export interface StreamPatience {
  /** From the request to the first piece of the answer. */
  readonly firstTokenMs: number;
  /** Between two pieces. */
  readonly silenceMs: number;
}

/** The reason of the watchdog's abort. */
export const SILENT = new Error('the provider has been silent for too long');

/** Aborts a call whose provider has been silent for too long. One that thinks says nothing, and is waited for. */
export class Watchdog {
  readonly #patience: StreamPatience;
  readonly #abort = new AbortController();
  #timer: NodeJS.Timeout | undefined;
  #thinking = 0;
  #hasBegun = false;

  constructor(patience: StreamPatience) {
    this.#patience = patience;
    this.#wait(patience.firstTokenMs);
  }

  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  /** Whether a piece of the answer has arrived, which the provider may bill. */
  get hasBegun(): boolean {
    return this.#hasBegun;
  }

  /** Called with the type of each part of the stream. */
  heard(type: string): void {
    // Made by the library, before anything was sent; and the frames themselves, of which some are no part of an answer.
    // An error in place of an answer is not billed.
    if (type === 'stream-start' || type === 'raw' || type === 'error') return;
    if (type === 'reasoning-start') this.#thinking += 1;
    if (type === 'reasoning-end') this.#thinking = Math.max(0, this.#thinking - 1);
    if (this.#thinking > 0) this.stop();
    else if (this.#hasBegun && this.#timer !== undefined) this.#timer.refresh();
    else this.#wait(this.#patience.silenceMs);
    this.#hasBegun = true;
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  #wait(ms: number): void {
    this.stop();
    this.#timer = setTimeout(() => this.#abort.abort(SILENT), ms);
  }
}

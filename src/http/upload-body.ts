import type { IncomingMessage } from 'node:http';
import { INVALID_CREDENTIAL } from '../auth/authenticate.ts';
import { UploadBrokenError } from '../commands/artifact/intake.ts';
import { ProblemError } from './problem.ts';

export interface UploadLimits {
  /** Uploads that one node takes at the same time. */
  readonly concurrent: number;
  /** A sender that is silent for so long is given up, ms. */
  readonly silenceMs: number;
}

/** One upload under way. */
export interface OpenUpload {
  readonly body: AsyncIterable<Uint8Array>;
  /** Aborts when the sender falls silent, or when the tenant goes; its reason is what the sender is answered. */
  readonly signal: AbortSignal;
  /** The length that the sender has announced, bytes; null: none. */
  readonly declaredBytes: number | null;
  /** To be called when it has ended, however it did. */
  readonly close: () => void;
}

/** Uploads that this node is taking: so many at a time, none for longer than its sender and its tenant are there. */
export class Uploads {
  readonly #limits: UploadLimits;
  readonly #open = new Map<AbortController, string>();

  constructor(limits: UploadLimits) {
    this.#limits = limits;
  }

  get size(): number {
    return this.#open.size;
  }

  /** Ends those of a tenant that is about to be deleted: nothing of it may come back. */
  end(tenantId: string): void {
    // What every other request of it is answered from now on.
    const reason = new ProblemError({ code: 'credential_invalid', message: INVALID_CREDENTIAL });
    for (const [controller, tenant] of this.#open) if (tenant === tenantId) controller.abort(reason);
  }

  /** @throws ProblemError rate_limited when the node takes as many as it can already */
  open(request: IncomingMessage, tenantId: string): OpenUpload {
    if (this.#open.size >= this.#limits.concurrent) {
      const message = 'Too many uploads are under way on this node. Send it again in a moment.';
      throw new ProblemError({ code: 'rate_limited', message, headers: { 'retry-after': '1' } });
    }
    const controller = new AbortController();
    this.#open.set(controller, tenantId);
    const silence = new Silence(this.#limits.silenceMs, () => {
      controller.abort(new UploadBrokenError('the sender fell silent'));
    });
    const length = request.headers['content-length'];
    const body = chunksOf(request, silence);
    return {
      body,
      signal: controller.signal,
      declaredBytes: length === undefined ? null : Number(length),
      close: () => {
        silence.end();
        this.#open.delete(controller);
        // Whoever reads what is left of the body cannot while this holds on to it.
        void body.return(undefined);
      },
    };
  }
}

/** Bounds how long the sender is waited for, one chunk at a time. */
class Silence {
  readonly #ms: number;
  readonly #onSilent: () => void;
  #timer: NodeJS.Timeout | undefined;

  constructor(ms: number, onSilent: () => void) {
    this.#ms = ms;
    this.#onSilent = onSilent;
  }

  begin(): void {
    this.#timer = setTimeout(this.#onSilent, this.#ms);
  }

  end(): void {
    clearTimeout(this.#timer);
  }
}

/** Leaving the loop leaves the connection open: a refusal has still to be sent over it. */
async function* chunksOf(request: IncomingMessage, silence: Silence): AsyncGenerator<Uint8Array, void> {
  try {
    silence.begin();
    for await (const chunk of request.iterator({ destroyOnReturn: false })) {
      silence.end();
      // While the store takes the chunk, a sender that has more to send has to wait: that is not its silence.
      if (chunk instanceof Uint8Array) yield chunk;
      silence.begin();
    }
  } catch (cause) {
    throw new UploadBrokenError('the sender went away', { cause });
  } finally {
    silence.end();
  }
}

const DRAIN_MS = 2_000;
const DRAIN_BYTES_MAX = 16_777_216;

/**
 * After a refusal the sender may still be writing. What it writes is read for a moment, so that it gets to see the answer;
 * who goes on regardless loses the connection.
 */
export function drainBriefly(request: IncomingMessage): void {
  if (request.complete || request.destroyed) return;
  let bytes = 0;
  const end = (): void => void request.socket.destroy();
  const timer = setTimeout(end, DRAIN_MS);
  timer.unref();
  request.on('data', (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes > DRAIN_BYTES_MAX) end();
  });
  request.once('close', () => clearTimeout(timer));
  request.once('end', () => clearTimeout(timer));
}

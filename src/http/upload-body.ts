import type { FastifyError, FastifyInstance } from 'fastify';
import type { IncomingMessage } from 'node:http';
import { INVALID_CREDENTIAL } from '../auth/authenticate.ts';
import { UploadBrokenError } from '../commands/artifact/reservation.ts';
import { FairBudget } from '../lib/fair-budget.ts';
import { Patience } from './patience.ts';
import type { PatienceLimits } from './patience.ts';
import { ProblemError } from './problem.ts';

type BodyReader = Pick<FastifyInstance, 'removeAllContentTypeParsers' | 'addContentTypeParser' | 'setErrorHandler'>;

export interface UploadLimits extends PatienceLimits {
  /** Uploads that one node takes at the same time: in all, of one tenant, and of one person. */
  readonly concurrent: number;
  readonly perTenant: number;
  readonly perSubject: number;
  /** Bytes of bodies that are held in memory whole, together; one tenant has half of them while others want some. */
  readonly memoryBytes: number;
}

/** Who sends it. */
export interface Uploader {
  readonly tenantId: string;
  readonly subject: string | null;
}

/** One upload under way. */
export interface OpenUpload {
  readonly body: AsyncIterable<Uint8Array>;
  /** Aborts when the sender falls silent, or when the tenant goes; its reason is the answer to the sender. */
  readonly signal: AbortSignal;
  /** The length that the sender has announced, bytes; null: none. */
  readonly declaredBytes: number | null;
  /** To be called when it has ended, however it did. */
  readonly close: () => void;
}

/** Uploads that this node is taking: a bounded number, none for longer than its sender and tenant exist. */
export class Uploads {
  readonly #limits: UploadLimits;
  readonly #open = new Map<AbortController, Uploader>();
  readonly #memory: FairBudget;

  constructor(limits: UploadLimits) {
    this.#limits = limits;
    const { memoryBytes } = limits;
    this.#memory = new FairBudget({ total: memoryBytes, perName: Math.ceil(memoryBytes / 2) });
  }

  /**
   * Memory for a body that is collected before it is stored, once there is some. Returns the function that gives it back.
   * @throws the signal's reason, when it aborts before
   */
  async memory(tenantId: string, bytes: number, signal: AbortSignal): Promise<() => void> {
    return await this.#memory.take(tenantId, bytes, signal);
  }

  get size(): number {
    return this.#open.size;
  }

  /** Ends those of a tenant about to be deleted: nothing of it may come back. */
  end(tenantId: string): void {
    // What all its other requests are answered from now on.
    const reason = new ProblemError({ code: 'credential_invalid', message: INVALID_CREDENTIAL });
    for (const [controller, of] of this.#open) if (of.tenantId === tenantId) controller.abort(reason);
  }

  /** @throws ProblemError rate_limited when the node, the tenant or the person is at its limit */
  open(request: IncomingMessage, uploader: Uploader): OpenUpload {
    this.#refuseTooMany(uploader);
    const controller = new AbortController();
    this.#open.set(controller, uploader);
    const silence = new Patience(this.#limits, () => {
      controller.abort(new UploadBrokenError('the sender fell silent, or sent too little'));
    });
    const length = request.headers['content-length'];
    const body = chunksOf(request, silence);
    return {
      body,
      signal: controller.signal,
      declaredBytes: length === undefined ? null : Number(length),
      close: () => {
        silence.end(0);
        this.#open.delete(controller);
        // The rest of the body cannot be read while this holds it.
        void body.return(undefined);
      },
    };
  }

  #refuseTooMany({ tenantId, subject }: Uploader): void {
    const { concurrent, perTenant, perSubject } = this.#limits;
    const ofTenant = [...this.#open.values()].filter((of) => of.tenantId === tenantId);
    const ofSubject = subject === null ? [] : ofTenant.filter((of) => of.subject === subject);
    const whose =
      ofSubject.length >= perSubject
        ? 'of this person'
        : ofTenant.length >= perTenant
          ? 'of this tenant'
          : this.#open.size >= concurrent
            ? ''
            : null;
    if (whose === null) return;
    const message = `Too many uploads ${whose === '' ? '' : `${whose} `}are in progress on this node. Send it again in a moment.`;
    throw new ProblemError({ code: 'rate_limited', message, headers: { 'retry-after': '1' } });
  }
}

/** Leaving the loop leaves the connection open: a refusal must still be sent over it. */
async function* chunksOf(request: IncomingMessage, silence: Patience): AsyncGenerator<Uint8Array, void> {
  try {
    silence.begin();
    for await (const chunk of request.iterator({ destroyOnReturn: false })) {
      silence.end(chunk instanceof Uint8Array ? chunk.length : 0);
      // While the store takes the chunk, a sender that has more to send has to wait: that is not its silence.
      if (chunk instanceof Uint8Array) yield chunk;
      silence.begin();
    }
  } catch (cause) {
    throw new UploadBrokenError('the sender went away', { cause });
  } finally {
    silence.end(0);
  }
}

/**
 * Leaves the bodies of a plugin's routes in the connection: the use case reads them, as fast as it takes them. For a
 * Content-Type that cannot be read, the framework's own refusal would ask for JSON.
 */
export function leaveBodies(app: BodyReader): void {
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', (_request, _payload, done) => done(null));
  app.setErrorHandler(async (error: FastifyError, request) => {
    await Promise.resolve();
    const isFile = request.routeOptions.config.rules?.rawBody === true;
    throw isFile && error.code === 'FST_ERR_CTP_INVALID_MEDIA_TYPE' ? noMediaType() : error;
  });
}

export function noMediaType(): ProblemError {
  const issues = [{ path: 'header.content-type', message: 'must be a media type of 255 characters at most' }];
  const message = 'The Content-Type header is not a media type. Correct it, or omit it.';
  return new ProblemError({ code: 'invalid_request', message, details: { issues } });
}

const DRAIN_MS = 2_000;
const DRAIN_BYTES_MAX = 16_777_216;

/**
 * After a refusal the sender may still be writing. What it writes is read for a moment, so that it gets to see the
 * answer; a sender that continues loses the connection.
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

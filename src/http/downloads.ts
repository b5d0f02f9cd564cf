import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import type { FastifyRequest } from 'fastify';
import { FairBudget } from '../lib/fair-budget.ts';
import { clientGone, endWork } from './gate.ts';
import { Patience } from './patience.ts';
import type { PatienceLimits } from './patience.ts';

export interface DownloadLimits extends PatienceLimits {
  /** Files that one node sends at the same time; half of them to one name, while others want some. */
  readonly concurrent: number;
}

/** A request for a file, whose file it is for the share in what a node sends, and how its bytes are opened. */
export interface Download {
  readonly request: FastifyRequest;
  readonly response: ServerResponse;
  readonly of: string;
  readonly open: () => Promise<Readable>;
}

/**
 * Files that this node is sending: a bounded number, for each holds a part of its file, and none for longer than its
 * reader takes some of it. Others wait for their turn.
 */
export class Downloads {
  readonly #limits: DownloadLimits;
  readonly #places: FairBudget;

  constructor(limits: DownloadLimits) {
    this.#limits = limits;
    this.#places = new FairBudget({ total: limits.concurrent, perName: Math.ceil(limits.concurrent / 2) });
  }

  /**
   * The bytes of a file, opened once they can be sent; the connection is closed when its reader falls silent, or takes
   * too little of them. @throws ProblemError when the reader leaves before, and what `open` throws
   */
  async body({ request, response, of, open }: Download): Promise<Readable> {
    const left = new AbortController();
    const leave = (): void => left.abort(clientGone());
    response.once('close', leave);
    try {
      const free = await this.#place({ request, response, of }, left.signal);
      try {
        return this.#patient(await open(), response, free);
      } catch (error) {
        free();
        throw error;
      }
    } finally {
      response.removeListener('close', leave);
    }
  }

  async #place({ request, response, of }: Omit<Download, 'open'>, left: AbortSignal): Promise<() => void> {
    // A request that came behind others over its connection is answered after them: what it opened now would only wait.
    if (response.socket === null) {
      endWork(request);
      await once(response, 'socket', { signal: left }).catch(() => left.throwIfAborted());
    }
    const free = this.#places.takeNow(of, 1);
    if (free !== null) return free;
    endWork(request);
    return await this.#places.take(of, 1, left);
  }

  #patient(body: Readable, response: ServerResponse, free: () => void): Readable {
    const patience = new Patience(this.#limits, () => void response.destroy());
    // What waits for the store is given up, too. If it fails before it is read, the reading says so.
    body.on('error', () => undefined);
    const end = (): void => {
      patience.end(0);
      body.destroy();
      free();
    };
    if (response.closed) end();
    else response.once('close', end);
    // Nothing is read ahead of what the body has read ahead itself.
    return Readable.from(taken(body, response, patience), { objectMode: false, highWaterMark: 0 });
  }
}

/** A chunk is asked for when the reader has taken those before it; while the store is waited for, the reader is not. */
async function* taken(body: Readable, response: ServerResponse, patience: Patience): AsyncGenerator<Uint8Array, void> {
  for await (const chunk of body) {
    if (!(chunk instanceof Uint8Array)) throw new TypeError('a file is sent as bytes');
    patience.begin();
    yield chunk;
    patience.end(chunk.length);
  }
  // What is left waits in the connection.
  if (!response.closed) patience.begin();
}

import type { ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import { Patience } from './patience.ts';
import type { PatienceLimits } from './patience.ts';

/** Files that this node is sending: none is held open for longer than its reader takes some of it. */
export class Downloads {
  readonly #limits: PatienceLimits;

  constructor(limits: PatienceLimits) {
    this.#limits = limits;
  }

  /** The same bytes; the connection is closed when its reader falls silent, or takes too little of them. */
  patient(body: Readable, response: ServerResponse): Readable {
    const patience = new Patience(this.#limits, () => void response.destroy());
    // What waits for the store is given up, too. If it fails before it is read, the reading says so.
    body.on('error', () => undefined);
    response.once('close', () => {
      patience.end(0);
      body.destroy();
    });
    return Readable.from(taken(body, response, patience), { objectMode: false });
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

import { Client } from 'pg';
import { optional } from '../../domain/kernel/optional.ts';

/** How long a connection may take to be let in, ms. */
export const CONNECT_MS = 10_000;

/**
 * After so much silence the system asks the other end whether it is there, and once a second then; after ten questions
 * without an answer the connection fails (libuv), ms. A database whose machine has lost its power says nothing, nor does a
 * router that has forgotten a connection on which nothing was sent for some minutes.
 */
export const SILENCE_MS = 10_000;

export interface ConnectionOptions {
  /** How long an answer to a statement is waited for, ms; absent: for as long as it takes. */
  readonly answerMs?: number;
}

/**
 * Uses the driver itself, for what the pool is not made for: another database, a file of several statements, a lock that
 * is held for long. The connection ends with the use.
 */
export async function withConnection<T>(
  url: string,
  use: (client: Client) => Promise<T>,
  { answerMs }: ConnectionOptions = {},
): Promise<T> {
  const client = new Client({
    connectionString: url,
    connectionTimeoutMillis: CONNECT_MS,
    keepAlive: true,
    keepAliveInitialDelayMillis: SILENCE_MS,
    ...optional({ query_timeout: answerMs }),
  });
  // The next statement reports a lost connection; between statements nothing listens, and the process would end.
  client.on('error', () => undefined);
  await client.connect();
  try {
    return await use(client);
  } finally {
    await client.end();
  }
}

/** What is of interest of a socket, by TLS or not. */
export interface ConnectionSocket {
  readonly bytesRead: number;
  /** Bytes that the system has not taken yet. */
  readonly writableLength: number;
  setKeepAlive(enable: boolean, initialDelayMs: number): unknown;
}

/** The socket of a connection; null: its database is in this process. */
export function socketOf({ connection: { stream } }: Client): ConnectionSocket | null {
  return isSocket(stream) ? stream : null;
}

function isSocket(stream: object): stream is ConnectionSocket {
  return 'bytesRead' in stream && 'writableLength' in stream && 'setKeepAlive' in stream;
}

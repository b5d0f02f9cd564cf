import { Client } from 'pg';
import { optional } from '../../domain/kernel/optional.ts';

const CONNECT_MS = 10_000;

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

import { Client } from 'pg';

const CONNECT_MS = 10_000;

/**
 * Uses the driver itself, for what the pool is not made for: another database, a file of several statements, a lock that
 * is held for long. The connection ends with the use.
 */
export async function withConnection<T>(url: string, use: (client: Client) => Promise<T>): Promise<T> {
  const client = new Client({ connectionString: url, connectionTimeoutMillis: CONNECT_MS });
  // The next statement reports a lost connection; between statements nothing listens, and the process would end.
  client.on('error', () => undefined);
  await client.connect();
  try {
    return await use(client);
  } finally {
    await client.end();
  }
}

import { Client } from 'pg';

/** Holds a lock in a database until it is released, as a long transaction or another projector does. */
export async function holding(url: string, lock: string): Promise<AsyncDisposable> {
  const client = new Client({ connectionString: url });
  await client.connect();
  await client.query('begin');
  await client.query(lock);
  return { [Symbol.asyncDispose]: async () => await client.end() };
}

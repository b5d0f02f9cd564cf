import { Client } from 'pg';
import { encodeCursor } from '#src/streams/cursor.ts';

/** Cursors of a session's records with these numbers, from 1. */
export async function cursorsOf(
  databaseUrl: string,
  { tenant, id }: { readonly tenant: string; readonly id: string },
  numbers: readonly number[],
): Promise<readonly string[]> {
  const client = new Client({ connectionString: databaseUrl });
  await client.connect();
  try {
    const found: string[] = [];
    for (const number of numbers) {
      const { rows } = await client.query<{ shard: number; position: string; index: number }>(
        `select shard, position, index from sessions.history where tenant = $1 and session_id = $2
         order by position, index offset $3 limit 1`,
        [tenant, id, number - 1],
      );
      const [row] = rows;
      if (row === undefined) throw new Error(`the session has no record ${number}`);
      found.push(encodeCursor({ tenant, kind: 'session', id }, { ...row, position: Number(row.position) }));
    }
    return found;
  } finally {
    await client.end();
  }
}

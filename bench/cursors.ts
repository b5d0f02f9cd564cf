import { Client } from 'pg';
import { SCHEMAS } from '#src/projections/schemas.ts';
import { encodeCursor } from '#src/streams/cursor.ts';

/** Cursors of the commits that hold a session's records with these numbers, from 1: a commit's last record at the latest. */
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
      const { rows } = await client.query<{ shard: number; position: string }>(
        `select shard, position from (
           select shard, position, sum(records) over (order by position) as upto
           from ${SCHEMAS.sessions}.history where tenant = $1 and session_id = $2) as counted
         where upto >= $3 order by position limit 1`,
        [tenant, id, number],
      );
      const [row] = rows;
      if (row === undefined) throw new Error(`the session has no record ${number}`);
      found.push(
        encodeCursor({ tenant, kind: 'session', id }, { shard: row.shard, position: Number(row.position), index: 0 }),
      );
    }
    return found;
  } finally {
    await client.end();
  }
}

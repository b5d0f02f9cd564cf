import { sql } from 'slonik';
import type { DatabaseTransactionConnection } from 'slonik';
import { z } from 'zod';
import { recordset } from './documents.ts';
import { prepared } from './prepared.ts';

/** By how much the counts of a tenant change; a count that is absent does not. */
export interface TallyChange {
  readonly tenant: string;
  readonly by: Readonly<Record<string, number>>;
}

export interface TallyTarget {
  readonly schema: string;
  /** A projector changes the counts of its own stream only, so that no two wait for each other. */
  readonly shard: number;
  /** The columns of the table `tally` that count. */
  readonly counts: readonly string[];
}

const tenantRow = z.object({ tenant: z.string() });

/** Changes the counts of tenants in one statement; what counts nothing any more goes with a second one. */
export async function tally(
  transaction: DatabaseTransactionConnection,
  { schema, shard, counts }: TallyTarget,
  changes: readonly TallyChange[],
): Promise<void> {
  const rows = [...summed(changes, counts)].filter(([, by]) => counts.some((count) => by[count] !== 0));
  if (rows.length === 0) return;
  const table = sql.identifier([schema, 'tally']);
  const columns = counts.map((count) => sql.identifier([count]));
  const grown = columns.map((column) => sql.fragment`${column} = kept.${column} + excluded.${column}`);
  const types = Object.fromEntries(['tenant', ...counts].map((name) => [name, name === 'tenant' ? 'text' : 'bigint']));
  const named = rows.map(([tenant, by]) => ({ tenant, ...by }));
  const nothing = sql.join(
    columns.map((column) => sql.fragment`${column} = 0`),
    sql.fragment` and `,
  );
  const change = sql.type(tenantRow)`
    with changed as (
      insert into ${table} as kept (tenant, shard, ${sql.join(columns, sql.fragment`, `)})
      select tenant, ${shard}, ${sql.join(columns, sql.fragment`, `)} from ${recordset(named, types, 'more')} order by tenant
      on conflict (tenant, shard) do update set ${sql.join(grown, sql.fragment`, `)}
      returning kept.*)
    select tenant from changed where ${nothing}`;
  const empty = await transaction.anyFirst(prepared(`tally ${schema}`, change));
  if (empty.length === 0) return;
  await transaction.query(sql.unsafe`
    delete from ${table} where tenant = any(${sql.array([...empty], 'text')}) and shard = ${shard} and ${nothing}`);
}

function summed(
  changes: readonly TallyChange[],
  counts: readonly string[],
): ReadonlyMap<string, Record<string, number>> {
  const sums = new Map<string, Record<string, number>>();
  for (const { tenant, by } of changes) {
    const sum = sums.get(tenant) ?? Object.fromEntries(counts.map((count) => [count, 0]));
    for (const [count, more] of Object.entries(by)) sum[count] = (sum[count] ?? 0) + more;
    sums.set(tenant, sum);
  }
  return sums;
}

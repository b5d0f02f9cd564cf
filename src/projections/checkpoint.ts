import { sql } from 'slonik';
import type { CommonQueryMethods, DatabasePoolConnection } from 'slonik';
import { z } from 'zod';
import type { ProjectionGroup } from './projection.ts';
import { prepared } from './prepared.ts';

/** Another projector has moved the checkpoint: this one must stop applying. */
export class FencedError extends Error {}

/** The schema that a rebuild fills. */
export const besideOf = (group: ProjectionGroup): string => `${group.schema}_next`;

/** The schema that a rebuild has replaced, until it is dropped. */
export const replacedOf = (group: ProjectionGroup): string => `${group.schema}_old`;

/** The schema that an audit fills; one that was interrupted leaves it, and continues in it. */
export const auditedIn = (group: ProjectionGroup): string => `${group.schema}_audit`;

/** How far a group has read a stream; 0 before its first commit. */
export async function readCheckpoint(connection: CommonQueryMethods, schema: string, shard: number): Promise<number> {
  const row = z.object({ position: z.int() });
  const found = await connection.maybeOneFirst(
    sql.type(row)`select position from ${sql.identifier([schema, 'checkpoint'])} where shard = ${shard}`,
  );
  return found ?? 0;
}

/** How far a group has read a stream, and how many of its commits it has parked. */
export interface Checkpoint {
  readonly name: string;
  readonly shard: number;
  readonly position: number;
  readonly parked: number;
}

/** All checkpoints of these groups in one statement; those before their first commit are absent. */
export async function readCheckpoints(
  connection: CommonQueryMethods,
  groups: readonly ProjectionGroup[],
): Promise<readonly Checkpoint[]> {
  const row = z.object({ name: z.string(), shard: z.int(), position: z.int(), parked: z.int() });
  const ofGroups = groups.map(
    ({ name, schema }) => sql.fragment`
      select ${name} as name, shard, position,
        (select count(*)::int from ${sql.identifier([schema, 'parked'])} as parked where parked.shard = checkpoint.shard) as parked
      from ${sql.identifier([schema, 'checkpoint'])} as checkpoint`,
  );
  return await connection.any(sql.type(row)`${sql.join(ofGroups, sql.fragment` union all `)}`);
}

/** How many commits the groups have parked, together. */
export async function countParked(connection: CommonQueryMethods, groups: readonly ProjectionGroup[]): Promise<number> {
  const counts = groups.map(({ schema }) => sql.fragment`(select count(*) from ${sql.identifier([schema, 'parked'])})`);
  return await connection.oneFirst(
    sql.type(z.object({ parked: z.int() }))`select (${sql.join(counts, sql.fragment` + `)})::int as parked`,
  );
}

/**
 * Moves a checkpoint inside the transaction that writes the rows. The previous position is the fence: of two projectors
 * that read the same commits, one finds it moved and loses its transaction.
 * @throws FencedError
 */
export async function moveCheckpoint(
  transaction: CommonQueryMethods,
  schema: string,
  move: { readonly shard: number; readonly from: number; readonly to: number },
): Promise<void> {
  const table = sql.identifier([schema, 'checkpoint']);
  const { rowCount } = await transaction.query(
    move.from === 0
      ? sql.unsafe`insert into ${table} (shard, position) values (${move.shard}, ${move.to})
          on conflict (shard) do update set position = excluded.position where ${table}.position = 0`
      : prepared(
          `checkpoint ${schema}`,
          sql.unsafe`update ${table} set position = ${move.to} where shard = ${move.shard} and position = ${move.from}`,
        ),
  );
  if (rowCount !== 1) throw new FencedError(`the checkpoint of ${schema} ${move.shard} is no longer at ${move.from}`);
}

/**
 * Keeps projectors and the swap of a rebuild apart: a projector takes the lock shared as the first statement of its
 * transaction, the swap takes it exclusively. It comes before any table is named, because a name resolved before a swap
 * would write into the tables that are about to be dropped.
 */
export async function holdGroup(
  transaction: CommonQueryMethods,
  schema: string,
  mode: 'shared' | 'alone',
): Promise<void> {
  const lock = sql.fragment`hashtextextended(${`swap.${schema}`}, 0)`;
  await transaction.query(
    mode === 'shared'
      ? sql.unsafe`select pg_advisory_xact_lock_shared(${lock})`
      : sql.unsafe`select pg_advisory_xact_lock(${lock})`,
  );
}

/**
 * Works while no one else rebuilds, or audits, the same group: each fills a schema of one name, and begins by dropping it.
 * The lock is of the connection and goes with it, so no process that has died is waited for.
 * @throws FencedError when another does
 */
export async function workAlone<T>(
  connection: DatabasePoolConnection,
  what: 'rebuild' | 'audit',
  { name, schema }: ProjectionGroup,
  work: () => Promise<T>,
): Promise<T> {
  const lock = sql.fragment`hashtextextended(${`${what}.${schema}`}, 0)`;
  const isAlone = await connection.oneFirst(
    sql.type(z.object({ alone: z.boolean() }))`select pg_try_advisory_lock(${lock}) as alone`,
  );
  if (!isAlone) throw new FencedError(`another ${what} of ${name} is under way; wait for it`);
  try {
    return await work();
  } finally {
    // A connection that has died holds no lock, and its user has been told.
    await connection.query(sql.unsafe`select pg_advisory_unlock(${lock})`).catch(() => undefined);
  }
}

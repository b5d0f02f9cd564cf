import { sql } from 'slonik';
import type { DatabasePoolConnection } from 'slonik';
import { z } from 'zod';
import { besideOf, FencedError, holdGroup, replacedOf, workAlone } from './checkpoint.ts';
import { fill, fillAll } from './fill.ts';
import type { FillAllOptions } from './fill.ts';
import type { ProjectionGroup } from './projection.ts';
import { forLongWork } from './read-store/long-work.ts';

/** The swap reads the last stretch of the log; a log that does not answer for this long is unavailable, ms. */
const SWAP_IDLE_MS = 60_000;

export type RebuildOptions = Omit<FillAllOptions, 'schema' | 'batchMax'>;

/**
 * Rebuilds a group's read models from the log in a schema beside the live one, and swaps the two by renaming. The
 * live projector continues meanwhile; it finds its checkpoint moved and reads on from the new one. Read models are
 * rebuilt, never repaired.
 * @throws FencedError when nothing was swapped: another rebuild is under way, a tenant was deleted meanwhile, or more commits
 * were parked than before.
 */
export async function rebuild(options: RebuildOptions): Promise<void> {
  const { pool, group } = options;
  // Until the last table is dropped: one that began while another swaps would wait for its tables, and drop those then live.
  await forLongWork(pool, async (connection) => {
    await workAlone(connection, 'rebuild', group, async () => await rebuildAlone(connection, options));
  });
}

async function rebuildAlone(connection: DatabasePoolConnection, options: RebuildOptions): Promise<void> {
  const { group } = options;
  const next = besideOf(group);
  await makeBeside(connection, group, next);
  try {
    const streams = Array.from({ length: options.source.shards }, (_, shard) => ({ shard }));
    await fillAll(connection, { ...options, schema: next }, streams);
    await swap(connection, options, next);
  } catch (error) {
    if (await exists(connection, next)) throw error;
    const advice = 'nothing was swapped; run it again';
    throw new FencedError(`a tenant was deleted during the rebuild of ${group.name}: ${advice}`, { cause: error });
  }
}

/** Whether a schema exists. */
export async function exists(connection: DatabasePoolConnection, schema: string): Promise<boolean> {
  return await connection.exists(sql.unsafe`select from pg_namespace where nspname = ${schema}`);
}

/** An empty copy of the group's schema: same tables, same indexes. */
export async function makeBeside(
  connection: DatabasePoolConnection,
  group: ProjectionGroup,
  schema: string,
): Promise<void> {
  await connection.query(sql.unsafe`drop schema if exists ${sql.identifier([schema])} cascade`);
  await connection.query(sql.unsafe`create schema ${sql.identifier([schema])}`);
  for (const table of [...machineryOf(group), ...group.tables]) {
    await connection.query(sql.unsafe`
      create table ${sql.identifier([schema, table])} (like ${sql.identifier([group.schema, table])} including all)`);
  }
}

/** Tables of a group's schema that are not made of commits. */
function machineryOf({ deferredIn }: ProjectionGroup): readonly string[] {
  return ['checkpoint', 'parked', ...(deferredIn === undefined ? [] : [deferredIn])];
}

/**
 * With the projectors held off, the last stretch is read inside the same transaction: a reader never sees a checkpoint
 * go back, nor lose rows that it was promised. Renaming locks no table, so readers are not held up; the old tables are
 * dropped afterwards, one by one, so that no drop waits for a reader while it blocks another.
 */
async function swap(connection: DatabasePoolConnection, options: RebuildOptions, next: string): Promise<void> {
  const { schema: live, tables } = options.group;
  const old = replacedOf(options.group);
  await connection.query(sql.unsafe`drop schema if exists ${sql.identifier([old])} cascade`);
  await connection.transaction(async (transaction) => {
    // A stalled one would hold off the projectors for as long.
    await transaction.query(
      sql.unsafe`set local idle_in_transaction_session_timeout = ${sql.literalValue(`${SWAP_IDLE_MS}`)}`,
    );
    await holdGroup(transaction, live, 'alone');
    for (let shard = 0; shard < options.source.shards; shard++)
      await fill(transaction, { ...options, schema: next, shard });
    const row = z.object({ n: z.int() });
    const parked = async (schema: string): Promise<number> =>
      await transaction.oneFirst(sql.type(row)`select count(*)::int as n from ${sql.identifier([schema, 'parked'])}`);
    if ((await parked(next)) > (await parked(live))) {
      throw new FencedError(`the rebuild of ${live} parked more commits than the live read model: nothing was swapped`);
    }
    await transaction.query(sql.unsafe`alter schema ${sql.identifier([live])} rename to ${sql.identifier([old])}`);
    await transaction.query(sql.unsafe`alter schema ${sql.identifier([next])} rename to ${sql.identifier([live])}`);
  });
  for (const table of [...tables, ...machineryOf(options.group)]) {
    await connection.query(sql.unsafe`drop table if exists ${sql.identifier([old, table])}`);
  }
  await connection.query(sql.unsafe`drop schema if exists ${sql.identifier([old])}`);
}

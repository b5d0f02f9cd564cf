import { sql } from 'slonik';
import type { DatabasePoolConnection } from 'slonik';
import { z } from 'zod';
import { delay } from '../lib/backoff.ts';
import { auditedIn, FencedError, readCheckpoint, workAlone } from './checkpoint.ts';
import { compareTables } from './compare-tables.ts';
import type { Compared, Difference } from './compare-tables.ts';
import { DeletedMeanwhile } from './deleted-meanwhile.ts';
import { fillAll } from './fill.ts';
import type { ReplayEnd, StreamEnd } from './fill.ts';
import { forLongWork } from './read-store/long-work.ts';
import type { ProjectionGroup } from './projection.ts';
import { exists, makeBeside } from './rebuild.ts';
import type { RebuildOptions } from './rebuild.ts';
import { BATCH_MAX } from './gathering.ts';

/** How long an audit waits until the rows of deleted sessions are gone, ms. */
const DEFERRED_MS_MAX = 600_000;
const DEFERRED_POLL_MS = 200;

export interface AuditOptions extends RebuildOptions {
  /** Null: where the live read model is. */
  readonly until: ReplayEnd | null;
  /** The program's version: what another version has replayed is not used. */
  readonly version: string;
  /** Called with this many of the first differences; the others are only counted. */
  readonly onDifference: (difference: Difference & { readonly table: string }) => void;
  readonly shownMax: number;
}

export interface Audited extends Compared {
  /** After the start of the audit, and before their commits were replayed: neither their rows nor sums of their tenants count. */
  readonly deletedSessions: number;
}

/**
 * Replays the log into a scratch schema and compares it row for row with the live read model, as of the start of the
 * audit: a snapshot of the database freezes it, while projectors and readers continue. An audit that was interrupted
 * leaves its schema, and the next one continues in it.
 * @throws FencedError when another audit of the group is running, or meanwhile a tenant was deleted or the group rebuilt
 */
export async function audit(options: AuditOptions): Promise<Audited> {
  const { pool } = options;
  // By hand: two connections work concurrently here, which the library's transactions refuse.
  return await forLongWork(pool, async (live) => {
    await beginSnapshot(live, options.group);
    try {
      const schemaId = await schemaIdOf(live, options.group);
      return await forLongWork(
        pool,
        async (connection) => await auditAlone(live, connection, { ...options, schemaId }),
      );
    } finally {
      await live.query(sql.unsafe`rollback`);
    }
  });
}

/**
 * A snapshot in which nothing is put off: rows of a session that was deleted and has not yet gone would be in one side
 * alone. @throws FencedError when that takes too long
 */
async function beginSnapshot(
  live: DatabasePoolConnection,
  { name, schema, deferredIn }: ProjectionGroup,
): Promise<void> {
  const deadline = performance.now() + DEFERRED_MS_MAX;
  for (;;) {
    await live.query(sql.unsafe`begin isolation level repeatable read read only`);
    if (deferredIn === undefined) return;
    if (!(await live.exists(sql.unsafe`select from ${sql.identifier([schema, deferredIn])}`))) return;
    await live.query(sql.unsafe`rollback`);
    if (performance.now() > deadline)
      throw new FencedError(`rows of deleted sessions are still being removed from ${name}; run the audit later`);
    await delay(DEFERRED_POLL_MS);
  }
}

interface Begun extends AuditOptions {
  /** Of the live schema in the snapshot: a rebuild puts another in its place. */
  readonly schemaId: string;
}

/** As the connection sees it. */
async function schemaIdOf(connection: DatabasePoolConnection, { schema }: ProjectionGroup): Promise<string> {
  return await connection.oneFirst(
    sql.type(z.object({ id: z.string() }))`select oid::text as id from pg_namespace where nspname = ${schema}`,
  );
}

/** Names lead to the tables of a rebuild as soon as it has swapped, and the snapshot shows none of what is in these. */
async function refuseRebuilt(connection: DatabasePoolConnection, { group, schemaId }: Begun): Promise<void> {
  if ((await schemaIdOf(connection, group)) === schemaId) return;
  throw new FencedError(`a rebuild of ${group.name} ended during the audit; run it again`);
}

async function auditAlone(
  live: DatabasePoolConnection,
  connection: DatabasePoolConnection,
  options: Begun,
): Promise<Audited> {
  const { group } = options;
  const scratch = auditedIn(group);
  return await workAlone(connection, 'audit', group, async () => {
    try {
      if (!(await isBegun(live, connection, options))) await begin(connection, options);
      await replay(live, connection, options, scratch);
      const result = await compareAll(live, connection, options, scratch);
      await connection.query(sql.unsafe`drop schema ${sql.identifier([scratch])} cascade`);
      return result;
    } catch (error) {
      if (await exists(connection, scratch)) {
        await refuseRebuilt(connection, options);
        throw error;
      }
      throw new FencedError(`a tenant was deleted during the audit of ${group.name}; run it again`, { cause: error });
    }
  });
}

/**
 * What a scratch schema is made for: another version may make other rows, another end position is not this replay's, and
 * a log that was moved to more streams has the same commits in others.
 */
function purposeOf({ version, until, source }: AuditOptions): string {
  return JSON.stringify({ version, until, shards: source.shards });
}

/** Whether an audit like this one was interrupted, and the live read model has not gone back since. */
async function isBegun(
  live: DatabasePoolConnection,
  connection: DatabasePoolConnection,
  options: AuditOptions,
): Promise<boolean> {
  const { group, source } = options;
  const scratch = auditedIn(group);
  const purpose = await connection.maybeOneFirst(
    sql.type(z.object({ purpose: z.string().nullable() }))`
      select obj_description(oid, 'pg_namespace') as purpose from pg_namespace where nspname = ${scratch}`,
  );
  if (purpose !== purposeOf(options)) return false;
  for (let shard = 0; shard < source.shards; shard++) {
    const [replayed, end] = [
      await readCheckpoint(connection, scratch, shard),
      await readCheckpoint(live, group.schema, shard),
    ];
    if (replayed > end) return false;
  }
  return true;
}

async function begin(connection: DatabasePoolConnection, options: AuditOptions): Promise<void> {
  const scratch = auditedIn(options.group);
  await makeBeside(connection, options.group, scratch);
  // Last: a schema without it was not completed.
  await connection.query(
    sql.unsafe`comment on schema ${sql.identifier([scratch])} is ${sql.literalValue(purposeOf(options))}`,
  );
}

/** Each stream up to the checkpoint that the snapshot shows: both sides have read the same commits then. */
async function replay(
  snapshot: DatabasePoolConnection,
  connection: DatabasePoolConnection,
  options: AuditOptions,
  schema: string,
): Promise<void> {
  const { source, group, until } = options;
  const streams: { shard: number; end: StreamEnd }[] = [];
  for (let shard = 0; shard < source.shards; shard++) {
    const position = await readCheckpoint(snapshot, group.schema, shard);
    if (position > 0) streams.push({ shard, end: { position, until } });
  }
  await fillAll(connection, { ...options, schema, batchMax: BATCH_MAX }, streams);
}

async function compareAll(
  snapshot: DatabasePoolConnection,
  connection: DatabasePoolConnection,
  options: Begun,
  scratch: string,
): Promise<Audited> {
  const { group, source, onDifference, shownMax } = options;
  const deleted = new DeletedMeanwhile({ snapshot, source, group });
  const isExplained: DeletedMeanwhile['explains'] = async (row) => await deleted.explains(row);
  const total = { rows: 0, differences: 0 };
  for (const name of [...group.tables, 'parked']) {
    const sides = {
      live: { connection: snapshot, table: [group.schema, name] },
      replayed: { connection, table: [scratch, name] },
    } as const;
    const table = `${group.schema}.${name}`;
    const shown: Difference[] = [];
    const tell = (one: Difference): void => void shown.push(one);
    const found = await compareTables(sides, { max: shownMax - total.differences, tell, isExplained });
    // Before any difference of it is reported.
    await refuseRebuilt(connection, options);
    for (const one of shown) onDifference({ ...one, table });
    total.rows += found.rows;
    total.differences += found.differences;
  }
  return { ...total, deletedSessions: deleted.sessions };
}

import { sql } from 'slonik';
import type { DatabasePoolConnection, DatabaseTransactionConnection } from 'slonik';
import { z } from 'zod';
import { loggedError } from '../lib/logged-error.ts';
import type { Logger } from '../lib/logger.ts';
import type { RowSeals } from '../streams/row-seals.ts';
import { isUnavailableError } from '../lib/unavailable.ts';
import { commitPlace } from '../streams/event-store.ts';
import type { CommitSource, FollowedCommit } from '../streams/event-store.ts';
import { refOfSubject, subjectOf } from '../streams/subjects.ts';
import type { AggregateRef } from '../streams/subjects.ts';
import { FencedError, holdGroup, moveCheckpoint } from './checkpoint.ts';
import { storableText } from './documents.ts';
import type { ProjectionGroup } from './projection.ts';
import { projected } from './projected.ts';
import { isUnavailable } from './read-store/pool.ts';

/**
 * Commits that could not be projected. Projection continued without them, so that what came after them of the same aggregate
 * was applied to rows which lack them; a parked commit is never applied by itself, but its aggregate's rows are recreated
 * from the log, in one transaction.
 */
export interface RetryOptions {
  readonly group: ProjectionGroup;
  readonly shard: number;
  readonly source: CommitSource;
  readonly seals: RowSeals;
  readonly logger: Logger;
  /** Where the projector stands: the rows of an aggregate are recreated up to here. */
  readonly position: number;
}

/** It can be applied, which was the question; it is rolled back. */
class AppliedError extends Error {}

/** Aggregates that one start tries again; the others wait for the next. */
const AGGREGATES_MAX = 1_000;
const ERROR_CHARS_MAX = 2_000;

const subjectRow = z.object({ subject: z.string(), positions: z.array(z.int()) });

interface ParkedAggregate {
  readonly subject: string;
  readonly positions: readonly number[];
}

/** The attempt made nothing better: what was there before stays. */
class NoBetterError extends Error {}

/**
 * Tries every parked commit of a shard again: this program may be newer, or the cause may have been fixed. One that
 * fails again stays parked, and nothing of its aggregate's rows changes. Returns how many are no longer parked. @throws
 * FencedError, or whatever says that the database is unavailable
 */
export async function retryParked(connection: DatabasePoolConnection, options: RetryOptions): Promise<number> {
  const { group, shard, position, logger } = options;
  const parked = await connection.any(sql.type(subjectRow)`
    select subject, json_agg(position order by position) as positions from ${sql.identifier([group.schema, 'parked'])}
    where shard = ${shard} and position <= ${position} group by subject order by subject limit ${AGGREGATES_MAX}`);
  let mended = 0;
  for (const aggregate of parked) {
    const { subject } = aggregate;
    try {
      const left = await makeAnew(connection, options, aggregate);
      mended += aggregate.positions.length - left;
      logger.info(
        { schema: group.schema, shard, subject, left },
        'rows were recreated with commits that had been parked',
      );
    } catch (error) {
      if (error instanceof FencedError || isUnavailable(error)) throw error;
      if (error instanceof NoBetterError) continue;
      logger.warn({ err: error, schema: group.schema, shard, subject }, 'a parked commit could not be tried again');
    }
  }
  return mended;
}

/** Returns how many commits of the aggregate are parked now. @throws NoBetterError when they are as many as before */
async function makeAnew(
  connection: DatabasePoolConnection,
  options: RetryOptions,
  { subject, positions }: ParkedAggregate,
): Promise<number> {
  const { group, shard, source, position } = options;
  const ref = refOfSubject(subject);
  // Reading a whole aggregate for what still cannot be applied would hold up the stream at each start.
  if (!(await isWorthIt(connection, options, { ref, positions }))) throw new NoBetterError();
  return await connection.transaction(async (transaction) => {
    await holdGroup(transaction, group.schema, 'shared');
    await moveCheckpoint(transaction, group.schema, { shard, from: position, to: position });
    await group.uncount?.(transaction, { schema: group.schema, shard }, ref);
    await removeRows(transaction, group, ref);
    let left = 0;
    for await (const batch of source.commitsOf(ref, shard, position)) {
      left += await apply(transaction, options, batch);
      if (left >= positions.length) throw new NoBetterError();
    }
    return left;
  });
}

/** Whether one of the parked commits can be decoded and written now, or has been erased. */
async function isWorthIt(
  connection: DatabasePoolConnection,
  options: RetryOptions,
  { ref, positions }: { readonly ref: AggregateRef; readonly positions: readonly number[] },
): Promise<boolean> {
  const { source, shard } = options;
  for (const position of positions) {
    const found = await source.commitAt(ref, shard, position);
    if (found === null || found.kind === 'erased') return true;
    if (found.kind === 'commit' && (await canBeApplied(connection, options, found))) return true;
  }
  return false;
}

/** Tries it on the rows as they are, and rolls back. */
async function canBeApplied(
  connection: DatabasePoolConnection,
  { group, seals }: RetryOptions,
  found: FollowedCommit,
): Promise<boolean> {
  try {
    const commits = projected([found]);
    await seals.prepare([commitPlace(found).ref.tenant]);
    await connection.transaction(async (transaction) => {
      await holdGroup(transaction, group.schema, 'shared');
      await group.apply(transaction, { schema: group.schema, seals }, commits);
      throw new AppliedError();
    });
  } catch (error) {
    if (error instanceof AppliedError) return true;
    if (isUnavailableError(error, 'streams') || isUnavailable(error)) throw error;
  }
  return false;
}

async function removeRows(
  transaction: DatabaseTransactionConnection,
  { schema, rowsOf }: ProjectionGroup,
  ref: AggregateRef,
): Promise<void> {
  for (const [table, column] of rowsOf[ref.kind] ?? []) {
    await transaction.query(sql.unsafe`
      delete from ${sql.identifier([schema, table])} where tenant = ${ref.tenant} and ${sql.identifier([column])} = ${ref.id}`);
  }
  await transaction.query(
    sql.unsafe`delete from ${sql.identifier([schema, 'parked'])} where subject = ${subjectOf(ref)}`,
  );
}

/** A batch together, else commit by commit; what cannot be applied is parked. Returns how many were. */
async function apply(
  transaction: DatabaseTransactionConnection,
  options: RetryOptions,
  batch: readonly FollowedCommit[],
): Promise<number> {
  const { group, shard, seals } = options;
  try {
    const commits = projected(batch);
    await seals.prepare(commits.map(({ ref }) => ref.tenant));
    // A savepoint: what fails leaves the transaction as it was.
    await transaction.transaction(async (savepoint) => {
      if (commits.length > 0) await group.apply(savepoint, { schema: group.schema, seals }, commits);
    });
    return 0;
  } catch (error) {
    if (isUnavailableError(error, 'streams') || isUnavailable(error)) throw error;
    const [first] = batch;
    if (batch.length === 1 && first !== undefined) {
      await park(transaction, group.schema, { shard, followed: first, error });
      return 1;
    }
    let parked = 0;
    for (const followed of batch) parked += await apply(transaction, options, [followed]);
    return parked;
  }
}

/** Notes that a commit could not be projected. */
export async function park(
  transaction: DatabaseTransactionConnection,
  schema: string,
  { shard, followed, error }: { readonly shard: number; readonly followed: FollowedCommit; readonly error: unknown },
): Promise<void> {
  const { ref, position } = commitPlace(followed);
  // The row outlives the tenant's key in its page: it says no more than a log line does.
  const reason = loggedError(error).message;
  await transaction.query(sql.unsafe`
    insert into ${sql.identifier([schema, 'parked'])} (shard, position, subject, error)
    values (${shard}, ${position}, ${subjectOf(ref)}, ${storableText(reason.slice(0, ERROR_CHARS_MAX))})
    on conflict do nothing`);
}

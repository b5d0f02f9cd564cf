import { sql } from 'slonik';
import type { CommonQueryMethods } from 'slonik';
import { PROJECTIONS } from '#src/app/projectors.ts';
import { makeBeside } from '#src/projections/rebuild.ts';
import type { ProjectionGroup } from '#src/projections/projection.ts';
import { applyBatch } from '#src/projections/runner.ts';
import { reading } from '#src/projections/read-store/pool.ts';
import type { ReadStore } from '#src/projections/read-store/pool.ts';
import type { TenantReads } from '#src/projections/read-store/tenant-reads.ts';
import type { Commit, StoredCommit } from '#src/streams/commit.ts';
import type { FollowedCommit } from '#src/streams/event-store.ts';
import type { RowSeals } from '#src/streams/row-seals.ts';
import type { AggregateRef } from '#src/streams/subjects.ts';
import { hashOf } from './commits.ts';
import type { TestLog } from './jetstream.ts';
import { capturedLog } from './logger.ts';
import { fixedSeals } from './seals.ts';

export function groupOf(name: 'tenants' | 'agents' | 'sessions' | 'sandboxes'): ProjectionGroup {
  const group = PROJECTIONS.find((one) => one.name === name);
  if (group === undefined) throw new Error(`no projection group ${name}`);
  return group;
}

/** Reads that share their connections with nobody. */
export function unshared(pool: CommonQueryMethods): TenantReads {
  return { read: async (_tenant, work) => await reading(async () => await work(pool)) };
}

/** Commits as they would be stored in one stream, where others lie between them. */
export function storedAt(commits: readonly { ref: AggregateRef; commit: Commit }[]): StoredCommit[] {
  return commits.map(({ ref, commit }, n) => ({ ref, commit, shard: 0, position: 7 + 3 * n, hash: hashOf(commit) }));
}

export const followed = (stored: StoredCommit): FollowedCommit => ({ kind: 'commit', stored });

/** The same commits with the bytes that the log has of them: rows made from these are those that a projector makes. */
export async function asInLog(
  { source }: Pick<TestLog, 'source'>,
  stored: readonly StoredCommit[],
): Promise<FollowedCommit[]> {
  const found: FollowedCommit[] = [];
  for (const { ref, shard, position } of stored) {
    const commit = await source.commitAt(ref, shard, position);
    if (commit === null) throw new Error(`the log has no commit at ${position}`);
    found.push(commit);
  }
  return found;
}

/** Applies commits as one batch, as a projector does; `from` is where it believes the checkpoint to be. */
export async function project(
  pool: ReadStore,
  group: ProjectionGroup,
  batch: {
    from: number;
    commits: readonly FollowedCommit[];
    schema?: string;
    seals?: RowSeals;
    onParked?: () => void;
  },
): Promise<number> {
  const { from, commits, schema = group.schema, seals = fixedSeals(), onParked = () => undefined } = batch;
  const { logger } = capturedLog();
  return await pool.connect(
    async (connection) =>
      await applyBatch(connection, { group, schema, shard: 0, from, batch: commits, seals, logger, onParked }),
  );
}

/** Applies commits to rows without looking at a checkpoint: what a batch that is delivered again does. */
export async function applyRows(
  pool: ReadStore,
  group: ProjectionGroup,
  {
    schema,
    batches,
    seals = fixedSeals(),
  }: { schema: string; batches: readonly (readonly StoredCommit[])[]; seals?: RowSeals },
): Promise<void> {
  await pool.connect(async (connection) => {
    for (const commits of batches) {
      await seals.prepare(commits.map(({ ref }) => ref.tenant));
      await connection.transaction(async (transaction) => await group.apply(transaction, { schema, seals }, commits));
    }
  });
}

/** An empty copy of a group's schema. */
export async function schemaBeside(pool: ReadStore, group: ProjectionGroup, schema: string): Promise<void> {
  await pool.connect(async (connection) => await makeBeside(connection, group, schema));
}

export async function emptied(pool: ReadStore, group: ProjectionGroup, schema: string): Promise<void> {
  const tables = group.tables.map((table) => sql.identifier([schema, table]));
  await pool.query(sql.unsafe`truncate ${sql.join(tables, sql.fragment`, `)}`);
}

import { sql } from 'slonik';
import type { DatabasePoolConnection } from 'slonik';
import { z } from 'zod';
import type { CommitSource } from '../streams/event-store.ts';
import { followTo } from '../streams/follow-to.ts';
import { refKey, refOfSubject } from '../streams/subjects.ts';
import type { AggregateRef } from '../streams/subjects.ts';
import { readCheckpoint } from './checkpoint.ts';
import type { Differing } from './compare-tables.ts';
import type { ProjectionGroup } from './projection.ts';

/** Commits that are read ahead. */
const BUFFER = 500;

export interface DeletedMeanwhileOptions {
  /** Shows the live rows, and how far the log had been read when they were frozen. */
  readonly snapshot: DatabasePoolConnection;
  readonly source: CommitSource;
  readonly group: ProjectionGroup;
}

interface Deleted {
  /** By `refKey`. */
  readonly sessions: ReadonlySet<string>;
  readonly tenants: ReadonlySet<string>;
}

const NONE: Deleted = { sessions: new Set(), tenants: new Set() };
const subjectRow = z.object({ subject: z.string() });

/**
 * Sessions that were deleted after a snapshot of their rows. The log keeps the fact and loses what was before it, so a
 * replay up to the snapshot lacks commits of which the snapshot has the rows: they differ, and nothing is wrong. What they
 * were cannot be known any more, nor what they added to the sums of their tenant.
 *
 * The log is read when something differs, once, and after the replay: what a deletion took from it follows on its fact.
 */
export class DeletedMeanwhile {
  readonly #options: DeletedMeanwhileOptions;
  #found: Promise<Deleted> | null = null;
  #sessions = 0;

  constructor(options: DeletedMeanwhileOptions) {
    this.#options = options;
  }

  /** How many there were, as far as anything differed. */
  get sessions(): number {
    return this.#sessions;
  }

  /** Whether a row that differs is one of theirs, or a sum that they were in. */
  async explains({ side, key }: Differing): Promise<boolean> {
    this.#found ??= this.#find();
    const { sessions, tenants } = await this.#found;
    if (sessions.size === 0) return false;
    const [, table] = side.table;
    if (table === 'parked') return sessions.has(refKey(await parkedRef({ side, key })));
    const tenant = key['tenant'] ?? '';
    const naming = this.#options.group.rowsOf.session?.find(([name]) => name === table);
    // What names no session is made of all that a tenant has.
    if (naming === undefined) return tenants.has(tenant);
    return sessions.has(refKey({ tenant, kind: 'session', id: key[naming[1]] ?? '' }));
  }

  async #find(): Promise<Deleted> {
    const { snapshot, source, group } = this.#options;
    if (!group.kinds.includes('session')) return NONE;
    const refs: AggregateRef[] = [];
    for (let shard = 0; shard < source.shards; shard++) {
      const after = await readCheckpoint(snapshot, group.schema, shard);
      // Nothing was replayed, and there is no row.
      if (after > 0) refs.push(...(await deletedAfter(source, shard, after)));
    }
    const sessions = new Set(refs.map(refKey));
    this.#sessions = sessions.size;
    return { sessions, tenants: new Set(refs.map(({ tenant }) => tenant)) };
  }
}

async function deletedAfter(source: CommitSource, shard: number, after: number): Promise<readonly AggregateRef[]> {
  const kinds = ['session'] as const;
  const end = await source.newest(shard, kinds);
  const deleted: AggregateRef[] = [];
  for await (const batch of followTo(source, { shard, kinds, after, end, buffer: BUFFER })) {
    for (const followed of batch) {
      if (followed.kind !== 'commit') continue;
      const { ref, commit } = followed.stored;
      if (commit.events.some(({ type }) => type === 'session.deleted')) deleted.push(ref);
    }
  }
  return deleted;
}

/** What was parked is found by its place. */
async function parkedRef({ side: { connection, table }, key }: Differing): Promise<AggregateRef> {
  const subject = await connection.oneFirst(sql.type(subjectRow)`
    select subject from ${sql.identifier([...table])}
    where shard = ${Number(key['shard'])} and position = ${Number(key['position'])}`);
  return refOfSubject(subject);
}

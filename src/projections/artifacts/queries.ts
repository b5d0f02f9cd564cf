import { sql } from 'slonik';
import type { CommonQueryMethods, FragmentSqlToken } from 'slonik';
import { z } from 'zod';
import { openDocuments, sealed } from '../documents.ts';
import { reading } from '../read-store/pool.ts';
import type { SealedReads } from '../read-store/tenant-reads.ts';
import { subjectText } from '../sessions/digests.ts';
import type { SessionView } from '../sessions/views.ts';
import type { ArtifactView } from './views.ts';
import { tableOf } from '../schemas.ts';

export type ListedSession = Pick<SessionView, 'id' | 'createdPosition' | 'origin'>;

export interface ArtifactFilter {
  /** As it is now: the rows may still have artifacts of a deleted session that had the same id. */
  readonly session?: ListedSession | undefined;
  /** Whose artifacts are within reach; null: any, including those of no session. */
  readonly subject: string | null;
  /** Agents whose sessions are within reach; null: all. */
  readonly agents: readonly string[] | null;
}

/** Names an object of the store. */
export interface ObjectName {
  readonly tenant: string;
  readonly owner: string;
  readonly name: string;
}

/** Names an artifact; in the order of these names they are walked through. */
export interface ArtifactPlace {
  readonly tenant: string;
  readonly id: string;
}

/** Before the first artifact. */
export const FIRST_PLACE: ArtifactPlace = { tenant: '', id: '' };

const WALK_ROWS = 1_000;

export interface ArtifactQueries {
  /** Oldest first; `after` is the creation time and id of the last one seen. */
  list(
    tenant: string,
    filter: ArtifactFilter,
    page: { limit: number; after: readonly string[] | null },
  ): Promise<readonly ArtifactView[]>;
  /** Those of every session that ever had the id. */
  ofSessionId(tenant: string, sessionId: string, limit: number): Promise<readonly string[]>;
  /** Tenants with an operation that is overdue, at most 100. As fresh as the rows are. */
  overdue(now: string): Promise<readonly string[]>;
  /**
   * Of the next 1,000 artifacts those whose session is not there, as far as the rows tell. A pass reads this many rows
   * and no more, however many exist; `next` is where the following one begins.
   */
  orphans(after: ArtifactPlace): Promise<{ readonly orphans: readonly ArtifactPlace[]; readonly next: ArtifactPlace }>;
  /** Those that no stored artifact names, as far as the rows tell. */
  unnamed(objects: readonly ObjectName[]): Promise<readonly ObjectName[]>;
}

const row = z.object({ id: z.string(), doc: sealed });
const idRow = z.object({ id: z.string() });
const walkRow = z.object({ tenant: z.string(), id: z.string(), orphaned: z.boolean() });
const tenantRow = z.object({ tenant: z.string() });
const nameRow = z.object({ tenant: z.string(), owner: z.string(), name: z.string() });

/**
 * A fork reads through to its ancestors: what they had made when it was forked is listed with its own. Two sets of ids
 * rather than two conditions: neither has an index that serves the other, and all of the tenant's would be read.
 */
function ofSession(tenant: string, { id, createdPosition, origin }: ListedSession): FragmentSqlToken {
  const own = sql.fragment`
    select id from ${tableOf('artifacts', 'artifact')}
    where tenant = ${tenant} and session_id = ${id} and session_position = ${createdPosition} and removed = 0`;
  if (origin === undefined) return sql.fragment`id in (${own})`;
  return sql.fragment`id in (${own}
    union all
    select made.artifact_id
    from json_to_recordset(${JSON.stringify(origin.ancestry)}) as part("sessionId" text, "position" bigint, "index" int)
    join ${tableOf('sessions', 'history_artifact')} made on made.tenant = ${tenant} and made.session_id = part."sessionId"
      and (made.position, made.index) <= (part."position", part."index"))`;
}

interface Deps extends SealedReads {
  /** For this process's own reads. */
  readonly pool: CommonQueryMethods;
}

export function artifactQueries({ pool: own, reads, seals }: Deps): ArtifactQueries {
  return {
    list: async (tenant, { session, subject, agents }, { limit, after }) => {
      const conditions = [sql.fragment`tenant = ${tenant} and removed = 0`];
      if (session !== undefined) conditions.push(ofSession(tenant, session));
      if (subject !== null) {
        await seals.prepare([tenant]);
        conditions.push(sql.fragment`subject = ${seals.digest(tenant, subjectText(subject))}`);
      }
      if (agents !== null) {
        const granted = sql.fragment`agent_id = any(${sql.array([...agents], 'text')})`;
        conditions.push(sql.fragment`(agent_id is null or ${granted})`);
      }
      if (after !== null) conditions.push(sql.fragment`(created_at, id) > (${after[0] ?? ''}, ${after[1] ?? ''})`);
      const rows = await reads.read(
        tenant,
        async (pool) =>
          await pool.any(sql.type(row)`
            select id, doc from ${tableOf('artifacts', 'artifact')} where ${sql.join(conditions, sql.fragment` and `)}
            order by created_at, id limit ${limit}`),
      );
      return await openDocuments<ArtifactView>(
        seals,
        'artifact',
        rows.map(({ id, doc }) => ({ key: [tenant, id], doc })),
      );
    },
    ofSessionId: async (tenant, sessionId, limit) =>
      await reads.read(
        tenant,
        async (pool) =>
          await pool.anyFirst(sql.type(idRow)`
            select id from ${tableOf('artifacts', 'artifact')} where tenant = ${tenant} and session_id = ${sessionId} and removed = 0
            order by created_at, id limit ${limit}`),
      ),
    overdue: async (now) =>
      await reading(
        async () =>
          await own.anyFirst(
            sql.type(
              tenantRow,
            )`select tenant from ${tableOf('artifacts', 'account')} where due_at < ${now} order by due_at limit 100`,
          ),
      ),
    orphans: async (after) => {
      // A value for each row rather than a join: it is looked up by the session's key, never by reading all sessions.
      const rows = await reading(
        async () =>
          await own.any(sql.type(walkRow)`
            select tenant, id, removed = 0 and session_id is not null and session_position is distinct from (
              select s.created_position from ${tableOf('sessions', 'session')} s
              where s.tenant = a.tenant and s.id = a.session_id) as orphaned
            from ${tableOf('artifacts', 'artifact')} a where (tenant, id) > (${after.tenant}, ${after.id})
            order by tenant, id limit ${WALK_ROWS}`),
      );
      const orphans = rows.filter(({ orphaned }) => orphaned).map(({ tenant, id }) => ({ tenant, id }));
      const last = rows.length < WALK_ROWS ? undefined : rows.at(-1);
      return { orphans, next: last === undefined ? FIRST_PLACE : { tenant: last.tenant, id: last.id } };
    },
    unnamed: async (objects) =>
      await reading(
        async () =>
          await own.any(sql.type(nameRow)`
            select tenant, owner, name
            from json_to_recordset(${JSON.stringify(objects)}) as wanted(tenant text, owner text, name text)
            where not exists (
              select from ${tableOf('artifacts', 'object')} o join ${tableOf('artifacts', 'artifact')} a on a.tenant = o.tenant and a.id = o.owner and a.removed = 0
              where o.tenant = wanted.tenant and o.owner = wanted.owner and o.name = wanted.name)`),
      ),
  };
}

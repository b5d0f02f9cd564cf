import { sql } from 'slonik';
import { timestamp } from '../../lib/clock.ts';
import type { Clock } from '../../lib/clock.ts';
import { isUnavailableError, UnavailableError } from '../../lib/unavailable.ts';
import type { FragmentSqlToken } from 'slonik';
import { z } from 'zod';
import type { EventStore } from '../../streams/event-store.ts';
import type { AggregateRef } from '../../streams/subjects.ts';
import { openDocument, openDocuments, sealed } from '../documents.ts';
import type { ProjectionProgress } from '../progress.ts';
import { reading } from '../read-store/pool.ts';
import type { GroupReads, SealedReads } from '../read-store/tenant-reads.ts';
import { SCHEMAS, tableOf } from '../schemas.ts';
import { labelText, subjectText } from './digests.ts';
import { readHistory } from './history.ts';
import type { HistoryPage, HistoryRequest } from './history.ts';
import { callsOf, parkedPositions, readReached } from './parked.ts';
import { topUp } from './top-up.ts';
import { evolveSessionView, placedEvents } from './views.ts';
import type { ModelCallView, SessionView } from './views.ts';

export interface SessionFilter {
  readonly agentId?: string | undefined;
  readonly status?: string | undefined;
  readonly subject?: string | undefined;
  /** Agents whose sessions are within reach; null: all. */
  readonly agents: readonly string[] | null;
  /** All of them must match. */
  readonly labels: readonly { readonly name: string; readonly value: string }[];
}

export interface SessionQueries {
  /**
   * With everything acknowledged before the call; null when there is no such session, or it is not the subject's.
   * Subject null: of any.
   */
  get(ref: AggregateRef, subject: string | null): Promise<SessionView | null>;
  /** As `get`, for callers that only go through the session to its records: a commit that cannot be shown is not an obstacle. */
  reach(ref: AggregateRef, subject: string | null): Promise<SessionView | null>;
  list(
    tenant: string,
    filter: SessionFilter,
    page: { limit: number; after: readonly string[] | null },
  ): Promise<readonly SessionView[]>;
  /** With everything acknowledged before the call. */
  history(ref: AggregateRef, request: HistoryRequest): Promise<HistoryPage>;
  /** Oldest first; `after` is the place of the last one seen. */
  calls(
    ref: AggregateRef,
    page: { limit: number; turnId: string | null; after: { position: number; index: number } | null },
  ): Promise<{ readonly calls: readonly ModelCallView[]; readonly asOf: string }>;
  /** Sessions of a tenant that have a turn; at most 1,000. As fresh as the rows are. */
  active(tenant: string): Promise<readonly string[]>;
}

const sessionRow = z.object({
  doc: sealed.nullable(),
  reached: z.int().nullable(),
  parked: z.array(z.int()),
});
const listRow = z.object({ id: z.string(), doc: sealed });
const callRow = z.object({ id: z.string(), doc: sealed });
const idRow = z.object({ id: z.string() });
interface Deps extends GroupReads {
  readonly store: EventStore;
  readonly progress: ProjectionProgress;
  readonly clock: Clock;
}

export function sessionQueries(deps: Deps): SessionQueries {
  const { pool: own, reads, seals, store, progress, clock } = deps;
  return {
    get: async (ref, subject) => await getSession(deps, ref, { subject, mayLack: false }),
    reach: async (ref, subject) => await getSession(deps, ref, { subject, mayLack: true }),
    list: async (tenant, filter, page) => await listSessions(deps, tenant, { ...filter, ...page }),
    history: async (ref, request) => await readHistory(deps, ref, request),
    calls: async (ref, { limit, turnId, after }) => {
      const shard = store.shardOf(ref);
      const head = await store.head(ref);
      const asOf = timestamp(clock());
      if (!(await progress.reach(SCHEMAS.sessions, shard, head)))
        throw new UnavailableError('database', 'the read models are behind the log');
      const { parked, removed } = await readReached(reads, ref, shard);
      if (parked.length > 0) {
        const commits = await topUp(store, ref, { after: 0, atLeast: head });
        return { calls: callsOf(commits, { limit, turnId, from: after }), asOf };
      }
      const turn = turnId === null ? sql.fragment`true` : sql.fragment`turn_id = ${turnId}`;
      const from =
        after === null ? sql.fragment`true` : sql.fragment`(position, index) > (${after.position}, ${after.index})`;
      const rows = await reads.read(
        ref.tenant,
        async (pool) =>
          await pool.any(sql.type(callRow)`
          select id, doc from ${tableOf('sessions', 'model_call')}
          where tenant = ${ref.tenant} and session_id = ${ref.id} and ${turn} and ${from} and position > ${removed}
            and outcome not in ('pending', 'withheld')
          order by position, index limit ${limit}`),
      );
      const keyed = rows.map(({ id, doc }) => ({ key: [ref.tenant, ref.id, id], doc }));
      const calls = await openDocuments<ModelCallView>(seals, 'model_call', keyed);
      return { calls, asOf };
    },
    active: async (tenant) =>
      await reading(
        async () =>
          await own.anyFirst(sql.type(idRow)`
            select id from ${tableOf('sessions', 'session')} where tenant = ${tenant} and status <> 'idle' order by id limit 1000`),
      ),
  };
}

async function getSession(
  { reads, seals, store, progress }: Deps,
  ref: AggregateRef,
  { subject, mayLack }: { readonly subject: string | null; readonly mayLack: boolean },
): Promise<SessionView | null> {
  const shard = store.shardOf(ref);
  const head = await store.head(ref);
  if (head === 0) return null;
  await seals.prepare([ref.tenant]);
  const whose =
    subject === null ? sql.fragment`true` : sql.fragment`subject = ${seals.digest(ref.tenant, subjectText(subject))}`;
  const found = await reads.read(
    ref.tenant,
    async (pool) =>
      await pool.one(sql.type(sessionRow)`
      select (select doc from ${tableOf('sessions', 'session')} where tenant = ${ref.tenant} and id = ${ref.id} and ${whose}) as doc,
             (select position from ${tableOf('sessions', 'checkpoint')} where shard = ${shard}) as reached,
             ${parkedPositions(ref, shard)} as parked`),
  );
  progress.reached({ schema: SCHEMAS.sessions, shard, position: found.reached ?? 0 });
  const place = { table: 'session', key: [ref.tenant, ref.id] };
  const doc = found.doc === null ? null : await openDocument<SessionView>(seals, place, found.doc);
  const view = await sessionView(store, ref, { ...found, doc, head, mayLack });
  // The rows were asked whose it is; a session that only the log has so far was not.
  return view !== undefined && (subject === null || view.subject === subject) ? view : null;
}

interface FoundSession extends Omit<z.infer<typeof sessionRow>, 'doc'> {
  readonly doc: SessionView | null;
  readonly head: number;
  readonly mayLack: boolean;
}

/** The row with what came after it; the whole of it from the log where the row lacks a commit. */
async function sessionView(store: EventStore, ref: AggregateRef, row: FoundSession): Promise<SessionView | undefined> {
  const viewFrom = async (first: SessionView | undefined, after: number): Promise<SessionView | undefined> => {
    let view = first;
    if (after >= row.head) return view;
    for (const commit of await topUp(store, ref, { after, atLeast: row.head })) {
      for (const { event, place } of placedEvents(commit))
        view = evolveSessionView(view, event, { ...place, id: ref.id });
    }
    return view;
  };
  if (row.parked.length === 0) return await viewFrom(row.doc ?? undefined, row.reached ?? 0);
  try {
    return await viewFrom(undefined, 0);
  } catch (error) {
    if (!row.mayLack || row.doc === null || !isUnavailableError(error, 'database')) throw error;
    return row.doc;
  }
}

async function listSessions(
  { reads, seals }: SealedReads,
  tenant: string,
  {
    agentId,
    status,
    subject,
    agents,
    labels,
    limit,
    after,
  }: SessionFilter & { limit: number; after: readonly string[] | null },
): Promise<readonly SessionView[]> {
  const conditions: FragmentSqlToken[] = [sql.fragment`tenant = ${tenant}`];
  if (agentId !== undefined) conditions.push(sql.fragment`agent_id = ${agentId}`);
  if (agents !== null) conditions.push(sql.fragment`agent_id = any(${sql.array([...agents], 'text')})`);
  if (status !== undefined) conditions.push(sql.fragment`status = ${status}`);
  await seals.prepare([tenant]);
  if (subject !== undefined) conditions.push(sql.fragment`subject = ${seals.digest(tenant, subjectText(subject))}`);
  if (labels.length > 0) {
    const digests = labels.map(({ name, value }) => seals.digest(tenant, labelText(name, value)));
    conditions.push(sql.fragment`labels @> ${sql.array(digests, 'text')}`);
  }
  if (after !== null) conditions.push(sql.fragment`(created_at, id) < (${after[0] ?? ''}, ${after[1] ?? ''})`);
  const rows = await reads.read(
    tenant,
    async (pool) =>
      await pool.any(sql.type(listRow)`
      select id, doc from ${tableOf('sessions', 'session')} where ${sql.join(conditions, sql.fragment` and `)}
      order by created_at desc, id desc limit ${limit}`),
  );
  return await openDocuments<SessionView>(
    seals,
    'session',
    rows.map(({ id, doc }) => ({ key: [tenant, id], doc })),
  );
}

import { sql } from 'slonik';
import type { DatabasePool, FragmentSqlToken } from 'slonik';
import { z } from 'zod';
import { toCanonical } from '../../domain/session/canonical.ts';
import type { CommitPage, EventStore } from '../../streams/event-store.ts';
import type { StoredCommit } from '../../streams/commit.ts';
import type { InheritedPart } from '../../streams/cursor.ts';
import type { AggregateRef } from '../../streams/subjects.ts';
import type { ProjectionProgress } from '../progress.ts';
import { reading } from '../read-store/pool.ts';
import type { TenantReads } from '../read-store/tenant-reads.ts';
import { isUnavailableError, UnavailableError } from '../../lib/unavailable.ts';
import { callsOf, decodable, parkedPositions, readParked, readReached, withLacking } from './parked.ts';
import type { Lacking, ParkedCommit } from './parked.ts';
import { isWithin } from './places.ts';
import { agentOf, evolveSessionView, placedEvents } from './views.ts';
import type { ModelCallView, SessionView } from './views.ts';
import { SCHEMAS, tableOf } from '../schemas.ts';

/** One record of the canonical history; `payload` is JSON text. */
export interface HistoryRecord {
  readonly eventId: string;
  readonly turnId: string | null;
  readonly at: string;
  readonly type: string;
  readonly payload: string;
  readonly shard: number;
  readonly position: number;
  readonly index: number;
  /** Of a fork's record that is in another session (projections/forks). */
  readonly inherited?: InheritedPart | undefined;
}

export type HistoryPlace = Pick<HistoryRecord, 'shard' | 'position' | 'index' | 'inherited'>;

export interface HistoryRequest {
  readonly order: 'asc' | 'desc';
  readonly limit: number;
  /** Exclusive; null: from the beginning, or with `desc` from the end. */
  readonly from: { readonly position: number; readonly index: number } | null;
  /** A delegation id or an agent path. */
  readonly agent: string | null;
  /** Nothing behind this position matters, and the log has it: the newest need not be asked for. */
  readonly upTo?: number;
}

export interface HistoryPage {
  readonly records: readonly HistoryRecord[];
  /** The last record that was read, also when the filter dropped it; null when there was none. */
  readonly examined: HistoryPlace | null;
  readonly hasMore: boolean;
}

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
  doc: z.custom<SessionView>().nullable(),
  reached: z.int().nullable(),
  parked: z.array(z.int()),
});
const listRow = z.object({ doc: z.custom<SessionView>() });
const callRow = z.object({ doc: z.custom<ModelCallView>() });
const idRow = z.object({ id: z.string() });
const historyRow = z.object({
  event_id: z.string(),
  turn_id: z.string().nullable(),
  at: z.string(),
  type: z.string(),
  payload: z.string(),
  shard: z.int(),
  position: z.int(),
  index: z.int(),
});

/** Commits that a page tops itself up with at most; further behind, it waits for the projection instead. */
const TOP_UP_MAX = 2_000;
const TOP_UP_BATCH = 500;

interface Deps {
  /** For what this process asks for itself. */
  readonly pool: DatabasePool;
  readonly reads: TenantReads;
  readonly store: EventStore;
  readonly progress: ProjectionProgress;
}

export function sessionQueries(deps: Deps): SessionQueries {
  const { pool: own, reads, store, progress } = deps;
  return {
    get: async (ref, subject) => await getSession(deps, ref, { subject, mayLack: false }),
    reach: async (ref, subject) => await getSession(deps, ref, { subject, mayLack: true }),
    list: async (tenant, filter, page) => await listSessions(reads, tenant, { ...filter, ...page }),
    history: async (ref, request) => await readHistory(deps, ref, request),
    calls: async (ref, { limit, turnId, after }) => {
      const shard = store.shardOf(ref);
      const head = await store.head(ref);
      const asOf = new Date().toISOString();
      if (!(await progress.reach(SCHEMAS.sessions, shard, head)))
        throw new UnavailableError('database', 'the read models are behind the log');
      const { parked } = await readReached(reads, ref, shard);
      if (parked.length > 0) {
        const commits = await topUp(store, ref, { after: 0, atLeast: head });
        return { calls: callsOf(commits, { limit, turnId, from: after }), asOf };
      }
      const turn = turnId === null ? sql.fragment`true` : sql.fragment`turn_id = ${turnId}`;
      const from =
        after === null ? sql.fragment`true` : sql.fragment`(position, index) > (${after.position}, ${after.index})`;
      const calls = await reads.read(
        ref.tenant,
        async (pool) =>
          await pool.anyFirst(sql.type(callRow)`
          select doc from ${tableOf('sessions', 'model_call')}
          where tenant = ${ref.tenant} and session_id = ${ref.id} and ${turn} and ${from} and doc ->> 'outcome' not in ('pending', 'withheld')
          order by position, index limit ${limit}`),
      );
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
  { reads, store, progress }: Deps,
  ref: AggregateRef,
  { subject, mayLack }: { readonly subject: string | null; readonly mayLack: boolean },
): Promise<SessionView | null> {
  const shard = store.shardOf(ref);
  const head = await store.head(ref);
  if (head === 0) return null;
  const whose = subject === null ? sql.fragment`true` : sql.fragment`subject = ${subject}`;
  const found = await reads.read(
    ref.tenant,
    async (pool) =>
      await pool.one(sql.type(sessionRow)`
      select (select doc from ${tableOf('sessions', 'session')} where tenant = ${ref.tenant} and id = ${ref.id} and ${whose}) as doc,
             (select position from ${tableOf('sessions', 'checkpoint')} where shard = ${shard}) as reached,
             ${parkedPositions(ref, shard)} as parked`),
  );
  progress.reached({ schema: SCHEMAS.sessions, shard, position: found.reached ?? 0 });
  const view = await sessionView(store, ref, { ...found, head, mayLack });
  // The rows were asked whose it is; a session that only the log has so far was not.
  return view !== undefined && (subject === null || view.subject === subject) ? view : null;
}

/** The row with what came after it; the whole of it from the log where the row lacks a commit. */
async function sessionView(
  store: EventStore,
  ref: AggregateRef,
  row: z.infer<typeof sessionRow> & { readonly head: number; readonly mayLack: boolean },
): Promise<SessionView | undefined> {
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

async function topUp(
  store: EventStore,
  ref: AggregateRef,
  range: { after: number; atLeast: number },
): Promise<StoredCommit[]> {
  const commits: StoredCommit[] = [];
  let page: CommitPage;
  let { after } = range;
  do {
    page = await decodable(async () => await store.read(ref, { after, limit: TOP_UP_BATCH, atLeast: range.atLeast }));
    commits.push(...page.commits);
    after = page.commits.at(-1)?.position ?? after;
    if (commits.length > TOP_UP_MAX)
      throw new UnavailableError('database', 'the read models are too far behind the log');
  } while (page.more);
  return commits;
}

async function listSessions(
  reads: TenantReads,
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
  if (subject !== undefined) conditions.push(sql.fragment`subject = ${subject}`);
  for (const label of labels)
    conditions.push(sql.fragment`doc -> 'labels' @> ${JSON.stringify({ [label.name]: label.value })}::jsonb`);
  if (after !== null) conditions.push(sql.fragment`(created_at, id) < (${after[0] ?? ''}, ${after[1] ?? ''})`);
  return await reads.read(
    tenant,
    async (pool) =>
      await pool.anyFirst(sql.type(listRow)`
      select doc from ${tableOf('sessions', 'session')} where ${sql.join(conditions, sql.fragment` and `)}
      order by created_at desc, id desc limit ${limit}`),
  );
}

/**
 * Rows up to the checkpoint from the read model, what came after it from the log: the page has every event that any
 * node acknowledged before the read began, without waiting for the projection.
 */
async function readHistory(
  { reads, store, progress }: Deps,
  ref: AggregateRef,
  request: HistoryRequest,
): Promise<HistoryPage> {
  const shard = store.shardOf(ref);
  const head = await neededOf(store, ref, request);
  const { reached, parked } = await readReached(reads, ref, shard);
  progress.reached({ schema: SCHEMAS.sessions, shard, position: reached });
  const unread = head > reached ? await topUp(store, ref, { after: reached, atLeast: head }) : [];
  // The session was deleted and opened again since: what the rows still have belongs to the one before.
  const deletedAt = unread.findLastIndex(({ commit }) => commit.events.some(({ type }) => type === 'session.deleted'));
  const ahead = aheadRecords(unread.slice(deletedAt + 1));
  const inRows = deletedAt >= 0 ? 0 : reached;
  const fromLog = ahead.filter((one) => isWithin(one.record, request) && isOf(one, request.agent));
  const ofRows = parked.filter((position) => position <= inRows);
  const lacking = lackingOf(await readParked(store, ref, ofRows), request);
  // One more than asked for tells whether there is more; one of the newest tells what a filter has dropped.
  const wanted = request.limit + 1;
  const newerFirst = request.order === 'desc';
  const inOrder = (newerFirst ? fromLog.toReversed() : fromLog).map(({ record }) => record);
  const rows =
    newerFirst && inOrder.length >= wanted
      ? []
      : await historyRows(reads, ref, {
          ...{ ...request, limit: wanted - (newerFirst ? inOrder.length : 0) },
          ...{ upTo: inRows, since: lacking.deletedAt },
        });
  const found = newerFirst ? [...inOrder, ...rows] : [...rows, ...inOrder];
  const records = withLacking(found, lacking, request);
  const page = records.slice(0, request.limit);
  if (records.length > request.limit) return { records: page, examined: page.at(-1) ?? null, hasMore: true };
  if (request.agent === null) return { records: page, examined: page.at(-1) ?? null, hasMore: false };
  // With a filter, a page that came to the end has examined everything up to there, whatever it kept.
  const end = await endOf({ reads, ref, reached: inRows, order: request.order }, ahead);
  return {
    records: page,
    examined: end !== null && isWithin(end, request) ? end : (page.at(-1) ?? null),
    hasMore: false,
  };
}

/** How far the log has to be read for a page that has everything acknowledged before it. */
async function neededOf(store: EventStore, ref: AggregateRef, { upTo }: HistoryRequest): Promise<number> {
  return upTo ?? (await store.head(ref));
}

/** The last record of the whole history in an order. */
async function endOf(
  { reads, ref, reached, order }: { reads: TenantReads; ref: AggregateRef; reached: number; order: 'asc' | 'desc' },
  ahead: readonly AheadRecord[],
): Promise<HistoryRecord | null> {
  const newest = ahead.at(-1)?.record;
  if (order === 'asc' && newest !== undefined) return newest;
  const outermost = { order: order === 'asc' ? 'desc' : 'asc', limit: 1, from: null, agent: null } as const;
  const [row] = await historyRows(reads, ref, { ...outermost, upTo: reached, since: 0 });
  return row ?? ahead[0]?.record ?? null;
}

/** What the rows lack of a session because it could not be projected. */
function lackingOf(commits: readonly ParkedCommit[], request: HistoryRequest): Lacking<HistoryRecord> {
  const stored = commits.flatMap((one) => (one.stored === null ? [] : [one.stored]));
  const deleted = stored.findLast(({ commit }) => commit.events.some(({ type }) => type === 'session.deleted'));
  const deletedAt = deleted?.position ?? 0;
  const records = aheadRecords(stored.filter(({ position }) => position > deletedAt))
    .filter((one) => isWithin(one.record, request) && isOf(one, request.agent))
    .map(({ record }) => record);
  const unreadable = commits.flatMap((one) => (one.stored === null && one.position > deletedAt ? [one.position] : []));
  return { records, unreadable, deletedAt };
}

/** A record that the rows do not have yet, and the agent used as a tool that it belongs to. */
interface AheadRecord {
  readonly record: HistoryRecord;
  readonly agent: { readonly path: string; readonly delegationId: string } | null;
}

function isOf({ agent }: AheadRecord, wanted: string | null): boolean {
  return wanted === null || agent?.delegationId === wanted || agent?.path === wanted;
}

function aheadRecords(commits: readonly StoredCommit[]): AheadRecord[] {
  return commits.flatMap((stored) =>
    placedEvents(stored).flatMap(({ event, place }) => {
      const canonical = toCanonical(event);
      if (canonical === null) return [];
      const { type, turnId, payload } = canonical;
      const eventId = stored.commit.events[place.index]?.id ?? '';
      const record = { eventId, turnId, type, payload: JSON.stringify(payload), ...place };
      return [{ record, agent: agentOf(event) }];
    }),
  );
}

async function historyRows(
  reads: TenantReads,
  ref: AggregateRef,
  { order, limit, from, agent, upTo, since }: HistoryRequest & { readonly upTo: number; readonly since: number },
): Promise<HistoryRecord[]> {
  const conditions = [sql.fragment`tenant = ${ref.tenant} and session_id = ${ref.id} and position <= ${upTo}`];
  if (since > 0) conditions.push(sql.fragment`position > ${since}`);
  if (from !== null) {
    const place = sql.fragment`(${from.position}, ${from.index})`;
    conditions.push(
      order === 'asc' ? sql.fragment`(position, index) > ${place}` : sql.fragment`(position, index) < ${place}`,
    );
  }
  if (agent !== null) conditions.push(sql.fragment`(delegation_id = ${agent} or agent_path = ${agent})`);
  const direction = order === 'asc' ? sql.fragment`position, index` : sql.fragment`position desc, index desc`;
  const rows = await reads.read(
    ref.tenant,
    async (pool) =>
      await pool.any(sql.type(historyRow)`
      select event_id, turn_id, at, type, payload, shard, position, index from ${tableOf('sessions', 'history')}
      where ${sql.join(conditions, sql.fragment` and `)} order by ${direction} limit ${limit}`),
  );
  return rows.map(({ event_id: eventId, turn_id: turnId, ...row }) => ({ eventId, turnId, ...row }));
}

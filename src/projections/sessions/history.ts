import type { EventStore } from '../../streams/event-store.ts';
import type { AggregateRef } from '../../streams/subjects.ts';
import type { ProjectionProgress } from '../progress.ts';
import type { SealedReads } from '../read-store/tenant-reads.ts';
import { SCHEMAS } from '../schemas.ts';
import { historyRows } from './history-rows.ts';
import { isOf, recordsOf } from './history-records.ts';
import type { HistoryPlace, HistoryRecord } from './views.ts';
import type { AgentRecord } from './history-records.ts';
import { readParked, readReached, withLacking } from './parked.ts';
import type { Lacking, ParkedCommit } from './parked.ts';
import { isWithin } from './places.ts';
import { topUp } from './top-up.ts';

export interface HistoryRequest {
  readonly order: 'asc' | 'desc';
  readonly limit: number;
  /** Exclusive; null: from the beginning, or with `desc` from the end. */
  readonly from: { readonly position: number; readonly index: number } | null;
  /** A delegation id or an agent path. */
  readonly agent: string | null;
  /** Nothing beyond this position matters, and the log has it: the newest need not be queried. */
  readonly upTo?: number;
}

export interface HistoryPage {
  readonly records: readonly HistoryRecord[];
  /** The last record that was looked at, also when the filter dropped it; null when there was none. */
  readonly examined: HistoryPlace | null;
  readonly hasMore: boolean;
}

interface HistoryDeps extends SealedReads {
  readonly store: EventStore;
  readonly progress: ProjectionProgress;
}

/**
 * Rows up to the checkpoint from the read model, what came after it from the log: the page has every event that any
 * node acknowledged before the read began, without waiting for the projection.
 */
export async function readHistory(deps: HistoryDeps, ref: AggregateRef, request: HistoryRequest): Promise<HistoryPage> {
  const { reads, store, progress } = deps;
  const shard = store.shardOf(ref);
  const head = await neededOf(store, ref, request);
  const { reached, parked, removed } = await readReached(reads, ref, shard);
  progress.reached({ schema: SCHEMAS.sessions, shard, position: reached });
  const unread = head > reached ? await topUp(store, ref, { after: reached, atLeast: head }) : [];
  // The session was deleted and opened again since: what the rows still have belongs to its predecessor.
  const deletedAt = unread.findLastIndex(({ commit }) => commit.events.some(({ type }) => type === 'session.deleted'));
  const ahead = recordsOf(unread.slice(deletedAt + 1));
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
      : await historyRows(deps, ref, {
          ...{ ...request, limit: wanted - (newerFirst ? inOrder.length : 0) },
          ...{ upTo: inRows, since: Math.max(lacking.deletedAt, removed) },
        });
  const found = newerFirst ? [...inOrder, ...rows] : [...rows, ...inOrder];
  const records = withLacking(found, lacking, request);
  const page = records.slice(0, request.limit);
  if (records.length > request.limit) return { records: page, examined: page.at(-1) ?? null, hasMore: true };
  if (request.agent === null) return { records: page, examined: page.at(-1) ?? null, hasMore: false };
  // With a filter, a page that reached the end has examined everything up to there, whatever it kept.
  const end = await endOf(deps, { ref, reached: inRows, removed, order: request.order }, ahead);
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
  deps: HistoryDeps,
  { ref, reached, removed, order }: { ref: AggregateRef; reached: number; removed: number; order: 'asc' | 'desc' },
  ahead: readonly AgentRecord[],
): Promise<HistoryRecord | null> {
  const newest = ahead.at(-1)?.record;
  if (order === 'asc' && newest !== undefined) return newest;
  const outermost = { order: order === 'asc' ? 'desc' : 'asc', limit: 1, from: null, agent: null } as const;
  const [row] = await historyRows(deps, ref, { ...outermost, upTo: reached, since: removed });
  return row ?? ahead[0]?.record ?? null;
}

/** What the rows lack of a session because it could not be projected. */
function lackingOf(commits: readonly ParkedCommit[], request: HistoryRequest): Lacking<HistoryRecord> {
  const stored = commits.flatMap((one) => (one.stored === null ? [] : [one.stored]));
  const deleted = stored.findLast(({ commit }) => commit.events.some(({ type }) => type === 'session.deleted'));
  const deletedAt = deleted?.position ?? 0;
  const records = recordsOf(stored.filter(({ position }) => position > deletedAt))
    .filter((one) => isWithin(one.record, request) && isOf(one, request.agent))
    .map(({ record }) => record);
  const unreadable = commits.flatMap((one) => (one.stored === null && one.position > deletedAt ? [one.position] : []));
  return { records, unreadable, deletedAt };
}

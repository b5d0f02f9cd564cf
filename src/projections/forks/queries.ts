import type { ForkOrigin } from '../../domain/session/fork-events.ts';
import type { EventPlace, InheritedPart } from '../../streams/cursor.ts';
import type { AggregateRef } from '../../streams/subjects.ts';
import type { HistoryPlace, HistoryRecord } from '../sessions/views.ts';
import type { HistoryPage, HistoryRequest } from '../sessions/history.ts';
import type { SessionQueries } from '../sessions/queries.ts';

/** A session whose history is read: a fork's begins in others (docs/decisions/0013). */
export interface ReadSession {
  readonly createdPosition: number;
  readonly origin?: ForkOrigin | null | undefined;
}

/** One session's share of a history. */
interface Part {
  readonly ref: AggregateRef;
  /** Null: the session's own. */
  readonly inherited: InheritedPart | null;
  /** The last event that belongs to it, inclusive; null: all there is. */
  readonly end: { readonly position: number; readonly index: number } | null;
  /** The last record of an inherited part, where it is known. */
  readonly last: HistoryPlace | null;
}

/**
 * A page of a history, part by part: at most one page of each session that it reads through, however long they are.
 * What an ancestor recorded after the fork is not part of it.
 */
export async function readThrough(
  queries: Pick<SessionQueries, 'history'>,
  { ref, session }: { readonly ref: AggregateRef; readonly session: ReadSession },
  request: Omit<HistoryRequest, 'from'> & { readonly from: EventPlace | null },
): Promise<HistoryPage> {
  const parts = partsOf(ref, session);
  const inOrder = request.order === 'asc' ? parts : parts.toReversed();
  const begin = request.from === null ? 0 : inOrder.findIndex((part) => isIn(part, request.from));
  const records: HistoryRecord[] = [];
  let examined: HistoryPlace | null = null;
  for (const [i, part] of inOrder.slice(begin).entries()) {
    const from = i === 0 ? request.from : null;
    const page = await readPart(queries, part, { ...request, from, limit: request.limit - records.length });
    records.push(...page.records);
    examined = page.examined ?? examined;
    if (page.hasMore) return { records, examined, hasMore: true };
  }
  return { records, examined, hasMore: false };
}

function partsOf(ref: AggregateRef, { createdPosition, origin }: ReadSession): Part[] {
  const ancestry = origin?.ancestry ?? [];
  const inherited = ancestry.map(({ sessionId, shard, position, index }, ancestor): Part => {
    const newest = origin?.last?.ancestor === ancestor ? origin.last : null;
    const part = { ancestor, createdPosition };
    const last = newest === null ? null : { shard, position: newest.position, index: newest.index };
    return { ref: { ...ref, id: sessionId }, inherited: part, end: { position, index }, last };
  });
  return [...inherited, { ref, inherited: null, end: null, last: null }];
}

function isIn({ inherited }: Part, place: EventPlace | null): boolean {
  return (inherited?.ancestor ?? null) === (place?.inherited?.ancestor ?? null);
}

async function readPart(
  { history }: Pick<SessionQueries, 'history'>,
  { ref, inherited, end, last }: Part,
  request: HistoryRequest,
): Promise<HistoryPage> {
  if (inherited === null || end === null) return await history(ref, request);
  const behind = { position: end.position, index: end.index + 1 };
  const from = request.from ?? (request.order === 'desc' ? behind : null);
  // One more than asked for: what the ancestor has beyond the end must not count as more of this history.
  const page = await history(ref, { ...request, from, limit: request.limit + 1, upTo: end.position });
  const isPast = ({ position, index }: HistoryPlace): boolean =>
    position > end.position || (position === end.position && index > end.index);
  const within = page.records.filter((record) => !isPast(record)).map((record) => ({ ...record, inherited }));
  const records = within.slice(0, request.limit);
  if (within.length > request.limit) return { records, examined: records.at(-1) ?? null, hasMore: true };
  // Whatever was read beyond the end is not part of this history: it ends with its last record.
  const seen = page.examined !== null && isPast(page.examined) ? (last ?? records.at(-1) ?? null) : page.examined;
  return { records, examined: seen === null ? null : { ...seen, inherited }, hasMore: false };
}

import { sql } from 'slonik';
import type { FragmentSqlToken } from 'slonik';
import { z } from 'zod';
import { LAST_INDEX } from '../../domain/kernel/decision.ts';
import type { StoredCommit } from '../../streams/commit.ts';
import { UndecodableCommitError } from '../../streams/codec.ts';
import type { EventStore } from '../../streams/event-store.ts';
import { subjectOf } from '../../streams/subjects.ts';
import type { AggregateRef } from '../../streams/subjects.ts';
import type { TenantReads } from '../read-store/tenant-reads.ts';
import { ParkedCommitError } from '../unavailable.ts';
import { removedUpTo } from './removal.ts';
import { inOrder, isWithin } from './places.ts';
import type { Behind, Place } from './places.ts';
import { callIdOf, evolveCallView, placedEvents } from './views.ts';
import type { ModelCallView } from './views.ts';
import { tableOf } from '../schemas.ts';

/** Parked commits of one session that a page is completed with; with more of them it is not answered. */
const PARKED_MAX = 100;

/** How far the rows reach, and which of the session's commits up to there they lack. */
export interface Reached {
  readonly reached: number;
  /** Positions, rising. */
  readonly parked: readonly number[];
  /** The rows up to here are of a deleted session of the same id, and are being removed; 0: none are. */
  readonly removed: number;
}

const reachedRow = z.object({ reached: z.int(), parked: z.array(z.int()), removed: z.int() });

/** In one statement: what is parked a moment later is beyond the position. */
export async function readReached(reads: TenantReads, ref: AggregateRef, shard: number): Promise<Reached> {
  return await reads.read(
    ref.tenant,
    async (pool) =>
      await pool.one(sql.type(reachedRow)`
        select coalesce((select position from ${tableOf('sessions', 'checkpoint')} where shard = ${shard}), 0) as reached,
          ${parkedPositions(ref, shard)} as parked, ${removedUpTo(ref)} as removed`),
  );
}

/** Positions of a session's parked commits, as an expression. */
export function parkedPositions(ref: AggregateRef, shard: number): FragmentSqlToken {
  return sql.fragment`(
    select coalesce(json_agg(position order by position), '[]'::json) from (
      select position from ${tableOf('sessions', 'parked')} where shard = ${shard} and subject = ${subjectOf(ref)}
      order by position limit ${PARKED_MAX + 1}) as lacking)`;
}

/** A parked commit as the log has it; null: it cannot be decoded. */
export interface ParkedCommit {
  readonly position: number;
  readonly stored: StoredCommit | null;
}

/** Reads parked commits from the log. Those that have been erased since are left out. */
export async function readParked(
  store: EventStore,
  ref: AggregateRef,
  positions: readonly number[],
): Promise<readonly ParkedCommit[]> {
  if (positions.length > PARKED_MAX) throw incomplete();
  const found: ParkedCommit[] = [];
  for (const position of positions) {
    try {
      const { commits } = await store.read(ref, { after: position - 1, limit: 1, atLeast: position });
      const [stored] = commits;
      if (stored?.position === position) found.push({ position, stored });
    } catch (error) {
      if (!(error instanceof UndecodableCommitError)) throw error;
      found.push({ position, stored: null });
    }
  }
  return found;
}

/** What rows lack that could not be projected. */
export interface Lacking<T> {
  readonly records: readonly T[];
  /** Positions of what cannot be shown at all. */
  readonly unreadable: readonly number[];
  /** The rows up to here are of an earlier session of the same id; 0: none are. */
  readonly deletedAt: number;
}

/**
 * The records of a page and the one after it, with those that their rows lack. What is beyond is not part of this page.
 * @throws ParkedCommitError when the page covers a commit that cannot be shown
 */
export function withLacking<T extends Place>(
  found: readonly T[],
  { records, unreadable }: Lacking<T>,
  page: Behind & { readonly limit: number },
): readonly T[] {
  if (records.length === 0 && unreadable.length === 0) return found;
  const sign = page.order === 'asc' ? 1 : -1;
  const known = new Set(found.map(({ position, index }) => `${position}.${index}`));
  const whole = [...found, ...records.filter(({ position, index }) => !known.has(`${position}.${index}`))]
    .toSorted((a, b) => sign * inOrder(a, b))
    .slice(0, page.limit + 1);
  // A page with more after it ends before the first of those.
  const behind = whole.length > page.limit ? whole.at(-1) : undefined;
  const isCovered = (position: number): boolean =>
    isWithin({ position, index: page.order === 'asc' ? LAST_INDEX : 0 }, page) &&
    (behind === undefined || sign * (position - behind.position) < 0);
  if (unreadable.some(isCovered)) throw incomplete();
  return whole;
}

/** The ledger of a session, made of all its commits. */
export function callsOf(
  commits: readonly StoredCommit[],
  page: { readonly limit: number; readonly turnId: string | null; readonly from: Place | null },
): ModelCallView[] {
  const calls = new Map<string, ModelCallView>();
  let agentId = '';
  for (const commit of commits) {
    for (const { event, place } of placedEvents(commit)) {
      if (event.type === 'session.created') ({ agentId } = event.data);
      if (event.type === 'session.deleted') calls.clear();
      const callId = callIdOf(event);
      if (callId === null) continue;
      const view = evolveCallView(calls.get(callId), event, { ...place, sessionId: commit.ref.id, agentId });
      if (view !== undefined) calls.set(callId, view);
    }
  }
  const ended = [...calls.values()].filter(({ outcome }) => outcome !== 'pending' && outcome !== 'withheld');
  const of = ended.filter(({ turnId }) => page.turnId === null || turnId === page.turnId);
  return of
    .filter((call) => isWithin(call, { order: 'asc', from: page.from }))
    .toSorted(inOrder)
    .slice(0, page.limit);
}

/** Turns a commit that cannot be decoded into an unavailable answer. @throws ParkedCommitError */
export async function decodable<T>(read: () => Promise<T>): Promise<T> {
  try {
    return await read();
  } catch (cause) {
    if (cause instanceof UndecodableCommitError) throw incomplete({ cause });
    throw cause;
  }
}

/** The refusal of an answer that would lack something without saying so. */
export function incomplete(options?: ErrorOptions): ParkedCommitError {
  return new ParkedCommitError('a commit of this session cannot be shown', options);
}

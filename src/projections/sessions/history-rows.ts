import { sql } from 'slonik';
import { z } from 'zod';
import { inTurns } from '../../lib/in-turns.ts';
import type { AggregateRef } from '../../streams/subjects.ts';
import { sealed } from '../documents.ts';
import type { SealedReads } from '../read-store/tenant-reads.ts';
import { tableOf } from '../schemas.ts';
import { agentText } from './digests.ts';
import { isOf, recordsOf } from './history-records.ts';
import type { HistoryRecord } from './views.ts';
import { decodable } from './parked.ts';
import { isWithin } from './places.ts';
import type { Behind } from './places.ts';

/** Which records of a session's rows are wanted. */
export interface RowsRequest extends Behind {
  readonly limit: number;
  /** A delegation id or an agent path; null: any. */
  readonly agent: string | null;
  /** Positions, inclusive and exclusive. */
  readonly upTo: number;
  readonly since: number;
}

const row = z.object({ shard: z.int(), position: z.int(), commit: sealed });

/**
 * Records from the rows, at most this many. Each row has at least one, so as many rows are always enough; of those, the
 * database returns only the ones whose records are needed. With an agent, a row may have records of others beside it.
 */
export async function historyRows(
  { reads, seals }: SealedReads,
  ref: AggregateRef,
  request: RowsRequest,
): Promise<HistoryRecord[]> {
  if (request.limit <= 0) return [];
  await seals.prepare([ref.tenant]);
  const { order, limit, from, agent, upTo, since } = request;
  const conditions = [
    sql.fragment`tenant = ${ref.tenant} and session_id = ${ref.id} and position <= ${upTo} and position > ${since}`,
  ];
  // The commit of the place itself may have more records after it.
  if (from !== null)
    conditions.push(
      order === 'asc' ? sql.fragment`position >= ${from.position}` : sql.fragment`position <= ${from.position}`,
    );
  const inAgent =
    agent === null
      ? sql.fragment`true`
      : sql.fragment`position = any(array(
          select position from ${tableOf('sessions', 'history_agent')}
          where ${sql.join(conditions, sql.fragment` and `)} and agent = ${seals.digest(ref.tenant, agentText(agent))}
          order by position ${order === 'asc' ? sql.fragment`asc` : sql.fragment`desc`} limit ${limit + 1}))`;
  const counted =
    from === null ? sql.fragment`records` : sql.fragment`case position when ${from.position} then 0 else records end`;
  const direction = order === 'asc' ? sql.fragment`position` : sql.fragment`position desc`;
  const rows = await reads.read(
    ref.tenant,
    async (pool) =>
      await pool.any(sql.type(row)`
        select shard, position, commit from (
          select shard, position, commit, records, sum(${counted}) over (order by ${direction}) - ${counted} as before
          from ${tableOf('sessions', 'history')}
          where ${sql.join(conditions, sql.fragment` and `)} and ${inAgent}
          order by ${direction} limit ${limit + 1}) as of_page
        where ${agent === null ? sql.fragment`before < ${limit}` : sql.fragment`true`} order by ${direction}`),
  );
  const records: HistoryRecord[] = [];
  for await (const { commit: bytes, ...place } of inTurns(rows, ref.tenant)) {
    const commit = await decodable(async () => await seals.openCommit(ref, bytes));
    if (commit === null) continue;
    const found = recordsOf([{ ref, ...place, hash: '', commit }])
      .filter((one) => isWithin(one.record, request) && isOf(one, agent))
      .map(({ record }) => record);
    records.push(...(order === 'asc' ? found : found.toReversed()));
  }
  return records.slice(0, limit);
}

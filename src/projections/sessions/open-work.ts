import { sql } from 'slonik';
import type { DatabasePool } from 'slonik';
import { z } from 'zod';
import { reading } from '../read-store/pool.ts';
import { tableOf } from '../schemas.ts';

/** What is open over all sessions of the installation; a little behind the log at most. */
export interface OpenWork {
  /** Open turns by state; a state that no turn is in is absent. */
  readonly turns: Readonly<Record<string, number>>;
  /** Running turns with nothing recorded since the given time. */
  readonly silent: number;
  readonly pendingActions: number;
  /** When the oldest of them was offered; null: there is none. */
  readonly oldestActionAt: string | null;
  readonly openInteractions: number;
  readonly oldestInteractionAt: string | null;
}

const row = z.object({
  turns: z.record(z.string(), z.int()),
  silent: z.int(),
  pendingActions: z.int(),
  oldestActionAt: z.string().nullable(),
  openInteractions: z.int(),
  oldestInteractionAt: z.string().nullable(),
});

/**
 * One statement over partial indexes that hold open work alone: its cost depends on what is open, not on history.
 * @param silentSince RFC 3339
 * @throws UnavailableError (database)
 */
export async function openWork(pool: DatabasePool, silentSince: string): Promise<OpenWork> {
  return await reading(
    async () =>
      await pool.one(sql.type(row)`
        select turn.*, action.*, interaction.*
        from
          (select coalesce(json_object_agg(status, count), '{}') as turns, coalesce(sum(silent), 0)::int as silent
            from (select status, count(*), count(*) filter (where status = 'running' and updated_at < ${silentSince}) as silent
              from ${tableOf('sessions', 'session')} where status <> 'idle' group by status) as by_status) as turn,
          (select count(*)::int as "pendingActions", min(created_at) as "oldestActionAt"
            from ${tableOf('sessions', 'action')} where status = 'pending') as action,
          (select count(*)::int as "openInteractions", min(created_at) as "oldestInteractionAt"
            from ${tableOf('sessions', 'interaction')} where status = 'open') as interaction`),
  );
}

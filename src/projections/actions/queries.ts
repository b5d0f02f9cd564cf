import { sql } from 'slonik';
import type { DatabasePool } from 'slonik';
import { z } from 'zod';
import { reading } from '../read-store/pool.ts';

/** What an executor is shown of an action (wire contract, section 9). */
export interface ActionView {
  readonly actionId: string;
  readonly sessionId: string;
  readonly turnId: string;
  readonly agentId: string;
  readonly kind: 'tool' | 'hook';
  readonly toolName?: string;
  readonly hook?: string;
  readonly callId: string;
  readonly input: unknown;
  readonly status: 'pending' | 'claimed';
  readonly generation: number;
  readonly subject?: string;
  readonly info?: Readonly<Record<string, unknown>>;
  readonly createdAt: string;
  readonly agent?: { readonly id: string; readonly path: string; readonly delegationId: string };
}

/** Finds actions across sessions, in a table of the group `sessions`. What becomes of one is decided on the fold of its session. */
export interface ActionIndex {
  /**
   * Those of an agent that wait for an executor, oldest first; a little behind the log at most.
   * @throws ReadStoreUnavailableError
   */
  pending(tenant: string, agentId: string, limit: number): Promise<readonly ActionView[]>;
}

const row = z.object({ doc: z.custom<ActionView>() });

export function actionIndex(pool: DatabasePool): ActionIndex {
  return {
    pending: async (tenant, agentId, limit) =>
      await reading(
        async () =>
          await pool.anyFirst(sql.type(row)`
            select doc from sessions.action
            where tenant = ${tenant} and agent_id = ${agentId} and status = 'pending'
            order by created_at, id limit ${limit}`),
      ),
  };
}

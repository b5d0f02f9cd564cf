import { sql } from 'slonik';
import { z } from 'zod';
import { openDocuments, sealed } from '../documents.ts';
import { reading } from '../read-store/pool.ts';
import type { GroupReads } from '../read-store/tenant-reads.ts';
import { subjectText } from '../sessions/digests.ts';
import type { ExecutorRef, OpenActionsSeed } from './open-actions.ts';
import type { InteractionView } from './views.ts';
import { tableOf } from '../schemas.ts';

/** Of an action that has not ended; as the index of the table has them. */
const OPEN_STATUSES = ['pending', 'claimed', 'asked', 'uncertain'] as const;

export interface InteractionFilter {
  readonly agentId?: string | undefined;
  /** The subject whose sessions are searched; absent: any. */
  readonly subject?: string | undefined;
  /** Agents whose sessions are within reach; null: all. */
  readonly agents: readonly string[] | null;
  /** Questions about budgets: as the others, not at all, or these alone. */
  readonly budgets: 'too' | 'none' | 'only';
}

/**
 * Finds actions and interactions across sessions, in tables of the group `sessions`. What becomes of one is decided on
 * the fold of its session.
 */
export interface ActionIndex {
  /**
   * Every action that has not ended, and up to where the rows lack nothing.
   * @throws UnavailableError (database)
   */
  open(): Promise<OpenActionsSeed>;
  /**
   * The session of an action of this agent, ended or not; null: the agent has no such action.
   * @throws UnavailableError (database)
   */
  sessionOf(executor: ExecutorRef, actionId: string): Promise<string | null>;
  /**
   * What people have to answer, oldest first; `after` is the creation time and id of the last one seen.
   * @throws UnavailableError (database)
   */
  interactions(
    tenantId: string,
    filter: InteractionFilter,
    page: { readonly limit: number; readonly after: readonly string[] | null },
  ): Promise<readonly InteractionView[]>;
}

const openRow = z.object({
  positions: z.record(z.string(), z.int()).nullable(),
  actions: z
    .array(
      z.object({
        tenantId: z.string(),
        agentId: z.string(),
        actionId: z.string(),
        sessionId: z.string(),
        generation: z.int(),
        status: z.enum(OPEN_STATUSES),
        createdAt: z.string(),
      }),
    )
    .nullable(),
});
const sessionRow = z.object({ session_id: z.string() });
const interactionRow = z.object({ id: z.string(), session_id: z.string(), doc: sealed });

const BUDGETS = {
  too: sql.fragment`true`,
  none: sql.fragment`not of_budget`,
  only: sql.fragment`of_budget`,
};

export function actionIndex({ pool: own, reads, seals }: GroupReads): ActionIndex {
  return {
    open: async () =>
      await reading(async () => {
        // One statement: rows and positions are of the same moment. The checkpoint has passed what is parked.
        const { positions, actions } = await own.one(sql.type(openRow)`
          select (select json_object_agg(shard, least(position,
                (select min(parked.position) - 1 from ${tableOf('sessions', 'parked')} as parked where parked.shard = checkpoint.shard)))
              from ${tableOf('sessions', 'checkpoint')} as checkpoint) as positions,
            (select json_agg(json_build_object('tenantId', tenant, 'agentId', agent_id, 'actionId', id,
                'sessionId', session_id, 'generation', generation, 'status', status, 'createdAt', created_at))
              from ${tableOf('sessions', 'action')} where status in ('pending', 'claimed', 'asked', 'uncertain')) as actions`);
        return {
          positions: new Map(Object.entries(positions ?? {}).map(([shard, position]) => [Number(shard), position])),
          actions: actions ?? [],
        };
      }),
    sessionOf: async ({ tenantId, agentId }, actionId) =>
      await reads.read(
        tenantId,
        async (pool) =>
          await pool.maybeOneFirst(sql.type(sessionRow)`
            select session_id from ${tableOf('sessions', 'action')}
            where tenant = ${tenantId} and id = ${actionId} and agent_id = ${agentId}`),
      ),
    interactions: async (tenantId, { agentId, subject, agents, budgets }, { limit, after }) => {
      const conditions = [sql.fragment`tenant = ${tenantId} and status = 'open'`, BUDGETS[budgets]];
      if (agentId !== undefined) conditions.push(sql.fragment`agent_id = ${agentId}`);
      if (subject !== undefined) {
        await seals.prepare([tenantId]);
        conditions.push(sql.fragment`subject = ${seals.digest(tenantId, subjectText(subject))}`);
      }
      if (agents !== null) conditions.push(sql.fragment`session_agent = any(${sql.array([...agents], 'text')})`);
      if (after !== null) conditions.push(sql.fragment`(created_at, id) > (${after[0] ?? ''}, ${after[1] ?? ''})`);
      const rows = await reads.read(
        tenantId,
        async (pool) =>
          await pool.any(sql.type(interactionRow)`
            select id, session_id, doc from ${tableOf('sessions', 'interaction')} where ${sql.join(conditions, sql.fragment` and `)}
            order by created_at, id limit ${limit}`),
      );
      return await openDocuments<InteractionView>(
        seals,
        'interaction',
        rows.map(({ id, session_id: sessionId, doc }) => ({ key: [tenantId, sessionId, id], doc })),
      );
    },
  };
}

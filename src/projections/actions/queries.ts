import { sql } from 'slonik';
import type { DatabasePool } from 'slonik';
import { z } from 'zod';
import { reading } from '../read-store/pool.ts';
import type { ActionView, InteractionView } from './views.ts';

/** An executor of a tenant: its actions are those of its agent. */
export interface ExecutorRef {
  readonly tenantId: string;
  readonly agentId: string;
}

export interface InteractionFilter {
  readonly agentId?: string | undefined;
  /** Whose session asks; absent: anybody's. */
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
   * Those of an agent that wait for an executor, oldest first; a little behind the log at most.
   * @throws ReadStoreUnavailableError
   */
  pending(executor: ExecutorRef, limit: number): Promise<readonly ActionView[]>;
  /**
   * Which of these executors have an action that waits for them, in one question however many they are.
   * @throws ReadStoreUnavailableError
   */
  withWork(executors: readonly ExecutorRef[]): Promise<readonly ExecutorRef[]>;
  /**
   * The session of an action of this agent, over or not; null: there is none of its own.
   * @throws ReadStoreUnavailableError
   */
  sessionOf(executor: ExecutorRef, actionId: string): Promise<string | null>;
  /**
   * What people have to answer, oldest first; `after` is the creation time and id of the last one seen.
   * @throws ReadStoreUnavailableError
   */
  interactions(
    tenantId: string,
    filter: InteractionFilter,
    page: { readonly limit: number; readonly after: readonly string[] | null },
  ): Promise<readonly InteractionView[]>;
}

const actionRow = z.object({ doc: z.custom<ActionView>() });
const executorRow = z.object({ tenantId: z.string(), agentId: z.string() });
const sessionRow = z.object({ session_id: z.string() });
const interactionRow = z.object({ doc: z.custom<InteractionView>() });

const BUDGETS = {
  too: sql.fragment`true`,
  none: sql.fragment`doc -> 'budgetId' is null`,
  only: sql.fragment`doc -> 'budgetId' is not null`,
};

export function actionIndex(pool: DatabasePool): ActionIndex {
  return {
    pending: async ({ tenantId, agentId }, limit) =>
      await reading(
        async () =>
          await pool.anyFirst(sql.type(actionRow)`
            select doc from sessions.action
            where tenant = ${tenantId} and agent_id = ${agentId} and status = 'pending'
            order by created_at, id limit ${limit}`),
      ),
    withWork: async (executors) => {
      if (executors.length === 0) return [];
      const asked = JSON.stringify(executors);
      return await reading(
        async () =>
          await pool.any(sql.type(executorRow)`
            select "tenantId", "agentId" from json_to_recordset(${asked}) as asked("tenantId" text, "agentId" text)
            where exists (select from sessions.action
              where tenant = "tenantId" and agent_id = "agentId" and status = 'pending')`),
      );
    },
    sessionOf: async ({ tenantId, agentId }, actionId) =>
      await reading(
        async () =>
          await pool.maybeOneFirst(sql.type(sessionRow)`
            select session_id from sessions.action
            where tenant = ${tenantId} and id = ${actionId} and agent_id = ${agentId}`),
      ),
    interactions: async (tenantId, { agentId, subject, agents, budgets }, { limit, after }) => {
      const conditions = [sql.fragment`tenant = ${tenantId} and status = 'open'`, BUDGETS[budgets]];
      if (agentId !== undefined) conditions.push(sql.fragment`agent_id = ${agentId}`);
      if (subject !== undefined) conditions.push(sql.fragment`subject = ${subject}`);
      if (agents !== null) conditions.push(sql.fragment`session_agent = any(${sql.array([...agents], 'text')})`);
      if (after !== null) conditions.push(sql.fragment`(created_at, id) > (${after[0] ?? ''}, ${after[1] ?? ''})`);
      return await reading(
        async () =>
          await pool.anyFirst(sql.type(interactionRow)`
            select doc from sessions.interaction where ${sql.join(conditions, sql.fragment` and `)}
            order by created_at, id limit ${limit}`),
      );
    },
  };
}

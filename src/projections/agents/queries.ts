import { sql } from 'slonik';
import { z } from 'zod';
import type { TenantReads } from '../read-store/tenant-reads.ts';
import type { AgentView } from './views.ts';
import { tableOf } from '../schemas.ts';

/** One saved version of an agent. */
export interface AgentVersionView {
  readonly agentId: string;
  readonly version: number;
  readonly manifestHash: string;
  readonly implementationVersion: string | null;
  readonly createdAt: string;
}

const agentRow = z.object({ doc: z.custom<AgentView>() });
const versionRow = z.object({ doc: z.custom<AgentVersionView>() });

export interface AgentQueries {
  /** By id; `after` is the last id seen; `agents` names those within reach, null: all. Archived ones are left out. */
  list(
    tenant: string,
    page: { limit: number; after: string | null; agents: readonly string[] | null },
  ): Promise<readonly AgentView[]>;
  get(tenant: string, id: string): Promise<AgentView | null>;
  /** Oldest first. */
  versions(tenant: string, id: string): Promise<readonly AgentVersionView[]>;
}

/** Saved versions that one request shows at most. */
const VERSIONS_MAX = 1_000;

export function agentQueries({ reads }: { readonly reads: TenantReads }): AgentQueries {
  return {
    list: async (tenant, { limit, after, agents }) =>
      await reads.read(
        tenant,
        async (pool) =>
          await pool.anyFirst(sql.type(agentRow)`
          select doc from ${tableOf('agents', 'agent')} where tenant = ${tenant} and id > ${after ?? ''} and (doc ->> 'archived')::boolean is not true
            and ${agents === null ? sql.fragment`true` : sql.fragment`id = any(${sql.array([...agents], 'text')})`}
          order by id limit ${limit}`),
      ),
    get: async (tenant, id) =>
      await reads.read(
        tenant,
        async (pool) =>
          await pool.maybeOneFirst(
            sql.type(agentRow)`select doc from ${tableOf('agents', 'agent')} where tenant = ${tenant} and id = ${id}`,
          ),
      ),
    versions: async (tenant, id) =>
      await reads
        .read(
          tenant,
          async (pool) =>
            await pool.anyFirst(sql.type(versionRow)`
          select doc - 'manifest' as doc from ${tableOf('agents', 'agent_version')} where tenant = ${tenant} and agent_id = ${id} order by version desc limit ${VERSIONS_MAX}`),
        )
        .then((rows) => rows.toReversed()),
  };
}

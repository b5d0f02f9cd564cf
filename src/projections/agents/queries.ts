import { sql } from 'slonik';
import { z } from 'zod';
import { openDocument, openDocuments, sealed } from '../documents.ts';
import type { SealedReads } from '../read-store/tenant-reads.ts';
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

const agentRow = z.object({ id: z.string(), doc: sealed });
const docRow = z.object({ doc: sealed });
const versionRow = z.object({ version: z.int(), doc: sealed });

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

export function agentQueries({ reads, seals }: SealedReads): AgentQueries {
  return {
    list: async (tenant, { limit, after, agents }) => {
      const rows = await reads.read(
        tenant,
        async (pool) =>
          await pool.any(sql.type(agentRow)`
          select id, doc from ${tableOf('agents', 'agent')} where tenant = ${tenant} and id > ${after ?? ''} and not archived
            and ${agents === null ? sql.fragment`true` : sql.fragment`id = any(${sql.array([...agents], 'text')})`}
          order by id limit ${limit}`),
      );
      return await openDocuments<AgentView>(
        seals,
        'agent',
        rows.map(({ id, doc }) => ({ key: [tenant, id], doc })),
      );
    },
    get: async (tenant, id) => {
      const doc = await reads.read(
        tenant,
        async (pool) =>
          await pool.maybeOneFirst(
            sql.type(docRow)`select doc from ${tableOf('agents', 'agent')} where tenant = ${tenant} and id = ${id}`,
          ),
      );
      return doc === null ? null : await openDocument<AgentView>(seals, { table: 'agent', key: [tenant, id] }, doc);
    },
    versions: async (tenant, id) => {
      const rows = await reads.read(
        tenant,
        async (pool) =>
          await pool.any(sql.type(versionRow)`
          select version, doc from ${tableOf('agents', 'agent_version')} where tenant = ${tenant} and agent_id = ${id}
          order by version desc limit ${VERSIONS_MAX}`),
      );
      return await openDocuments<AgentVersionView>(
        seals,
        'agent_version',
        rows.toReversed().map(({ version, doc }) => ({ key: [tenant, id, String(version)], doc })),
      );
    },
  };
}

import { sql } from 'slonik';
import type { CommonQueryMethods } from 'slonik';
import { z } from 'zod';
import { reading } from '../read-store/pool.ts';
import { tableOf } from '../schemas.ts';

/** Names a workspace, or a change in one (domain/sandbox/changes.ts). */
export interface WorkspaceName {
  readonly tenant: string;
  readonly name: string;
}

export interface UseRow {
  readonly workspace: string;
  readonly sandboxId: string;
  /** Null: the sandbox itself. */
  readonly sessionId: string | null;
}

/** A place in the walk through the uses of all tenants. */
export interface UsePlace extends UseRow {
  readonly tenant: string;
}

/** For this process's own reads: what may be removed from the object store. */
export interface WorkspaceQueries {
  /** Those that no sandbox has recorded, as far as the rows tell. */
  unrecorded(changes: readonly WorkspaceName[]): Promise<readonly WorkspaceName[]>;
  /** Who may name what is in a workspace, as far as the rows tell. */
  usesOf(workspace: WorkspaceName): Promise<readonly UseRow[]>;
  /** Whether commits could not be projected: the rows lack what they say. */
  hasParked(): Promise<boolean>;
  /** A pass over the next 1,000 uses, as far as the rows tell. */
  walk(after: UsePlace, createdBefore: string): Promise<Walked>;
}

export interface Walked {
  /** Sandboxes that are there, made before a time, whose session is not. */
  readonly orphans: readonly { readonly tenant: string; readonly sandboxId: string }[];
  /** Workspaces whose sandbox is not there. */
  readonly left: readonly WorkspaceName[];
  /** Where the following pass begins. */
  readonly next: UsePlace;
}

/** Before the first use. */
export const FIRST_USE: UsePlace = { tenant: '', workspace: '', sandboxId: '', sessionId: null };

const WALK_ROWS = 1_000;
const nameRow = z.object({ tenant: z.string(), name: z.string() });
const useRow = z.object({ workspace: z.string(), sandbox_id: z.string(), session_id: z.string() });
const walkRow = useRow.extend({ tenant: z.string(), orphaned: z.boolean(), gone: z.boolean() });

export function workspaceQueries({ pool }: { readonly pool: CommonQueryMethods }): WorkspaceQueries {
  return {
    unrecorded: async (changes) =>
      await reading(
        async () =>
          await pool.any(sql.type(nameRow)`
            select tenant, name from json_to_recordset(${JSON.stringify(changes)}) as wanted(tenant text, name text)
            where not exists (
              select from ${tableOf('sandboxes', 'manifest')} m where m.tenant = wanted.tenant and m.name = wanted.name)`),
      ),
    usesOf: async ({ tenant, name }) => {
      const rows = await reading(
        async () =>
          await pool.any(sql.type(useRow)`
            select workspace, sandbox_id, session_id from ${tableOf('sandboxes', 'workspace_use')}
            where tenant = ${tenant} and workspace = ${name}`),
      );
      return rows.map(toUse);
    },
    hasParked: async () =>
      await reading(
        async () =>
          await pool.oneFirst(
            sql.type(z.object({ any: z.boolean() }))`
              select exists (select from ${tableOf('sandboxes', 'parked')}) as any`,
          ),
      ),
    walk: async ({ tenant, workspace, sandboxId, sessionId }, createdBefore) => {
      // Values for each row rather than joins: each is looked up by its key, never by reading all.
      const rows = await reading(
        async () =>
          await pool.any(sql.type(walkRow)`
            select tenant, workspace, sandbox_id, session_id, session_id = '' and made is null as gone,
              coalesce(session_id <> '' and made < ${createdBefore} and not exists (
                select from ${tableOf('sessions', 'session')} s where s.tenant = used.tenant and s.id = used.session_id), false) as orphaned
            from (
              select tenant, workspace, sandbox_id, session_id, (
                select created_at from ${tableOf('sandboxes', 'sandbox')} s
                where s.tenant = u.tenant and s.id = u.sandbox_id and s.removed = 0) as made
              from ${tableOf('sandboxes', 'workspace_use')} u
              where (tenant, workspace, sandbox_id, session_id) > (${tenant}, ${workspace}, ${sandboxId}, ${sessionId ?? ''})
              order by tenant, workspace, sandbox_id, session_id limit ${WALK_ROWS}) as used
            order by tenant, workspace, sandbox_id, session_id`),
      );
      const found = rows.filter(({ orphaned }) => orphaned);
      const last = rows.length < WALK_ROWS ? undefined : rows.at(-1);
      return {
        orphans: found.map((row) => ({ tenant: row.tenant, sandboxId: row.sandbox_id })),
        left: rows.filter(({ gone }) => gone).map((row) => ({ tenant: row.tenant, name: row.workspace })),
        next: last === undefined ? FIRST_USE : { tenant: last.tenant, ...toUse(last) },
      };
    },
  };
}

function toUse({ workspace, sandbox_id: sandboxId, session_id }: z.infer<typeof useRow>): UseRow {
  return { workspace, sandboxId, sessionId: session_id === '' ? null : session_id };
}

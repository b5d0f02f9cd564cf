import { ROSTER_ID } from '../../domain/sandbox/roster.ts';
import type { SandboxEvent } from '../../domain/sandbox/events.ts';
import { statusOf } from '../../domain/sandbox/shown.ts';
import { eventsOf } from '../../streams/commit.ts';
import type { StoredCommit } from '../../streams/commit.ts';
import { DocumentBatch, upsert } from '../documents.ts';
import type { DocumentTable } from '../documents.ts';
import type { ProjectionGroup } from '../projection.ts';
import { SCHEMAS } from '../schemas.ts';
import { addExecs, removeExecs } from './sums.ts';
import type { ExecRow } from './sums.ts';
import { evolveSandboxView, recordedChange, usesOf } from './views.ts';
import type { SandboxView } from './views.ts';

const table: DocumentTable<SandboxView> = {
  name: 'sandbox',
  keyColumns: ['tenant', 'id'],
  columns: {
    state: 'text',
    created_at: 'text',
    created_position: 'bigint',
    removed: 'int',
  },
  columnsOf: (view) => ({
    state: statusOf(view),
    created_at: view.createdAt,
    created_position: view.createdPosition,
    removed: view.removed ? 1 : 0,
  }),
};

/** Sandboxes, the manifests that they have had, and what their calls took, one by one and in sums. */
export const sandboxesProjection: ProjectionGroup = {
  name: 'sandboxes',
  schema: SCHEMAS.sandboxes,
  kinds: ['sandbox'],
  tables: ['sandbox', 'manifest', 'workspace_use', 'exec', 'usage'],
  rowsOf: {
    sandbox: [
      ['sandbox', 'id'],
      ['manifest', 'owner'],
      ['workspace_use', 'sandbox_id'],
      ['exec', 'sandbox_id'],
    ],
  },
  apply: async (transaction, target, commits) => {
    const { schema } = target;
    const own = commits.filter(({ ref }) => ref.id !== ROSTER_ID);
    const sandboxes = new DocumentBatch(table, target);
    for (const { ref } of own) sandboxes.want({ tenant: ref.tenant, id: ref.id });
    await sandboxes.load(transaction);
    const [manifests, uses, execs] = [new Map<string, object>(), new Map<string, object>(), new Map<string, ExecRow>()];
    for (const stored of own) {
      const { ref, commit, position } = stored;
      for (const [index, event] of eventsOf<SandboxEvent>(commit).entries()) {
        const meta = { at: commit.at, position, index };
        const key = { tenant: ref.tenant, id: ref.id };
        sandboxes.evolve(key, position, (view) => {
          const next = evolveSandboxView(view, event, meta);
          for (const use of usesOf(next, event))
            uses.set(JSON.stringify([ref.tenant, use]), { tenant: ref.tenant, ...use });
          return next;
        });
        const name = recordedChange(event);
        const { tenant, id: owner } = ref;
        if (name !== null) manifests.set(`${tenant}/${owner}/${name}`, { tenant, owner, name, position });
        if (event.type === 'sandbox.executed') execs.set(`${tenant}/${owner}/${position}`, execRow(stored, event.data));
      }
    }
    await sandboxes.save(transaction);
    await upsert(transaction, {
      table: [schema, 'manifest'],
      key: ['tenant', 'owner', 'name'],
      columns: { tenant: 'text', owner: 'text', name: 'text', position: 'bigint' },
      rows: [...manifests.values()],
    });
    await upsert(transaction, {
      table: [schema, 'workspace_use'],
      key: ['tenant', 'workspace', 'sandbox_id', 'session_id'],
      columns: { tenant: 'text', workspace: 'text', sandbox_id: 'text', session_id: 'text' },
      rows: [...uses.values()],
    });
    await addExecs(transaction, { schema, shard: commits[0]?.shard ?? 0 }, [...execs.values()]);
  },
  uncount: removeExecs,
};

/** One call a commit. */
function execRow(
  { ref, commit, position }: StoredCommit,
  { sessionId, turnId, agentId, exec }: Extract<SandboxEvent, { type: 'sandbox.executed' }>['data'],
): ExecRow {
  const { cpuMs, durationMs, bytesWritten } = exec;
  return {
    ...{ tenant: ref.tenant, sandbox_id: ref.id, position },
    ...{ session_id: sessionId, turn_id: turnId, agent_id: agentId ?? '', at: commit.at },
    ...{ duration_ms: durationMs, cpu_ms: cpuMs, bytes_written: bytesWritten },
  };
}

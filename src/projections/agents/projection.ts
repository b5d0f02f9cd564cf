import { sql } from 'slonik';
import type { AgentEvent } from '../../domain/agent/events.ts';
import { eventsOf } from '../../streams/commit.ts';
import { DocumentBatch, sealDocument, upsert } from '../documents.ts';
import type { DocumentTable } from '../documents.ts';
import type { ProjectionGroup } from '../projection.ts';
import { SCHEMAS } from '../schemas.ts';
import { tally } from '../tallies.ts';
import { evolveAgentView } from './views.ts';
import type { AgentView } from './views.ts';

const table: DocumentTable<AgentView> = {
  name: 'agent',
  keyColumns: ['tenant', 'id'],
  columns: { archived: 'boolean' },
  columnsOf: ({ archived }) => ({ archived }),
};

const COUNTS = ['agents'];

export const agentsProjection: ProjectionGroup = {
  name: 'agents',
  schema: SCHEMAS.agents,
  kinds: ['agent'],
  tables: ['agent', 'agent_version', 'tally'],
  rowsOf: {
    agent: [
      ['agent', 'id'],
      ['agent_version', 'agent_id'],
    ],
  },
  uncount: async (transaction, { schema, shard }, ref) => {
    const there = sql.unsafe`select from ${sql.identifier([schema, 'agent'])} where tenant = ${ref.tenant} and id = ${ref.id}`;
    if (!(await transaction.exists(there))) return;
    await tally(transaction, { schema, shard, counts: COUNTS }, [{ tenant: ref.tenant, by: { agents: -1 } }]);
  },
  apply: async (transaction, target, commits) => {
    const agents = new DocumentBatch(table, target);
    const versions = new Map<string, object>();
    for (const { ref } of commits) agents.want({ tenant: ref.tenant, id: ref.id });
    await agents.load(transaction);
    for (const { ref, commit, position } of commits) {
      for (const event of eventsOf<AgentEvent>(commit)) {
        const key = { tenant: ref.tenant, id: ref.id };
        agents.evolve(key, position, (view) => evolveAgentView(view, event, commit.at));
        if (event.type !== 'agent.saved') continue;
        const { version, manifestHash, implementationVersion } = event.data;
        const view = { agentId: ref.id, version, manifestHash, implementationVersion, createdAt: commit.at };
        const place = { table: 'agent_version', key: [ref.tenant, ref.id, String(version)] };
        const doc = sealDocument(target.seals, place, view);
        if (doc === null) continue;
        const row = { tenant: ref.tenant, agent_id: ref.id, version, doc };
        versions.set(`${ref.tenant}\0${ref.id}\0${version}`, row);
      }
    }
    const changes = await agents.save(transaction);
    const begun = changes.filter(({ before }) => before === undefined);
    const counted = { schema: target.schema, shard: commits[0]?.shard ?? 0, counts: COUNTS };
    await tally(
      transaction,
      counted,
      begun.map(({ key }) => ({ tenant: key['tenant'] ?? '', by: { agents: 1 } })),
    );
    await upsert(transaction, {
      table: [target.schema, 'agent_version'],
      key: ['tenant', 'agent_id', 'version'],
      columns: { tenant: 'text', agent_id: 'text', version: 'int', doc: 'bytea' },
      rows: [...versions.values()],
    });
  },
};

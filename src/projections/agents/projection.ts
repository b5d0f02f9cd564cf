import type { AgentEvent } from '../../domain/agent/events.ts';
import { eventsOf } from '../../streams/commit.ts';
import { DocumentBatch, upsert } from '../documents.ts';
import type { DocumentTable } from '../documents.ts';
import type { ProjectionGroup } from '../projection.ts';
import { SCHEMAS } from '../schemas.ts';
import { evolveAgentView } from './views.ts';
import type { AgentView } from './views.ts';

const table: DocumentTable<AgentView> = {
  name: 'agent',
  keyColumns: ['tenant', 'id'],
  columns: {},
  columnsOf: () => ({}),
};

export const agentsProjection: ProjectionGroup = {
  name: 'agents',
  schema: SCHEMAS.agents,
  kinds: ['agent'],
  tables: ['agent', 'agent_version'],
  rowsOf: {
    agent: [
      ['agent', 'id'],
      ['agent_version', 'agent_id'],
    ],
  },
  apply: async (transaction, schema, commits) => {
    const agents = new DocumentBatch(table, schema);
    const versions = new Map<string, object>();
    for (const { ref } of commits) agents.want({ tenant: ref.tenant, id: ref.id });
    await agents.load(transaction);
    for (const { ref, commit, position } of commits) {
      for (const event of eventsOf<AgentEvent>(commit)) {
        const key = { tenant: ref.tenant, id: ref.id };
        agents.evolve(key, position, (view) => evolveAgentView(view, event, commit.at));
        if (event.type !== 'agent.saved') continue;
        const { version, manifestHash, implementationVersion, manifest } = event.data;
        const doc = { agentId: ref.id, version, manifestHash, implementationVersion, createdAt: commit.at, manifest };
        const row = { tenant: ref.tenant, agent_id: ref.id, id: String(version), version, doc };
        versions.set(`${ref.tenant}\0${ref.id}\0${version}`, row);
      }
    }
    await agents.save(transaction);
    await upsert(transaction, {
      table: [schema, 'agent_version'],
      key: ['tenant', 'agent_id', 'id'],
      columns: { tenant: 'text', agent_id: 'text', id: 'text', version: 'int', doc: 'jsonb' },
      rows: [...versions.values()],
    });
  },
};

import type { AgentEvent } from '../../domain/agent/events.ts';
import type { Manifest } from '../../domain/agent/manifest.ts';
import { DocumentBatch, upsert } from '../documents.ts';
import type { DocumentTable } from '../documents.ts';
import type { ProjectionGroup } from '../projection.ts';

/** An agent definition as the routes show it. */
export interface AgentView {
  readonly agentId: string;
  readonly version: number;
  readonly manifestHash: string;
  readonly implementationVersion: string | null;
  readonly name: string | null;
  readonly description: string | null;
  readonly archived: boolean;
  readonly createdAt: string;
  readonly updatedAt: string;
  readonly manifest: Manifest;
}

const table: DocumentTable<AgentView> = { name: 'agent', keyColumns: ['tenant', 'id'], columns: {}, columnsOf: () => ({}) };

function evolveView(view: AgentView | undefined, event: AgentEvent, at: string): AgentView | undefined {
  if (event.type === 'agent.archived') return view === undefined ? undefined : { ...view, archived: true, updatedAt: at };
  const { manifest, ...saved } = event.data;
  return {
    ...saved,
    name: manifest.name ?? null,
    description: manifest.description ?? null,
    archived: false,
    createdAt: view?.createdAt ?? at,
    updatedAt: at,
    manifest,
  };
}

export const agentsProjection: ProjectionGroup = {
  name: 'agents',
  kinds: ['agent'],
  tables: ['agent', 'agent_version'],
  apply: async (transaction, schema, commits) => {
    const agents = new DocumentBatch(table, schema);
    const versions = new Map<string, object>();
    for (const { ref } of commits) agents.want({ tenant: ref.tenant, id: ref.id });
    await agents.load(transaction);
    for (const { ref, commit } of commits) {
      const key = { tenant: ref.tenant, id: ref.id };
      for (const stored of commit.events) {
        // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- checked against its schema when it was appended
        const event = stored as unknown as AgentEvent;
        const view = evolveView(agents.get(key), event, commit.at);
        if (view === undefined) continue;
        agents.set(key, view);
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

import type { AgentEvent } from '../../domain/agent/events.ts';
import type { Manifest } from '../../domain/agent/manifest.ts';
import { eventsOf } from '../../streams/commit.ts';
import type { EventStore } from '../../streams/event-store.ts';
import type { AggregateRef } from '../../streams/subjects.ts';

/** A version as it was saved. */
export interface SavedAgentVersion {
  readonly agentId: string;
  readonly version: number;
  readonly manifestHash: string;
  readonly implementationVersion: string | null;
  readonly createdAt: string;
  readonly manifest: Manifest;
}

const READ_LIMIT = 500;

/** From the log, which keeps each manifest that was saved; null: the agent has no such version. */
export async function readAgentVersion(
  store: Pick<EventStore, 'head' | 'read'>,
  ref: AggregateRef,
  version: number,
): Promise<SavedAgentVersion | null> {
  const atLeast = await store.head(ref);
  for (let [after, more] = [0, atLeast > 0]; more;) {
    const page = await store.read(ref, { after, limit: READ_LIMIT, atLeast });
    for (const { commit, position } of page.commits) {
      const saved = eventsOf<AgentEvent>(commit).find(
        (event) => event.type === 'agent.saved' && event.data.version === version,
      );
      if (saved?.type === 'agent.saved') return { ...saved.data, createdAt: commit.at };
      after = position;
    }
    more = page.more;
  }
  return null;
}

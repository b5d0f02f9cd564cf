import { toCanonical } from '../../domain/session/canonical.ts';
import type { StoredCommit } from '../../streams/commit.ts';
import { agentOf, placedEvents } from './views.ts';
import type { HistoryRecord } from './views.ts';

/** A record, and the agent used as a tool that it belongs to. */
export interface AgentRecord {
  readonly record: HistoryRecord;
  readonly agent: { readonly path: string; readonly delegationId: string } | null;
}

export function isOf({ agent }: AgentRecord, wanted: string | null): boolean {
  return wanted === null || agent?.delegationId === wanted || agent?.path === wanted;
}

/** The records of commits, in their order. */
export function recordsOf(commits: readonly StoredCommit[]): AgentRecord[] {
  return commits.flatMap((stored) =>
    placedEvents(stored).flatMap(({ event, place }) => {
      const canonical = toCanonical(event);
      if (canonical === null) return [];
      const { type, turnId, payload } = canonical;
      const eventId = stored.commit.events[place.index]?.id ?? '';
      const record = { eventId, turnId, type, payload: JSON.stringify(payload), ...place };
      return [{ record, agent: agentOf(event) }];
    }),
  );
}

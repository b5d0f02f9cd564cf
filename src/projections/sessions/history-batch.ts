import type { DatabaseTransactionConnection } from 'slonik';
import { isCanonical } from '../../domain/session/canonical.ts';
import type { ProjectedCommit, RowSeals } from '../../streams/row-seals.ts';
import { upsert } from '../documents.ts';
import type { ProjectionTarget } from '../projection.ts';
import { agentText } from './digests.ts';
import { agentOf } from './views.ts';
import type { PlacedEvent } from './views.ts';

const OF_SESSION = { tenant: 'text', session_id: 'text', position: 'bigint' };

/**
 * The history of sessions as rows: one for each commit that has records of it, in the log's own sealed bytes. Nothing
 * is encoded twice, and without the tenant's key the rows are unreadable. Beside them is what a page selects by: which
 * agents used as tools a commit concerns, and which artifacts it made.
 */
export class HistoryBatch {
  readonly #schema: string;
  readonly #seals: RowSeals;
  readonly #commits: object[] = [];
  readonly #agents = new Map<string, object>();
  readonly #artifacts: object[] = [];

  constructor({ schema, seals }: ProjectionTarget) {
    this.#schema = schema;
    this.#seals = seals;
  }

  /** @param placed all events of the commit */
  add(stored: ProjectedCommit, placed: readonly PlacedEvent[]): void {
    const { ref, shard, position } = stored;
    const events = placed.filter(({ event }) => isCanonical(event.type));
    if (events.length === 0) return;
    const commit = this.#seals.sealedCommit(stored);
    if (commit === null) return;
    const key = { tenant: ref.tenant, session_id: ref.id, position };
    this.#commits.push({ ...key, shard, records: events.length, commit });
    for (const { event, place } of events) {
      if (event.type === 'artifact.created')
        this.#artifacts.push({ ...key, index: place.index, artifact_id: event.data.artifactId });
      const of = agentOf(event);
      if (of === null) continue;
      for (const name of [of.delegationId, of.path]) {
        const agent = this.#seals.digest(ref.tenant, agentText(name));
        this.#agents.set(`${ref.tenant}\0${ref.id}\0${position}\0${agent}`, { ...key, agent });
      }
    }
  }

  async save(transaction: DatabaseTransactionConnection): Promise<void> {
    await upsert(transaction, {
      table: [this.#schema, 'history'],
      key: ['tenant', 'session_id', 'position'],
      columns: { ...OF_SESSION, shard: 'int', records: 'int', commit: 'bytea' },
      rows: this.#commits,
    });
    await upsert(transaction, {
      table: [this.#schema, 'history_agent'],
      key: ['tenant', 'session_id', 'agent', 'position'],
      columns: { ...OF_SESSION, agent: 'text' },
      rows: [...this.#agents.values()],
    });
    await upsert(transaction, {
      table: [this.#schema, 'history_artifact'],
      key: ['tenant', 'session_id', 'position', 'index'],
      columns: { ...OF_SESSION, index: 'int', artifact_id: 'text' },
      rows: this.#artifacts,
    });
  }
}

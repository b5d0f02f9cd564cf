import { sql } from 'slonik';
import type { DatabaseTransactionConnection, FragmentSqlToken } from 'slonik';
import type { SessionEvent } from '../../domain/session/events.ts';
import { toCanonical } from '../../domain/session/canonical.ts';
import type { StoredCommit } from '../../streams/commit.ts';
import { DocumentBatch, upsert } from '../documents.ts';
import type { DocumentTable } from '../documents.ts';
import type { ProjectionGroup } from '../projection.ts';
import { callIdOf, placedEvents, evolveCallView, evolveSessionView, evolveTurnView } from './views.ts';
import type { EventPlaceInTime, ModelCallView, SessionView, TurnView } from './views.ts';

const sessionTable: DocumentTable<SessionView> = {
  name: 'session',
  keyColumns: ['tenant', 'id'],
  columns: { agent_id: 'text', subject: 'text', status: 'text', created_at: 'text' },
  columnsOf: ({ agentId, subject, status, createdAt }) => ({
    agent_id: agentId,
    subject,
    status,
    created_at: createdAt,
  }),
};

const turnTable: DocumentTable<TurnView> = {
  name: 'turn',
  keyColumns: ['tenant', 'session_id', 'id'],
  columns: {},
  columnsOf: () => ({}),
};

const callTable: DocumentTable<ModelCallView> = {
  name: 'model_call',
  keyColumns: ['tenant', 'session_id', 'id'],
  columns: { turn_id: 'text', position: 'bigint', index: 'int' },
  columnsOf: ({ turnId, position, index }) => ({ turn_id: turnId, position, index }),
};

const HISTORY_COLUMNS = {
  tenant: 'text',
  session_id: 'text',
  position: 'bigint',
  index: 'int',
  shard: 'int',
  event_id: 'text',
  turn_id: 'text',
  type: 'text',
  at: 'text',
  payload: 'text',
  delegation_id: 'text',
  agent_path: 'text',
} as const;

/** Sessions, their canonical history, turns, model calls and receipts: one pass over the commits of sessions. */
export const sessionsProjection: ProjectionGroup = {
  name: 'sessions',
  kinds: ['session'],
  tables: ['session', 'history', 'turn', 'model_call', 'receipt', 'action'],
  apply: async (transaction, schema, commits) => {
    const batch = new SessionBatch(schema);
    for (const commit of commits) batch.want(commit);
    await batch.sessions.load(transaction);
    await batch.turns.load(transaction);
    await batch.calls.load(transaction);
    for (const commit of commits) batch.apply(commit);
    await batch.sessions.save(transaction);
    await batch.turns.save(transaction);
    await batch.calls.save(transaction);
    const key = ['tenant', 'session_id', 'position', 'index'];
    await upsert(transaction, { table: [schema, 'history'], key, columns: HISTORY_COLUMNS, rows: batch.history });
    await upsert(transaction, {
      table: [schema, 'receipt'],
      key: ['tenant', 'session_id', 'id'],
      columns: { tenant: 'text', session_id: 'text', id: 'text', doc: 'jsonb' },
      rows: batch.receipts,
    });
    await removeDeleted(transaction, schema, batch.deleted);
  },
};

interface Deleted {
  readonly tenant: string;
  readonly id: string;
  /** Of the deletion: what came after it belongs to another session of the same id. */
  readonly position: number;
}

/** How the rows of each table say which session they are of, and how new they are. */
const DELETED_FROM = [
  ['session', 'id', 'applied'],
  ['history', 'session_id', 'position'],
  ['turn', 'session_id', 'applied'],
  ['model_call', 'session_id', 'applied'],
] as const;

/** After the rows of the batch are written: a session may have been deleted and opened again within it. */
async function removeDeleted(
  transaction: DatabaseTransactionConnection,
  schema: string,
  deleted: readonly Deleted[],
): Promise<void> {
  if (deleted.length === 0) return;
  for (const [table, idColumn, newness] of DELETED_FROM) {
    const column = sql.identifier(['old', newness]);
    await removeOlder(transaction, { table: [schema, table], idColumn, position: sql.fragment`${column}`, deleted });
  }
  const position = sql.fragment`(old.doc ->> 'position')::bigint`;
  await removeOlder(transaction, { table: [schema, 'receipt'], idColumn: 'session_id', position, deleted });
}

async function removeOlder(
  transaction: DatabaseTransactionConnection,
  from: {
    readonly table: readonly [schema: string, name: string];
    readonly idColumn: string;
    readonly position: FragmentSqlToken;
    readonly deleted: readonly Deleted[];
  },
): Promise<void> {
  await transaction.query(sql.unsafe`
    delete from ${sql.identifier([...from.table])} as old
    using json_to_recordset(${JSON.stringify(from.deleted)}) as gone(tenant text, id text, position bigint)
    where old.tenant = gone.tenant and ${sql.identifier(['old', from.idColumn])} = gone.id
      and ${from.position} <= gone.position`);
}

class SessionBatch {
  readonly sessions: DocumentBatch<SessionView>;
  readonly turns: DocumentBatch<TurnView>;
  readonly calls: DocumentBatch<ModelCallView>;
  readonly history: object[] = [];
  readonly receipts: object[] = [];
  readonly deleted: Deleted[] = [];

  constructor(schema: string) {
    this.sessions = new DocumentBatch(sessionTable, schema);
    this.turns = new DocumentBatch(turnTable, schema);
    this.calls = new DocumentBatch(callTable, schema);
  }

  want(stored: StoredCommit): void {
    const { tenant, id } = stored.ref;
    this.sessions.want({ tenant, id });
    const events = placedEvents(stored);
    for (const { event } of events) {
      // Most turns begin and end within one batch: what begins here need not be looked for.
      if (event.type === 'turn.started') this.turns.begin({ tenant, session_id: id, id: event.data.turnId });
      if (event.type === 'model.requested') this.calls.begin({ tenant, session_id: id, id: event.data.callId });
    }
    for (const { event } of events) {
      const turnId = turnIdOf(event);
      if (turnId !== null) this.turns.want({ tenant, session_id: id, id: turnId });
      const callId = callIdOf(event);
      if (callId !== null) this.calls.want({ tenant, session_id: id, id: callId });
    }
  }

  apply(stored: StoredCommit): void {
    const { ref, commit, position } = stored;
    for (const { event, place } of placedEvents(stored)) {
      this.#applyEvent(stored, event, place);
      this.#record(stored, event, place);
    }
    if (commit.receipt === undefined) return;
    const doc = { ...commit.receipt, position, index: 0 };
    this.receipts.push({ tenant: ref.tenant, session_id: ref.id, id: commit.receipt.key, doc });
  }

  #applyEvent({ ref, position }: StoredCommit, event: SessionEvent, place: EventPlaceInTime): void {
    const { tenant, id } = ref;
    if (event.type === 'session.deleted') this.deleted.push({ tenant, id, position });
    this.sessions.evolve({ tenant, id }, position, (view) => evolveSessionView(view, event, { ...place, id }));
    const turnId = turnIdOf(event);
    if (turnId !== null) {
      const key = { tenant, session_id: id, id: turnId };
      this.turns.evolve(key, position, (view) => evolveTurnView(view, event, place.at));
    }
    const callId = callIdOf(event);
    if (callId !== null) {
      const key = { tenant, session_id: id, id: callId };
      const agentId = this.sessions.get({ tenant, id })?.agentId ?? '';
      this.calls.evolve(key, position, (view) => evolveCallView(view, event, { ...place, sessionId: id, agentId }));
    }
  }

  #record({ ref, commit }: StoredCommit, event: SessionEvent, { at, shard, position, index }: EventPlaceInTime): void {
    const canonical = toCanonical(event);
    if (canonical === null) return;
    this.history.push({
      tenant: ref.tenant,
      session_id: ref.id,
      position,
      index,
      shard,
      event_id: commit.events[index]?.id,
      turn_id: canonical.turnId,
      type: canonical.type,
      at,
      payload: JSON.stringify(canonical.payload),
      delegation_id: null,
      agent_path: null,
    });
  }
}

function turnIdOf(event: SessionEvent): string | null {
  return 'turnId' in event.data ? event.data.turnId : null;
}

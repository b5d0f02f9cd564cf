import { sql } from 'slonik';
import type { DatabaseTransactionConnection, FragmentSqlToken } from 'slonik';
import type { SessionEvent } from '../../domain/session/events.ts';
import { toCanonical } from '../../domain/session/canonical.ts';
import type { StoredCommit } from '../../streams/commit.ts';
import { DocumentBatch, upsert } from '../documents.ts';
import type { DocumentKey, DocumentTable } from '../documents.ts';
import { actionIdOf, evolveActionView, evolveInteractionView, interactionIdOf } from '../actions/views.ts';
import type { ActionView, InteractionView } from '../actions/views.ts';
import type { ProjectionGroup } from '../projection.ts';
import { SCHEMAS } from '../schemas.ts';
import { agentOf, callIdOf, placedEvents, evolveCallView, evolveSessionView, evolveTurnView } from './views.ts';
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
  columns: { turn_id: 'text', position: 'bigint', index: 'int', agent_id: 'text', model: 'text', at: 'text' },
  columnsOf: ({ turnId, position, index, agentId, provider, model, at }) => ({
    turn_id: turnId,
    position,
    index,
    agent_id: agentId,
    model: `${provider}/${model}`,
    at,
  }),
};

const actionTable: DocumentTable<ActionView> = {
  name: 'action',
  keyColumns: ['tenant', 'session_id', 'id'],
  columns: { agent_id: 'text', status: 'text', created_at: 'text' },
  columnsOf: ({ agentId, status, createdAt }) => ({ agent_id: agentId, status, created_at: createdAt }),
};

const interactionTable: DocumentTable<InteractionView> = {
  name: 'interaction',
  keyColumns: ['tenant', 'session_id', 'id'],
  columns: { agent_id: 'text', session_agent: 'text', subject: 'text', status: 'text', created_at: 'text' },
  columnsOf: ({ agentId, sessionAgent, subject, status, createdAt }) => ({
    agent_id: agentId,
    session_agent: sessionAgent,
    subject,
    status,
    created_at: createdAt,
  }),
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

/** Sessions, their history, turns, model calls, receipts and what waits for others: one pass over the commits of sessions. */
export const sessionsProjection: ProjectionGroup = {
  name: 'sessions',
  schema: SCHEMAS.sessions,
  kinds: ['session'],
  tables: ['session', 'history', 'turn', 'model_call', 'receipt', 'action', 'interaction'],
  rowsOf: {
    session: [
      ['session', 'id'],
      ['history', 'session_id'],
      ['turn', 'session_id'],
      ['model_call', 'session_id'],
      ['receipt', 'session_id'],
      ['action', 'session_id'],
      ['interaction', 'session_id'],
    ],
  },
  apply: async (transaction, schema, commits) => {
    const batch = new SessionBatch(schema);
    for (const commit of commits) batch.want(commit);
    for (const documents of batch.documents) await documents.load(transaction);
    for (const commit of commits) batch.apply(commit);
    for (const documents of batch.documents) await documents.save(transaction);
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
  ['action', 'session_id', 'applied'],
  ['interaction', 'session_id', 'applied'],
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
  readonly actions: DocumentBatch<ActionView>;
  readonly interactions: DocumentBatch<InteractionView>;
  readonly history: object[] = [];
  readonly receipts: object[] = [];
  readonly deleted: Deleted[] = [];

  constructor(schema: string) {
    this.sessions = new DocumentBatch(sessionTable, schema);
    this.turns = new DocumentBatch(turnTable, schema);
    this.calls = new DocumentBatch(callTable, schema);
    this.actions = new DocumentBatch(actionTable, schema);
    this.interactions = new DocumentBatch(interactionTable, schema);
  }

  get documents(): readonly Pick<DocumentBatch<unknown>, 'load' | 'save'>[] {
    return [this.sessions, this.turns, this.calls, this.actions, this.interactions];
  }

  want(stored: StoredCommit): void {
    const { tenant, id } = stored.ref;
    this.sessions.want({ tenant, id });
    const events = placedEvents(stored);
    const key = (of: string): DocumentKey => ({ tenant, session_id: id, id: of });
    for (const { event } of events) {
      // Most turns begin and end within one batch: what begins here need not be looked for.
      if (event.type === 'turn.started') this.turns.begin(key(event.data.turnId));
      if (event.type === 'model.requested') this.calls.begin(key(event.data.callId));
      if (event.type === 'action.pending' && event.data.generation === 1) this.actions.begin(key(event.data.actionId));
      if (event.type === 'interaction.opened') this.interactions.begin(key(event.data.interactionId));
    }
    for (const { event } of events) {
      const { turnId, callId, actionId, interactionId } = idsOf(event);
      if (turnId !== null) this.turns.want(key(turnId));
      if (callId !== null) this.calls.want(key(callId));
      if (actionId !== null) this.actions.want(key(actionId));
      if (interactionId !== null) this.interactions.want(key(interactionId));
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
    const key = (of: string): DocumentKey => ({ tenant, session_id: id, id: of });
    const { turnId, callId, actionId, interactionId } = idsOf(event);
    const session = this.sessions.get({ tenant, id }) ?? { id, agentId: '', subject: null, info: {} };
    const context = { session, at: place.at };
    if (turnId !== null) this.turns.evolve(key(turnId), position, (view) => evolveTurnView(view, event, place.at));
    if (callId !== null) {
      const called = { ...place, sessionId: id, agentId: session.agentId };
      this.calls.evolve(key(callId), position, (view) => evolveCallView(view, event, called));
    }
    if (actionId !== null) {
      this.actions.evolve(key(actionId), position, (view) => evolveActionView(view, event, context));
    }
    if (interactionId !== null) {
      this.interactions.evolve(key(interactionId), position, (view) => evolveInteractionView(view, event, context));
    }
  }

  #record({ ref, commit }: StoredCommit, event: SessionEvent, { at, shard, position, index }: EventPlaceInTime): void {
    const canonical = toCanonical(event);
    if (canonical === null) return;
    const agent = agentOf(event);
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
      delegation_id: agent?.delegationId ?? null,
      agent_path: agent?.path ?? null,
    });
  }
}

/** The documents that an event changes besides its session's. */
function idsOf(event: SessionEvent): {
  readonly turnId: string | null;
  readonly callId: string | null;
  readonly actionId: string | null;
  readonly interactionId: string | null;
} {
  const turnId = 'turnId' in event.data ? event.data.turnId : null;
  return { turnId, callId: callIdOf(event), actionId: actionIdOf(event), interactionId: interactionIdOf(event) };
}

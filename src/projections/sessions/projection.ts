import type { DatabaseTransactionConnection } from 'slonik';
import type { StoredCommit } from '../../streams/commit.ts';
import type { ProjectedCommit } from '../../streams/row-seals.ts';
import { DocumentBatch } from '../documents.ts';
import type { Change, DocumentKey, DocumentTable } from '../documents.ts';
import { actionIdOf, evolveActionView, evolveInteractionView, interactionIdOf } from '../actions/views.ts';
import type { ActionView, InteractionView } from '../actions/views.ts';
import type { ProjectionGroup, ProjectionTarget } from '../projection.ts';
import { SCHEMAS } from '../schemas.ts';
import { tally } from '../tallies.ts';
import type { TallyChange } from '../tallies.ts';
import { addCalls } from '../usage/sums.ts';
import type { SignedCall } from '../usage/call-sums.ts';
import type { SumTarget } from '../usage/sums.ts';
import { labelText, subjectText } from './digests.ts';
import { HistoryBatch } from './history-batch.ts';
import { COUNTS, REMOVALS, RemovalSteps, removeDeleted, uncountSession } from './removal.ts';
import type { Deleted } from './removal.ts';
import { callIdOf, placedEvents, evolveCallView, evolveSessionView, evolveTurnView } from './views.ts';
import type { ModelCallView, PlacedEvent, SessionView, TurnView } from './views.ts';

const sessionTable: DocumentTable<SessionView> = {
  name: 'session',
  keyColumns: ['tenant', 'id'],
  columns: {
    ...{ agent_id: 'text', subject: 'text', status: 'text', labels: 'text[]' },
    ...{ created_at: 'text', created_position: 'bigint', updated_at: 'text' },
  },
  columnsOf: ({ agentId, subject, status, labels, createdAt, createdPosition, updatedAt }, digest) => ({
    agent_id: agentId,
    subject: subject === null ? null : digest(subjectText(subject)),
    status,
    labels: Object.entries(labels).map(([name, value]) => digest(labelText(name, value))),
    created_at: createdAt,
    created_position: createdPosition,
    updated_at: updatedAt,
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
  columns: {
    ...{ turn_id: 'text', position: 'bigint', index: 'int', agent_id: 'text', model: 'text', at: 'text' },
    outcome: 'text',
    ...{ input_tokens: 'bigint', output_tokens: 'bigint', total_tokens: 'bigint', cached_tokens: 'bigint' },
    ...{ cache_write_tokens: 'bigint', reasoning_tokens: 'bigint', cost_usd: 'numeric' },
    ...{ duplicate: 'boolean', tokens_reported: 'boolean', cost_known: 'boolean' },
  },
  columnsOf: (view) => ({
    turn_id: view.turnId,
    position: view.position,
    index: view.index,
    agent_id: view.agentId,
    model: modelOf(view),
    at: view.at,
    outcome: view.outcome,
    ...usageColumns(view),
  }),
};

/** A model's name alone does not tell who bills it. */
const modelOf = ({ provider, model }: ModelCallView): string => `${provider}/${model}`;

function usageColumns({ usage }: ModelCallView) {
  return {
    input_tokens: usage.inputTokens,
    output_tokens: usage.outputTokens,
    total_tokens: usage.totalTokens,
    cached_tokens: usage.cachedTokens,
    cache_write_tokens: usage.cacheWriteTokens,
    reasoning_tokens: usage.reasoningTokens,
    cost_usd: usage.costUsd,
    duplicate: usage.duplicate,
    tokens_reported: usage.tokensReported,
    cost_known: usage.costKnown,
  };
}

const actionTable: DocumentTable<ActionView> = {
  name: 'action',
  keyColumns: ['tenant', 'session_id', 'id'],
  columns: { agent_id: 'text', status: 'text', generation: 'int', created_at: 'text' },
  columnsOf: ({ agentId, status, generation, createdAt }) => ({
    agent_id: agentId,
    status,
    generation,
    created_at: createdAt,
  }),
};

const interactionTable: DocumentTable<InteractionView> = {
  name: 'interaction',
  keyColumns: ['tenant', 'session_id', 'id'],
  columns: {
    ...{ agent_id: 'text', session_agent: 'text', subject: 'text', status: 'text' },
    ...{ of_budget: 'boolean', created_at: 'text' },
  },
  columnsOf: ({ agentId, sessionAgent, subject, status, budgetId, createdAt }, digest) => ({
    agent_id: agentId,
    session_agent: sessionAgent,
    subject: subject === null ? null : digest(subjectText(subject)),
    status,
    of_budget: budgetId !== undefined,
    created_at: createdAt,
  }),
};

/** Sessions, their history, turns, model calls, receipts and what waits for others: one pass over the commits of sessions. */
export const sessionsProjection: ProjectionGroup = {
  name: 'sessions',
  schema: SCHEMAS.sessions,
  isAskedFor: true,
  kinds: ['session'],
  tables: [
    ...['session', 'history', 'history_agent', 'history_artifact', 'turn', 'model_call', 'action', 'interaction'],
    ...['usage', 'tally'],
  ],
  rowsOf: {
    session: [
      ['session', 'id'],
      ['history', 'session_id'],
      ['history_agent', 'session_id'],
      ['history_artifact', 'session_id'],
      ['turn', 'session_id'],
      ['model_call', 'session_id'],
      ['action', 'session_id'],
      ['interaction', 'session_id'],
    ],
  },
  apply: async (transaction, target, commits) => {
    const batch = new SessionBatch(target);
    for (const commit of commits) batch.wantSession(commit);
    await batch.sessions.load(transaction);
    const concerning = commits.map((stored) => ({ stored, events: concernedBy(stored) }));
    for (const commit of concerning) batch.want(commit);
    for (const documents of batch.documents) await documents.load(transaction);
    for (const commit of concerning) batch.apply(commit);
    const counted = { schema: target.schema, shard: commits[0]?.shard ?? 0 };
    await batch.save(transaction, counted);
    if (await removeDeleted(transaction, counted, batch.deleted)) target.onDeferred?.();
  },
  uncount: uncountSession,
  deferred: (schema, shard) => new RemovalSteps({ schema, shard }),
  deferredIn: REMOVALS,
};

class SessionBatch {
  readonly sessions: DocumentBatch<SessionView>;
  readonly turns: DocumentBatch<TurnView>;
  readonly calls: DocumentBatch<ModelCallView>;
  readonly actions: DocumentBatch<ActionView>;
  readonly interactions: DocumentBatch<InteractionView>;
  readonly history: HistoryBatch;
  readonly deleted: Deleted[] = [];

  constructor(target: ProjectionTarget) {
    this.sessions = new DocumentBatch(sessionTable, target);
    this.turns = new DocumentBatch(turnTable, target);
    this.calls = new DocumentBatch(callTable, target);
    this.actions = new DocumentBatch(actionTable, target);
    this.interactions = new DocumentBatch(interactionTable, target);
    this.history = new HistoryBatch(target);
  }

  get documents(): readonly Pick<DocumentBatch<unknown>, 'load'>[] {
    return [this.turns, this.calls, this.actions, this.interactions];
  }

  /** Writes the rows, and what they add to sums and counts. */
  async save(transaction: DatabaseTransactionConnection, target: SumTarget): Promise<void> {
    const sessions = await this.sessions.save(transaction);
    await this.turns.save(transaction);
    const calls = await this.calls.save(transaction);
    const actions = await this.actions.save(transaction);
    await this.interactions.save(transaction);
    await this.history.save(transaction);
    await addCalls(transaction, target, calls.flatMap(signedCalls));
    const changes = [...sessions.map(sessionTally), ...actions.map(actionTally)];
    await tally(transaction, { ...target, counts: COUNTS }, changes);
  }

  wantSession({ ref: { tenant, id } }: StoredCommit): void {
    this.sessions.want({ tenant, id });
  }

  /** Once the sessions are read: they tell whether a commit has been applied before. */
  want({ stored, events }: ConcerningCommit): void {
    const { tenant, id } = stored.ref;
    const key = (of: string): DocumentKey => ({ tenant, session_id: id, id: of });
    const isNew = stored.position > this.sessions.stored({ tenant, id });
    for (const { event } of isNew ? events : []) {
      // Most turns begin and end within one batch: what begins here need not be looked for.
      if (event.type === 'turn.started') this.turns.begin(key(event.data.turnId));
      if (event.type === 'model.requested') this.calls.begin(key(event.data.callId));
      if (event.type === 'action.pending' && event.data.generation === 1) this.actions.begin(key(event.data.actionId));
      if (event.type === 'interaction.opened') this.interactions.begin(key(event.data.interactionId));
    }
    for (const { turnId, callId, actionId, interactionId } of events) {
      if (turnId !== null) this.turns.want(key(turnId));
      if (callId !== null) this.calls.want(key(callId));
      if (actionId !== null) this.actions.want(key(actionId));
      if (interactionId !== null) this.interactions.want(key(interactionId));
    }
  }

  apply({ stored, events }: ConcerningCommit): void {
    for (const one of events) this.#applyEvent(stored, one);
    this.history.add(stored, events);
  }

  #applyEvent({ ref, position }: StoredCommit, concerning: ConcerningEvent): void {
    const { event, place, turnId, callId, actionId, interactionId } = concerning;
    const { tenant, id } = ref;
    if (event.type === 'session.deleted') this.deleted.push({ tenant, id, position });
    this.sessions.evolve({ tenant, id }, position, (view) => evolveSessionView(view, event, { ...place, id }));
    const key = (of: string): DocumentKey => ({ tenant, session_id: id, id: of });
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
}

/** What a call was is taken out of the sums, what it has become is added; one that has not ended is not in them. */
function signedCalls({ key, before, after }: Change<ModelCallView>): SignedCall[] {
  const signed = (view: ModelCallView, sign: 1 | -1): SignedCall => {
    const { sessionId, agentId, at, outcome, usage } = view;
    return { tenant: key['tenant'] ?? '', sessionId, agentId, model: modelOf(view), at, outcome, usage, sign };
  };
  return [...(before === undefined ? [] : [signed(before, -1)]), signed(after, 1)];
}

function sessionTally({ key, before, after }: Change<SessionView>): TallyChange {
  const isActive = (view: SessionView | undefined): number => (view === undefined || view.status === 'idle' ? 0 : 1);
  const sessions = before === undefined ? 1 : 0;
  return { tenant: key['tenant'] ?? '', by: { sessions, active: isActive(after) - isActive(before) } };
}

function actionTally({ key, before, after }: Change<ActionView>): TallyChange {
  const isPending = (view: ActionView | undefined): number => (view?.status === 'pending' ? 1 : 0);
  return { tenant: key['tenant'] ?? '', by: { pending: isPending(after) - isPending(before) } };
}

/** An event, and the documents that it changes besides its session's. */
interface ConcerningEvent extends PlacedEvent {
  readonly turnId: string | null;
  readonly callId: string | null;
  readonly actionId: string | null;
  readonly interactionId: string | null;
}

interface ConcerningCommit {
  readonly stored: ProjectedCommit;
  readonly events: readonly ConcerningEvent[];
}

function concernedBy(stored: StoredCommit): readonly ConcerningEvent[] {
  return placedEvents(stored).map(({ event, place }) => ({
    event,
    place,
    turnId: 'turnId' in event.data ? event.data.turnId : null,
    callId: callIdOf(event),
    actionId: actionIdOf(event),
    interactionId: interactionIdOf(event),
  }));
}

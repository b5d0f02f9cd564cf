import type { EventRecord, ModelCall } from '../../../client/client.ts';
import { agentOf } from './entries.ts';
import type { RecordOf } from './entries.ts';

export type SpanKind = 'queue' | 'model' | 'tool' | 'hook' | 'wait' | 'agent';

/** A part of a span, up to the next part or its end. */
export interface Part {
  readonly name: 'first token' | 'answer' | 'offered' | 'running' | 'uncertain';
  readonly fromMs: number;
}

/** Something of a turn that took time. */
export interface Span {
  readonly key: string;
  readonly kind: SpanKind;
  readonly name: string;
  readonly state: string;
  readonly fromMs: number;
  /** null: it has not ended. */
  readonly toMs: number | null;
  readonly parts: readonly Part[];
  /** What is out of the ordinary: another attempt, a claim that was taken over. */
  readonly notes: readonly string[];
  /** The record that began it; absent: none did. */
  readonly cursor?: string | undefined;
  readonly call?: ModelCall | undefined;
  readonly exec?: RecordOf<'sandbox.exec'>['payload'] | undefined;
  /** The work of an agent used as a tool. */
  readonly children: readonly Span[];
}

export interface TurnHead {
  readonly turnId: string;
  /** Of its first record. */
  readonly cursor: string;
  readonly fromMs: number;
  /** null: it is active. */
  readonly toMs: number | null;
  readonly outcome: 'active' | 'completed' | 'failed' | 'cancelled';
  /** What was asked; null: its beginning is not among the records. */
  readonly text: string | null;
}

/** The turns that the records know, oldest first. */
export function turnsOf(records: readonly EventRecord[]): readonly TurnHead[] {
  const turns = new Map<string, TurnHead>();
  for (const record of records) {
    const { turnId, cursor } = record;
    // Cancelling something that is over belongs to no turn.
    if (turnId === null) continue;
    const fromMs = Date.parse(record.createdAt);
    const turn = turns.get(turnId) ?? {
      ...{ turnId, cursor, fromMs, toMs: null, outcome: 'active', text: askedIn(record) },
    };
    turns.set(turnId, isEnd(record) ? { ...turn, toMs: fromMs, outcome: outcomeOf(record) } : turn);
  }
  return [...turns.values()];
}

type End = RecordOf<`turn.${'completed' | 'failed' | 'cancelled'}`>;

function isEnd(record: EventRecord): record is End {
  return record.type === 'turn.completed' || record.type === 'turn.failed' || record.type === 'turn.cancelled';
}

function outcomeOf({ type }: End): 'completed' | 'failed' | 'cancelled' {
  return type === 'turn.completed' ? 'completed' : type === 'turn.failed' ? 'failed' : 'cancelled';
}

function askedIn(record: EventRecord): string | null {
  if (record.type === 'command.retry') return 'A failed turn, resumed';
  if (record.type !== 'command.message') return null;
  const { content, parts = [] } = record.payload;
  return content ?? parts.map((part) => (part.type === 'text' ? part.text : '[file]')).join(' ');
}

/**
 * What a turn spent its time on, in the order in which it began. The calls are those of the ledger; an answer without
 * its call is shown at the time of its record.
 */
export function spansOf(records: readonly EventRecord[], turnId: string, calls: readonly ModelCall[]): readonly Span[] {
  const waterfall = new Waterfall(turnId);
  for (const record of records) waterfall.take(record);
  return waterfall.end(calls);
}

interface Draft extends Omit<Span, 'children' | 'parts' | 'notes'> {
  name: string;
  kind: SpanKind;
  state: string;
  fromMs: number;
  toMs: number | null;
  exec?: RecordOf<'sandbox.exec'>['payload'] | undefined;
  readonly parts: Part[];
  readonly notes: string[];
  readonly children: Draft[];
}

type New = Pick<Draft, 'kind' | 'name' | 'state'> & Partial<Pick<Draft, 'fromMs' | 'toMs' | 'parts'>>;

class Waterfall {
  readonly #turnId: string;
  readonly #top: Draft[] = [];
  readonly #calls = new Map<string, Draft>();
  readonly #actions = new Map<string, Draft>();
  readonly #asks = new Map<string, Draft>();
  readonly #delegations = new Map<string, Draft>();
  /** Answers, with the lane that they are in. */
  readonly #answers = new Map<string, { readonly lane: Draft[]; readonly record: RecordOf<'message.assistant'> }>();
  /** What a sandbox measured precedes the result of the call, in the same lane. */
  readonly #execs = new Map<string, RecordOf<'sandbox.exec'>>();
  readonly #signIns = new Set<string>();
  #queued: Draft | null = null;
  #hasBegun = false;

  constructor(turnId: string) {
    this.#turnId = turnId;
  }

  take(record: EventRecord): void {
    const at = Date.parse(record.createdAt);
    if (record.turnId !== this.#turnId) {
      // The turn before has ended, and this one begins.
      if (this.#queued !== null && !this.#hasBegun && isEnd(record)) this.#queued.toMs = at;
      return;
    }
    if (record.type === 'command.message' || record.type === 'command.retry') {
      this.#queued = newDraft(record, { kind: 'queue', name: 'waits behind another turn', state: 'waited' });
      return;
    }
    if (!isEnd(record)) this.#hasBegun = true;
    this.#takeOwn(record, at);
  }

  #takeOwn(record: EventRecord, at: number): void {
    switch (record.type) {
      case 'message.assistant':
        return this.#answer(record);
      case 'action.pending':
      case 'action.claimed':
      case 'action.uncertain':
      case 'action.completed':
        return this.#action(record, at);
      case 'sandbox.exec':
        this.#execs.set(laneKey(record), record);
        return;
      case 'delegation.started':
      case 'delegation.completed':
        return this.#delegation(record, at);
      case 'turn.paused':
      case 'turn.uncertain':
        return this.#ask(record);
      case 'command.approve':
      case 'command.respond':
        return this.#answered(record, at);
      case 'mcp.state':
        // A sign-in has no record of its own: the server that wanted it is connected.
        if (record.payload.state === 'connected') for (const id of this.#signIns) this.#close(id, 'answered', at);
        return;
      case 'turn.completed':
      case 'turn.failed':
      case 'turn.cancelled':
        return this.#closeAll(at);
      default:
    }
  }

  #lane(record: EventRecord): Draft[] {
    const id = agentOf(record)?.delegationId;
    return (id === undefined ? undefined : this.#delegations.get(id)?.children) ?? this.#top;
  }

  #answer(record: RecordOf<'message.assistant'>): void {
    const lane = this.#lane(record);
    this.#answers.set(record.payload.modelCallId ?? record.eventId, { lane, record });
    for (const { callId, name } of record.payload.toolCalls) this.#call(record, callId, name);
  }

  /** What a model called, or the hook of a lane. */
  #call(record: EventRecord, callId: string, name: string): Draft {
    const key = `${laneKey(record)}:${callId}`;
    const known = this.#calls.get(key);
    if (known !== undefined) return known;
    const draft = { ...newDraft(record, { kind: 'tool', name, state: 'called' }), key };
    this.#calls.set(key, draft);
    this.#lane(record).push(draft);
    return draft;
  }

  #action(record: RecordOf<`action.${'pending' | 'claimed' | 'uncertain' | 'completed'}`>, at: number): void {
    if (record.type === 'action.pending') return this.#offered(record, at);
    if (record.type === 'action.completed') return this.#result(record, at);
    const draft = this.#actions.get(record.payload.actionId);
    if (draft === undefined) return;
    const isClaim = record.type === 'action.claimed';
    if (isClaim && draft.parts.some(({ name }) => name === 'running'))
      draft.notes.push(`taken over, generation ${record.payload.generation}`);
    if (!isClaim) draft.notes.push('its executor was lost: not known whether it ran');
    draft.state = isClaim ? 'claimed' : 'uncertain';
    draft.parts.push({ name: isClaim ? 'running' : 'uncertain', fromMs: at });
  }

  #offered(record: RecordOf<'action.pending'>, at: number): void {
    const { actionId, callId, generation, kind, hook, toolName } = record.payload;
    const isFirst = !this.#actions.has(actionId);
    const draft = this.#call(record, callId, toolName ?? (hook === undefined ? 'call' : `${hook.at} ${hook.scope}`));
    this.#actions.set(actionId, draft);
    if (kind === 'hook') draft.kind = 'hook';
    // It may have waited for an approval first, which is a span of its own.
    if (isFirst) draft.fromMs = at;
    else draft.notes.push(`offered again, generation ${generation}`);
    draft.state = 'offered';
    draft.parts.push({ name: 'offered', fromMs: at });
  }

  #result(record: RecordOf<'action.completed'>, at: number): void {
    const { actionId, callId, kind, hook, toolName, outcome } = record.payload;
    const draft = this.#call(record, callId, toolName ?? (hook === undefined ? 'call' : `${hook.at} ${hook.scope}`));
    this.#actions.set(actionId, draft);
    const exec = this.#execs.get(laneKey(record));
    if (kind === 'sandbox' && exec !== undefined && exec.payload.tool === toolName) {
      this.#execs.delete(laneKey(record));
      draft.exec = exec.payload;
      draft.fromMs = Math.max(draft.fromMs, Date.parse(exec.createdAt) - exec.payload.durationMs);
    }
    draft.state = outcome.kind;
    draft.toMs = at;
  }

  #delegation(record: RecordOf<`delegation.${'started' | 'completed'}`>, at: number): void {
    const { agent, callId } = record.payload;
    // Its records name the agent that works, and it is the one that asked that called it.
    const draft = this.#delegations.get(agent.delegationId) ?? this.#calls.get(`:${callId}`) ?? this.#agent(record);
    this.#delegations.set(agent.delegationId, draft);
    if (record.type === 'delegation.completed') {
      draft.state = record.payload.outcome.kind;
      draft.toMs = at;
      return;
    }
    if (at > draft.fromMs) draft.parts.push({ name: 'offered', fromMs: draft.fromMs });
    draft.parts.push({ name: 'running', fromMs: at });
    Object.assign(draft, { kind: 'agent', name: agent.id, state: 'running' });
  }

  /** An agent whose call is not among the records. */
  #agent(record: RecordOf<`delegation.${'started' | 'completed'}`>): Draft {
    const draft = newDraft(record, { kind: 'agent', name: record.payload.agent.id, state: 'running' });
    this.#top.push(draft);
    return draft;
  }

  #ask(record: RecordOf<'turn.paused' | 'turn.uncertain'>): void {
    const asked =
      record.type === 'turn.uncertain'
        ? record.payload.effectIds.map((id) => ({ id, name: 'what became of a lost call' }))
        : record.payload.interactions.map((one) => ({ id: one.interactionId, name: nameOfAsk(one) }));
    for (const { id, name } of asked) {
      // A pause names what is still open, too.
      if (this.#asks.get(id)?.toMs === null) continue;
      const draft = { ...newDraft(record, { kind: 'wait', name, state: 'open' }), key: `${record.eventId}:${id}` };
      this.#asks.set(id, draft);
      this.#top.push(draft);
    }
    if (record.type === 'turn.paused')
      for (const { interactionId, server } of record.payload.interactions)
        if (server !== undefined) this.#signIns.add(interactionId);
  }

  #answered(record: RecordOf<'command.approve' | 'command.respond'>, at: number): void {
    const { interactionId } = record.payload;
    const isDenied = record.type === 'command.approve' && !record.payload.approved;
    const state = isDenied ? 'denied' : record.type === 'command.approve' ? 'approved' : 'answered';
    this.#close(interactionId, state, at);
  }

  #close(interactionId: string, state: string, at: number): void {
    const ask = this.#asks.get(interactionId);
    if (ask === undefined || ask.toMs !== null) return;
    ask.state = state;
    ask.toMs = at;
  }

  #closeAll(at: number): void {
    for (const draft of [...this.#calls.values(), ...this.#asks.values(), ...this.#delegations.values()]) {
      if (draft.toMs !== null) continue;
      draft.toMs = at;
      draft.state = 'ended';
    }
  }

  end(calls: readonly ModelCall[]): readonly Span[] {
    const told = new Set<string>();
    for (const call of calls) {
      if (call.turnId !== this.#turnId) continue;
      const answer = this.#answers.get(call.id);
      (answer?.lane ?? this.#laneOf(call)).push(modelDraft(call, answer?.record.cursor));
      told.add(call.id);
    }
    for (const [id, { lane, record }] of this.#answers) {
      if (told.has(id)) continue;
      const toMs = Date.parse(record.createdAt);
      lane.push(newDraft(record, { kind: 'model', name: 'answer', state: 'completed', toMs }));
    }
    if (this.#queued?.toMs != null) this.#top.push(this.#queued);
    return sorted(this.#top);
  }

  /** Of a call without an answer: the work of its agent at that time. */
  #laneOf({ agentId, at }: ModelCall): Draft[] {
    const atMs = Date.parse(at);
    const of = [...this.#delegations.values()].filter(({ name, fromMs }) => name === agentId && fromMs <= atMs);
    const within = of.findLast(({ toMs }) => toMs === null || atMs <= toMs);
    return within?.children ?? this.#top;
  }
}

function laneKey(record: EventRecord): string {
  return agentOf(record)?.delegationId ?? '';
}

function newDraft({ eventId, cursor, createdAt }: EventRecord, given: New): Draft {
  const fromMs = Date.parse(createdAt);
  return { ...{ key: eventId, cursor, fromMs, toMs: null, parts: [], notes: [], children: [] }, ...given };
}

function modelDraft(call: ModelCall, cursor: string | undefined): Draft {
  const { id, at, latencyMs, firstTokenMs, attempt, outcome, usage, model } = call;
  const fromMs = Date.parse(at);
  const parts: Part[] = firstTokenMs === undefined ? [] : [{ name: 'first token', fromMs }];
  if (firstTokenMs !== undefined) parts.push({ name: 'answer', fromMs: fromMs + firstTokenMs });
  const notes = [
    ...(attempt > 1 ? [`attempt ${attempt}`] : []),
    ...(usage.duplicate ? ['paid for twice: a worker was lost, and another one asked again'] : []),
  ];
  // How long a call lasted whose end was never recorded is not known.
  const toMs = fromMs + (latencyMs ?? 0);
  return {
    key: `call:${id}`,
    kind: 'model',
    name: model,
    state: outcome,
    fromMs,
    toMs,
    parts,
    notes,
    cursor,
    call,
    children: [],
  };
}

function nameOfAsk(one: RecordOf<'turn.paused'>['payload']['interactions'][number]): string {
  if (one.budgetId !== undefined) return 'a budget that is used up';
  if (one.server !== undefined) return `a sign-in to ${one.server}`;
  if (one.kind === 'approval') return `approval of ${one.toolName ?? 'a call'}`;
  return one.toolName === undefined ? 'an answer' : `an answer for ${one.toolName}`;
}

const ORDER: readonly SpanKind[] = ['queue', 'hook', 'model', 'wait', 'tool', 'agent'];

function sorted(drafts: readonly Draft[]): readonly Span[] {
  return drafts
    .map((draft) => ({ ...draft, children: sorted(draft.children) }))
    .toSorted((one, other) => one.fromMs - other.fromMs || ORDER.indexOf(one.kind) - ORDER.indexOf(other.kind));
}

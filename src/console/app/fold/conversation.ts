import type { EventRecord } from '../../../client/client.ts';
import { agentOf } from './entries.ts';
import type { AskEntry, EndEntry, Entry, Exec, RecordOf, ToolEntry } from './entries.ts';
import { noteOf } from './notes.ts';

/** Calls of the same turn and agent have ids of their own; a model may use one again in another turn. */
const callKey = (turnId: string | null, callId: string): string => `call:${turnId}:${callId}`;

/**
 * Records of a session as a conversation: calls with their results, questions with their answers. Records are taken in
 * their order, any number at a time; the beginning may be missing, as it is when only the last page is known.
 */
export class Conversation {
  #entries: Entry[] = [];
  readonly #places = new Map<string, number>();
  readonly #messageKeys = new Map<string, string>();
  /** Open turns in the order of their messages, with the time of these. */
  readonly #turns = new Map<string, string>();
  /** What was asked and not answered, and what has not returned, by turn. */
  readonly #open = new Map<string, Set<string>>();
  /** What the sandbox tells precedes the result of the same call. */
  #exec: { readonly tool: string; readonly exec: Exec } | null = null;

  /** Oldest first. Another array whenever something has changed; entries that have not are the same objects. */
  get entries(): readonly Entry[] {
    return this.#entries;
  }

  /** The turn that runs or waits; null: none that these records know. */
  get activeTurnId(): string | null {
    return this.#turns.keys().next().value ?? null;
  }

  get openAsks(): readonly AskEntry[] {
    return this.#entries.filter((entry): entry is AskEntry => entry.kind === 'ask' && entry.state === 'open');
  }

  append(records: readonly EventRecord[]): this {
    if (records.length === 0) return this;
    this.#entries = [...this.#entries];
    for (const record of records) this.#take(record);
    return this;
  }

  #take(record: EventRecord): void {
    switch (record.type) {
      case 'command.message':
        return this.#message(record);
      case 'command.retry':
        if (record.turnId !== null) this.#turns.set(record.turnId, record.createdAt);
        return this.#note(record);
      case 'message.assistant':
        return this.#assistant(record);
      case 'command.approve':
      case 'command.respond':
        return this.#answer(record);
      case 'turn.paused':
      case 'turn.uncertain':
        return this.#ask(record);
      case 'turn.completed':
      case 'turn.failed':
      case 'turn.cancelled':
        return this.#end(record);
      case 'artifact.created':
      case 'artifact.deleted':
        return this.#file(record);
      case 'delegation.started':
      case 'delegation.completed':
        return this.#delegation(record);
      case 'action.pending':
      case 'action.claimed':
      case 'action.uncertain':
      case 'action.completed':
      case 'sandbox.exec':
        return this.#action(record);
      default:
        return this.#note(record);
    }
  }

  #message(record: RecordOf<'command.message'>): void {
    const { content, parts = [], subject, manifest } = record.payload;
    const texts = parts.flatMap((part) => (part.type === 'text' ? [part.text] : []));
    const files = parts.flatMap((part) => (part.type === 'file' ? [part] : []));
    const behind = this.activeTurnId;
    if (record.turnId !== null) this.#turns.set(record.turnId, record.createdAt);
    this.#add({
      ...base(record),
      ...{
        kind: 'user',
        text: content ?? texts.join('\n\n'),
        files,
        subject,
        behind,
        hasManifest: manifest !== undefined,
      },
    });
  }

  #assistant(record: RecordOf<'message.assistant'>): void {
    const { text, reasoning, truncated, toolCalls, modelCallId } = record.payload;
    if (text !== '' || reasoning !== undefined || toolCalls.length === 0)
      this.#add({
        ...base(record),
        ...{ kind: 'assistant', text, reasoning, isTruncated: truncated === true, modelCallId },
      });
    for (const { callId, name, input } of toolCalls) this.#call(record, callId, { name, input });
  }

  /** Adds a call, or changes it when it is there. */
  #call(record: EventRecord, callId: string, change: Partial<ToolEntry>): void {
    const key = callKey(record.turnId, callId);
    const isOver = change.state === 'completed' || change.state === 'failed';
    if (!this.#change<ToolEntry>(key, change))
      this.#add({
        ...{
          ...base(record),
          key,
          kind: 'tool',
          callId,
          name: 'call',
          runner: null,
          input: undefined,
          state: 'called',
        },
        ...change,
      });
    this.#watch(record.turnId, key, !isOver);
  }

  #action(record: RecordOf<`action.${'pending' | 'claimed' | 'uncertain' | 'completed'}` | 'sandbox.exec'>): void {
    if (record.type === 'sandbox.exec') {
      const { tool, durationMs, cpuMs, outcome, exitCode } = record.payload;
      this.#exec = { tool, exec: { durationMs, cpuMs, outcome, exitCode } };
      return;
    }
    const { actionId } = record.payload;
    if (record.type === 'action.claimed') return this.#mark(actionId, 'claimed');
    if (record.type === 'action.uncertain') return this.#mark(actionId, 'uncertain');
    const { callId, kind, toolName, hook } = record.payload;
    const name = toolName ?? (hook === undefined ? undefined : `${hook.at} ${hook.scope}`);
    const known = { actionId, runner: kind, ...(name === undefined ? {} : { name }) };
    if (record.type === 'action.pending') {
      this.#call(record, callId, { ...known, input: record.payload.input, state: 'offered' });
    } else {
      const result = { ...resultOf(record.payload.outcome), endedAt: record.createdAt };
      this.#call(record, callId, { ...known, ...result, ...this.#measured(toolName) });
    }
    const place = this.#places.get(callKey(record.turnId, callId));
    if (place !== undefined) this.#places.set(`action:${actionId}`, place);
  }

  #mark(actionId: string, state: ToolEntry['state']): void {
    const place = this.#places.get(`action:${actionId}`);
    const key = place === undefined ? undefined : this.#entries[place]?.key;
    if (key !== undefined) this.#change<ToolEntry>(key, { state });
  }

  /** What the sandbox said about the call that has just returned, once. */
  #measured(tool: string | undefined): Pick<ToolEntry, 'exec'> {
    const told = this.#exec;
    this.#exec = null;
    return told === null || told.tool !== tool ? {} : { exec: told.exec };
  }

  #delegation(record: RecordOf<`delegation.${'started' | 'completed'}`>): void {
    const { agent, callId } = record.payload;
    const known = { name: agent.id, runner: 'agent' as const, delegationId: agent.delegationId };
    if (record.type === 'delegation.started') {
      this.#call(record, callId, { ...known, input: { task: record.payload.task }, state: 'claimed' });
    } else {
      this.#call(record, callId, { ...known, ...resultOf(record.payload.outcome), endedAt: record.createdAt });
    }
  }

  #ask(record: RecordOf<'turn.paused' | 'turn.uncertain'>): void {
    const asked =
      record.type === 'turn.uncertain'
        ? record.payload.effectIds.map((id) => ({ id, what: 'uncertain' as const, interaction: undefined }))
        : record.payload.interactions.map((interaction) => ({
            ...{ id: interaction.interactionId, what: interaction.kind, interaction },
          }));
    for (const { id, what, interaction } of asked) {
      const key = `ask:${id}`;
      // An uncertain call that was tried again can be uncertain again.
      if (!this.#change<AskEntry>(key, { state: 'open', answer: undefined }))
        this.#add({ ...base(record), key, kind: 'ask', interactionId: id, what, interaction, state: 'open' });
      this.#watch(record.turnId, key, true);
    }
  }

  #answer(record: RecordOf<'command.approve' | 'command.respond'>): void {
    const key = `ask:${record.payload.interactionId}`;
    this.#watch(record.turnId, key, false);
    if (record.type === 'command.respond') {
      this.#change<AskEntry>(key, { state: 'answered', answer: record.payload.value });
    } else {
      const { approved, reason } = record.payload;
      this.#change<AskEntry>(key, { state: approved ? 'approved' : 'denied', reason });
    }
  }

  #end(record: RecordOf<`turn.${'completed' | 'failed' | 'cancelled'}`>): void {
    const { turnId } = record;
    const began = turnId === null ? undefined : this.#turns.get(turnId);
    if (turnId !== null) {
      this.#turns.delete(turnId);
      for (const key of this.#open.get(turnId) ?? [])
        this.#change<AskEntry | ToolEntry>(key, key.startsWith('ask:') ? { state: 'closed' } : { state: 'ended' });
      this.#open.delete(turnId);
      this.#advance(turnId);
    }
    const durationMs = began === undefined ? null : Date.parse(record.createdAt) - Date.parse(began);
    this.#add({ ...base(record), kind: 'end', durationMs, ...endOf(record) });
  }

  /** Messages that waited behind a turn wait behind the next one, or not at all. */
  #advance(turnId: string): void {
    for (const waiting of this.#turns.keys()) {
      const key = this.#messageKeys.get(waiting);
      const place = key === undefined ? undefined : this.#places.get(key);
      const entry = place === undefined ? undefined : this.#entries[place];
      if (entry?.kind !== 'user' || entry.behind !== turnId) continue;
      const next = this.activeTurnId;
      this.#change(entry.key, { behind: next === waiting ? null : next });
    }
  }

  #file(record: RecordOf<`artifact.${'created' | 'deleted'}`>): void {
    const { artifactId, name } = record.payload;
    const made =
      record.type === 'artifact.created'
        ? { isDeleted: false, isFolder: record.payload.kind === 'folder', version: record.payload.version }
        : { isDeleted: true, isFolder: false, version: null };
    const size = record.type === 'artifact.created' ? record.payload.size : null;
    this.#add({ ...base(record), kind: 'file', artifactId, name, size, ...made });
  }

  #note(record: EventRecord): void {
    const note = noteOf(record);
    if (note !== null) this.#add({ ...base(record), kind: 'note', ...note });
  }

  #add(entry: Entry): void {
    this.#places.set(entry.key, this.#entries.length);
    if (entry.kind === 'user' && entry.turnId !== null) this.#messageKeys.set(entry.turnId, entry.key);
    this.#entries.push(entry);
  }

  /** False: there is no such entry. */
  #change<E extends Entry>(key: string, change: Partial<E>): boolean {
    const place = this.#places.get(key);
    const entry = place === undefined ? undefined : this.#entries[place];
    if (place === undefined || entry === undefined) return false;
    this.#entries[place] = { ...entry, ...change };
    return true;
  }

  #watch(turnId: string | null, key: string, isOpen: boolean): void {
    if (turnId === null) return;
    const open = this.#open.get(turnId) ?? new Set();
    if (isOpen) open.add(key);
    else open.delete(key);
    this.#open.set(turnId, open);
  }
}

function base(record: EventRecord) {
  const agent = agentOf(record);
  const { cursor, createdAt: at, turnId } = record;
  return { key: record.eventId, cursor, at, turnId, ...(agent === undefined ? {} : { agent }) };
}

type Outcome = RecordOf<'action.completed'>['payload']['outcome'];

function resultOf(outcome: Outcome): Pick<ToolEntry, 'state' | 'output' | 'error'> {
  if (outcome.kind === 'completed') return { state: 'completed', output: outcome.output };
  return { state: 'failed', error: { code: outcome.code, message: outcome.message } };
}

function endOf(
  record: RecordOf<`turn.${'completed' | 'failed' | 'cancelled'}`>,
): Pick<EndEntry, 'outcome' | 'text' | 'output' | 'usage'> {
  if (record.type === 'turn.failed') {
    const { code, message } = record.payload.error;
    return { outcome: 'failed', text: `${code}: ${message}` };
  }
  if (record.type === 'turn.cancelled') return { outcome: 'cancelled', text: record.payload.reason ?? null };
  const { output, usage } = record.payload;
  return { outcome: 'completed', text: null, usage, ...(typeof output === 'string' ? {} : { output }) };
}

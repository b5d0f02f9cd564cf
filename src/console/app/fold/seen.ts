import type { EventRecord, Manifest } from '../../../client/client.ts';
import { agentOf } from './entries.ts';
import type { AgentRef, RecordOf } from './entries.ts';

/** One message of a prompt. */
export interface SeenMessage {
  readonly key: string;
  readonly role: 'user' | 'assistant' | 'tool';
  readonly text: string;
  /** Calls of an answer, or the tool whose result this is. */
  readonly calls: readonly { readonly name: string; readonly input: unknown }[];
  readonly tool?: string | undefined;
  readonly output?: unknown;
  readonly isFailed: boolean;
}

/** What a model is sent that is asked at a place of the history, as far as the records tell it. */
export interface Seen {
  /** The agent used as a tool that is asked; undefined: the session's own. */
  readonly agent?: AgentRef | undefined;
  /** A manifest that came with the message, in place of the agent's. */
  readonly manifest?: Manifest | undefined;
  /** Instructions that a hook added for this step. */
  readonly stepInstructions?: string | undefined;
  /** The names that a hook left for this step; undefined: all. */
  readonly stepTools?: readonly string[] | undefined;
  /** Tools that servers named, by server. */
  readonly serverTools: ReadonlyMap<string, readonly string[]>;
  readonly messages: readonly SeenMessage[];
}

const ENDED = 'The turn ended before this call was answered.';

/** Messages of one agent, in the order in which its model gets them. */
class Thread {
  readonly messages: SeenMessage[] = [];
  readonly serverTools = new Map<string, readonly string[]>();
  stepInstructions: string | undefined;
  stepTools: readonly string[] | undefined;
  #open = new Map<string, string>();

  user(key: string, text: string): void {
    for (const [callId, tool] of this.#open) {
      const output = { error: { code: 'cancelled', message: ENDED } };
      this.messages.push({ key: `${key}:${callId}`, role: 'tool', text: '', calls: [], tool, output, isFailed: true });
    }
    this.#open.clear();
    this.messages.push({ key, role: 'user', text, calls: [], isFailed: false });
  }

  answer({ eventId, payload: { text, toolCalls } }: RecordOf<'message.assistant'>): void {
    this.#open = new Map(toolCalls.map(({ callId, name }) => [callId, name]));
    this.messages.push({ key: eventId, role: 'assistant', text, calls: toolCalls, isFailed: false });
    this.stepInstructions = undefined;
    this.stepTools = undefined;
  }

  result(key: string, callId: string, { tool, outcome }: { readonly tool: string; readonly outcome: Outcome }): void {
    this.#open.delete(callId);
    const isFailed = outcome.kind === 'failed';
    const output = isFailed ? { error: { code: outcome.code, message: outcome.message } } : outcome.output;
    this.messages.push({ key, role: 'tool', text: '', calls: [], tool, output, isFailed });
  }

  hook({ payload: { hook, outcome } }: RecordOf<'action.completed'>): void {
    if (hook?.at !== 'before' || outcome.kind === 'failed') return;
    const { output } = outcome;
    if (hook.scope === 'step') {
      const instructions = memberOf(output, 'instructions');
      const tools = memberOf(output, 'tools');
      this.stepInstructions = typeof instructions === 'string' ? instructions : undefined;
      this.stepTools = Array.isArray(tools) ? tools.map(String) : undefined;
      return;
    }
    const input = memberOf(output, 'input');
    const at = this.messages.findLastIndex(({ role }) => role === 'user');
    const message = this.messages[at];
    if (typeof input === 'string' && message !== undefined) this.messages[at] = { ...message, text: input };
  }
}

type Outcome = RecordOf<'action.completed'>['payload']['outcome'];

/**
 * The prompt at the last of the records: what the model is sent that is asked there, or was sent for the answer that the
 * record is. Where a long conversation was summarised for its model is not in the history, and not here.
 */
export function seenAt(records: readonly EventRecord[]): Seen {
  const last = records.at(-1);
  const agent = last === undefined ? undefined : threadOf(last);
  const before = last?.type === 'message.assistant' ? records.slice(0, -1) : records;
  const thread = new Thread();
  const turns = new Turns();
  for (const record of before) {
    if (agent === undefined) for (const message of turns.started(record)) thread.user(message.eventId, textOf(message));
    if (threadOf(record)?.delegationId === agent?.delegationId) take(thread, record);
  }
  const { messages, serverTools, stepInstructions, stepTools } = thread;
  const manifest = agent === undefined ? turns.running?.message?.payload.manifest : undefined;
  return { agent, manifest, stepInstructions, stepTools, serverTools, messages };
}

/** Whose conversation a record belongs to: what a delegation returns is told to the one that asked. */
function threadOf(record: EventRecord): AgentRef | undefined {
  return record.type === 'delegation.completed' ? undefined : agentOf(record);
}

function take(thread: Thread, record: EventRecord): void {
  switch (record.type) {
    case 'message.assistant':
      return thread.answer(record);
    case 'delegation.started':
      return thread.user(record.eventId, record.payload.task);
    case 'delegation.completed':
    case 'action.completed': {
      if (record.type === 'action.completed' && record.payload.kind === 'hook') return thread.hook(record);
      const { callId, outcome } = record.payload;
      const tool = record.type === 'action.completed' ? (record.payload.toolName ?? '') : record.payload.agent.id;
      return thread.result(record.eventId, callId, { tool, outcome });
    }
    case 'mcp.state': {
      const { server, tools = [] } = record.payload;
      thread.serverTools.set(server, tools);
      return;
    }
    default:
  }
}

type Message = RecordOf<'command.message'>;

/** A message that waits behind a turn is not seen before that turn has ended. */
class Turns {
  readonly #waiting: Message[] = [];
  /** `message` absent: it is older than the records, or the turn resumes another one. */
  running: { readonly turnId: string | null; readonly message?: Message | undefined } | undefined;

  /** The messages whose turns begin with a record. */
  started(record: EventRecord): readonly Message[] {
    const { type, turnId } = record;
    if (type === 'command.message') this.#waiting.push(record);
    else if (type === 'turn.completed' || type === 'turn.failed' || type === 'turn.cancelled') this.#end(turnId);
    else if (type === 'command.retry' || type === 'message.assistant' || type === 'action.completed')
      this.running ??= { turnId };
    const message = this.running === undefined ? this.#waiting.shift() : undefined;
    if (message === undefined) return [];
    this.running = { turnId: message.turnId, message };
    return [message];
  }

  #end(turnId: string | null): void {
    if (this.running?.turnId === turnId) this.running = undefined;
    const at = this.#waiting.findIndex((message) => message.turnId === turnId);
    if (at >= 0) this.#waiting.splice(at, 1);
  }
}

function textOf({ payload: { content, parts = [] } }: RecordOf<'command.message'>): string {
  return content ?? parts.map((part) => (part.type === 'text' ? part.text : `[file ${part.artifactId}]`)).join('\n\n');
}

/** A member of a value that an executor made. */
function memberOf(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null && Object.hasOwn(value, name)
    ? Reflect.get(value, name)
    : undefined;
}

const SANDBOX_TOOLS = ['bash', 'read', 'write', 'edit', 'grep', 'glob'];

/** The names of the tools that the model is shown, and where each comes from. */
export function toolsOf(
  manifest: Manifest,
  { serverTools, stepTools }: Seen,
): readonly { readonly name: string; readonly from: string }[] {
  const { tools = [], sandboxTools = [], agents = [] } = manifest;
  const all = [
    ...tools.map(({ name }) => ({ name, from: 'executor' })),
    ...(sandboxTools === true ? SANDBOX_TOOLS : sandboxTools).map((name) => ({ name, from: 'sandbox' })),
    ...agents.map(({ agentId }) => ({ name: agentId, from: 'agent' })),
    ...[...serverTools].flatMap(([server, names]) => names.map((name) => ({ name, from: server }))),
  ];
  return stepTools === undefined ? all : all.filter(({ name }) => stepTools.includes(name));
}

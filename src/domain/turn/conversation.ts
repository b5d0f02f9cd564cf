import type { Outcome } from '../action/events.ts';
import { optional } from '../kernel/optional.ts';
import type { TurnEvent } from './events.ts';
import { sizeOfThinking } from './thinking.ts';
import type { Thinking } from './thinking.ts';

/** A version of an artifact that a message names. */
export interface FileRef {
  readonly artifactId: string;
  readonly version: number;
}

/** What a model is shown of a session, derived from its events and from nothing else. */
export type ConversationMessage =
  /** `byHost`: the Host's own words to the model, not a message. */
  | {
      readonly role: 'user';
      readonly text: string;
      readonly byHost?: true;
      /** What the message has besides its text; where the bytes are is looked up for the call. */
      readonly files?: readonly FileRef[];
    }
  | {
      readonly role: 'assistant';
      readonly text: string;
      readonly toolCalls: readonly { readonly callId: string; readonly name: string; readonly input: unknown }[];
      /** What its model needs to continue; absent: nothing, or the message is not as it was any more. */
      readonly thinking?: Thinking;
    }
  | {
      readonly role: 'tool';
      readonly callId: string;
      readonly name: string;
      readonly failed: boolean;
      readonly output: unknown;
      /** Files of the result, which a model that understands them is shown. */
      readonly files?: readonly FileRef[];
    };

export interface Conversation {
  readonly messages: readonly ConversationMessage[];
  /** Size of the messages in characters of JSON text, roughly. */
  readonly chars: number;
  /** What a provider reported: how many tokens it had at how many characters. Absent: none has yet. */
  readonly measured?: { readonly tokens: number; readonly chars: number };
}

export const emptyConversation: Conversation = { messages: [], chars: 0 };

/** Messages of a block: what an added one copies at most, besides the list of blocks now and then. */
const BLOCK = 64;

/**
 * The messages of a conversation in blocks, which it shares with all that continue it: a step costs as much after a thousand
 * others as after ten.
 */
interface Blocks {
  readonly full: readonly (readonly ConversationMessage[])[];
  readonly last: readonly ConversationMessage[];
  readonly count: number;
  /** Index of the newest message that a person wrote; -1: there is none. */
  readonly asked: number;
}

/**
 * A conversation whose list of messages is made when somebody reads it; to everybody else it is as any other. A class, for
 * each event makes one: an object with an accessor of its own takes twenty times as long to make.
 */
class InBlocks implements Conversation {
  readonly chars: number;
  readonly measured?: NonNullable<Conversation['measured']>;
  readonly blocks: Blocks;
  #list: readonly ConversationMessage[] | undefined;

  constructor(made: Blocks, { chars, measured: counted }: Omit<Conversation, 'messages'>) {
    this.blocks = made;
    this.chars = chars;
    if (counted !== undefined) this.measured = counted;
  }

  get messages(): readonly ConversationMessage[] {
    return (this.#list ??= [...this.blocks.full.flat(), ...this.blocks.last]);
  }

  /** As it is in a snapshot. */
  toJSON(): Conversation {
    return { messages: this.messages, chars: this.chars, ...optional({ measured: this.measured }) };
  }
}

/** Of those whose messages came as one list: from a snapshot, or because some of them were removed. */
const blocks = new WeakMap<Conversation, Blocks>();

function blocksOf(conversation: Conversation): Blocks {
  if (conversation instanceof InBlocks) return conversation.blocks;
  const known = blocks.get(conversation);
  if (known !== undefined) return known;
  const { messages } = conversation;
  const full = Array.from({ length: Math.floor(messages.length / BLOCK) }, (_, at) =>
    messages.slice(at * BLOCK, (at + 1) * BLOCK),
  );
  const last = messages.slice(full.length * BLOCK);
  const made = { full, last, count: messages.length, asked: newestOfPerson(messages) };
  blocks.set(conversation, made);
  return made;
}

/**
 * How much of a conversation is kept. Older turns are left out whole, so that cost does not grow with history
 * (promise 6); the canonical history is untouched.
 */
export const CONVERSATION_CHARS_MAX = 1_000_000;
export const CONVERSATION_MESSAGES_MAX = 2_000;

/** A conversation that starts with the agent's input. */
export function startConversation(text: string): Conversation {
  return append(emptyConversation, { role: 'user', text });
}

/** What a person said, when a turn starts with it. */
export function addMessage(conversation: Conversation, text: string, files?: readonly FileRef[]): Conversation {
  return append(withAnswers(conversation), { role: 'user', text, ...(files === undefined ? {} : { files }) });
}

/** Providers refuse a conversation with unanswered calls; a turn that ended early leaves some. */
function withAnswers(conversation: Conversation): Conversation {
  const [last, ...after] = sinceAssistant(conversation);
  if (last?.role !== 'assistant') return conversation;
  const answered = new Set(after.map((message) => (message.role === 'tool' ? message.callId : '')));
  const open = last.toolCalls.filter(({ callId }) => !answered.has(callId));
  const outcome: Outcome = {
    kind: 'failed',
    code: 'cancelled',
    message: 'The turn ended before this call was answered.',
  };
  return open.reduce((now, { callId, name }) => append(now, toolMessage(callId, name, outcome)), conversation);
}

/** The newest messages from the last of the assistant on, without making the list of all. */
function sinceAssistant(conversation: Conversation): readonly ConversationMessage[] {
  const { full, last } = blocksOf(conversation);
  let newer: readonly ConversationMessage[] = [];
  for (let block = full.length; block >= 0; block--) {
    const messages = (block === full.length ? last : full[block]) ?? [];
    const at = messages.findLastIndex(({ role }) => role === 'assistant');
    newer = [...messages.slice(Math.max(at, 0)), ...newer];
    if (at >= 0) break;
  }
  return newer;
}

/**
 * An inherited conversation, and what was said after it. It may have been cut in the middle of a turn: unanswered calls
 * there get an answer.
 */
export function joinConversations(inherited: Conversation, own: Conversation): Conversation {
  const before = withAnswers(inherited);
  const messages = [...before.messages, ...own.messages];
  // What a provider counted for its own part covers all of it; what one counted for the inherited part is its
  // beginning.
  const reported =
    own.measured === undefined ? before.measured : { ...own.measured, chars: own.measured.chars + before.chars };
  const counted = reported === undefined ? {} : { measured: reported };
  return bounded({ messages, chars: before.chars + own.chars, ...counted });
}

/**
 * What `joinConversations` made of an earlier state of `now`, continued with what has come since; null: `now` does not
 * continue `own`, because a part of it was removed or reworded. It costs what was added, however much is inherited.
 */
export function continueJoined(whole: Conversation, own: Conversation, now: Conversation): Conversation | null {
  if (now === own) return whole;
  const added = addedSince(blocksOf(own), blocksOf(now));
  if (added === null) return null;
  const next = added.reduce(append, whole);
  const { measured: counted } = now;
  if (counted === undefined || counted === own.measured) return next;
  const { chars } = next;
  const countedChars = Math.max(0, chars - (now.chars - counted.chars));
  return new InBlocks(blocksOf(next), { chars, measured: { tokens: counted.tokens, chars: countedChars } });
}

/** The messages that a list has after those of another; null: it does not begin with them. */
function addedSince(was: Blocks, is: Blocks): readonly ConversationMessage[] | null {
  const [open = is.last, ...further] = is.full.slice(was.full.length);
  const isSame = was.full.every((block, at) => block === is.full[at]) && was.last.every((one, at) => one === open[at]);
  if (!isSame) return null;
  const rest = open === is.last ? [] : [...further.flat(), ...is.last];
  return [...open.slice(was.last.length), ...rest];
}

/** After an answer: a provider has counted all of it. `tokens`: 0 when it reported none. */
export function measured(conversation: Conversation, tokens: number): Conversation {
  if (tokens === 0) return conversation;
  const { chars } = conversation;
  return new InBlocks(blocksOf(conversation), { chars, measured: { tokens, chars } });
}

/** Characters per token of English text; for what a provider has not counted yet. */
const CHARS_PER_TOKEN = 4;

/** How many tokens a model is about to be sent; `besides`: characters of what is not part of the conversation. */
export function tokensOf({ chars, measured: reported }: Conversation, besides = 0): number {
  if (reported === undefined) return Math.ceil((chars + besides) / CHARS_PER_TOKEN);
  return reported.tokens + Math.ceil(Math.max(0, chars - reported.chars) / CHARS_PER_TOKEN);
}

/** The measurement shrinks with what is left out. */
function lessened(before: Conversation, messages: readonly ConversationMessage[], chars: number): Conversation {
  if (before.measured === undefined || before.chars === 0) return { messages, chars };
  const tokens = Math.ceil((tokensOf(before) * chars) / before.chars);
  return { messages, chars, measured: { tokens, chars } };
}

/** Total. `event` belongs to the agent whose conversation it is; one that its model is not shown changes nothing. */
export function evolveConversation(conversation: Conversation, event: TurnEvent): Conversation {
  switch (event.type) {
    case 'message.assistant':
      return append(conversation, assistantMessage(event.data));
    case 'tool.completed':
      return append(conversation, toolMessage(event.data.callId, event.data.name, event.data.outcome));
    case 'action.completed': {
      const { kind, callId, toolName = '', hook, outcome, files } = event.data;
      if (kind !== 'hook')
        return append(conversation, { ...toolMessage(callId, toolName, outcome), ...optional({ files }) });
      return hook?.at === 'before' && hook.scope === 'turn' ? withInput(conversation, outcome) : conversation;
    }
    case 'delegation.completed':
      return append(conversation, toolMessage(event.data.callId, event.data.agent.id, event.data.outcome));
    case 'conversation.compacted':
      return compacted(conversation, event.data);
    case 'output.rejected':
      return append(conversation, { role: 'user', text: event.data.message, byHost: true });
    default:
      return conversation;
  }
}

function assistantMessage({
  text,
  toolCalls,
  thinking,
}: Extract<TurnEvent, { type: 'message.assistant' }>['data']): ConversationMessage {
  return { role: 'assistant', text, toolCalls, ...optional({ thinking }) };
}

function toolMessage(callId: string, name: string, outcome: Outcome): ConversationMessage {
  const failed = outcome.kind === 'failed';
  const output = failed ? { error: { code: outcome.code, message: outcome.message } } : outcome.output;
  return { role: 'tool', callId, name, failed, output };
}

/** A hook before the turn may reword the message. */
function withInput(conversation: Conversation, outcome: Outcome): Conversation {
  const input: unknown = outcome.kind === 'completed' ? Object(outcome.output)['input'] : undefined;
  const at = conversation.messages.findLastIndex(({ role }) => role === 'user');
  const before = conversation.messages[at];
  if (typeof input !== 'string' || before === undefined) return conversation;
  const messages = conversation.messages.with(at, { ...before, role: 'user', text: input });
  const after = messages[at] ?? before;
  const { chars, measured: counted } = conversation;
  return { messages, chars: chars - sizeOf(before) + sizeOf(after), ...optional({ measured: counted }) };
}

/** A summary in place of what is cut, or long messages without their middles (compaction.ts). */
function compacted(
  conversation: Conversation,
  { head, keep, summary, partChars }: Extract<TurnEvent, { type: 'conversation.compacted' }>['data'],
): Conversation {
  if (partChars !== undefined) return shortened(conversation, partChars);
  const { messages, chars } = conversation;
  const text =
    summary === ''
      ? 'Earlier parts of this conversation were left out, because they did not fit.'
      : `Summary of the earlier conversation:\n${summary}`;
  const gone = messages.slice(head, messages.length - keep);
  const left = { messages: messages.slice(0, head), chars: chars - gone.reduce((sum, one) => sum + sizeOf(one), 0) };
  const told = append(left, { role: 'user', text, byHost: true });
  return lessened(conversation, [...told.messages, ...messages.slice(messages.length - keep)], told.chars);
}

/** Every message except the newest that a person wrote, cut to at most this length by leaving out the middle. */
export function shortened(conversation: Conversation, partChars: number): Conversation {
  const kept = newestOfPerson(conversation.messages);
  const messages = conversation.messages.map((message, i) =>
    i === kept || sizeOf(message) <= partChars ? message : shorter(message, partChars),
  );
  return lessened(conversation, messages, sizeOfAll(messages));
}

function shorter(message: ConversationMessage, partChars: number): ConversationMessage {
  switch (message.role) {
    case 'user':
      return { ...message, text: withoutMiddle(message.text, partChars) };
    case 'tool': {
      const { output } = message;
      return {
        ...message,
        output: withoutMiddle(typeof output === 'string' ? output : JSON.stringify(output ?? null), partChars),
      };
    }
    case 'assistant': {
      const each = Math.floor(partChars / (message.toolCalls.length + 1));
      const toolCalls = message.toolCalls.map((call) => {
        const input = JSON.stringify(call.input ?? null);
        // Providers require an object as input, and no other form of it shows that it is not what was sent.
        return input.length <= each ? call : { ...call, input: { shortened: withoutMiddle(input, each) } };
      });
      // What was thought is signed for the message as it was.
      return { role: 'assistant', text: withoutMiddle(message.text, each), toolCalls };
    }
  }
}

function withoutMiddle(text: string, charsMax: number): string {
  if (text.length <= charsMax) return text;
  const half = Math.floor(charsMax / 2);
  const gone = `\n[${text.length - 2 * half} characters are left out here]\n`;
  return (text.slice(0, half) + gone + text.slice(text.length - half)).toWellFormed();
}

/** Index of the newest message that a person wrote; what the Host itself asks the model for belongs to its turn. */
export function newestOfPerson(messages: readonly ConversationMessage[]): number {
  return messages.findLastIndex(isOfPerson);
}

function isOfPerson(message: ConversationMessage): boolean {
  return message.role === 'user' && message.byHost !== true;
}

function append(conversation: Conversation, message: ConversationMessage): Conversation {
  const { full, last, count, asked } = blocksOf(conversation);
  const isFull = last.length >= BLOCK;
  const next = {
    full: isFull ? [...full, last] : full,
    last: isFull ? [message] : [...last, message],
    count: count + 1,
    asked: isOfPerson(message) ? count : asked,
  };
  const { chars, measured: counted } = conversation;
  return bounded(new InBlocks(next, { chars: chars + sizeOf(message), ...optional({ measured: counted }) }));
}

function bounded(conversation: Conversation): Conversation {
  const count = conversation instanceof InBlocks ? conversation.blocks.count : conversation.messages.length;
  if (conversation.chars <= CONVERSATION_CHARS_MAX && count <= CONVERSATION_MESSAGES_MAX) return conversation;
  // Nothing is older than the newest turn.
  return blocksOf(conversation).asked > 0 ? withoutOldTurns(conversation) : conversation;
}

/** Drops the oldest turns until three quarters of the bound are left, never the newest turn. */
function withoutOldTurns(conversation: Conversation): Conversation {
  const { messages } = conversation;
  const newest = newestOfPerson(messages);
  let from = 0;
  let { chars } = conversation;
  const tooMuch = (): boolean =>
    chars > CONVERSATION_CHARS_MAX * 0.75 || messages.length - from > CONVERSATION_MESSAGES_MAX * 0.75;
  while (from < newest && (tooMuch() || messages[from]?.role !== 'user')) {
    const gone = messages[from];
    if (gone !== undefined) chars -= sizeOf(gone);
    from++;
  }
  return from === 0 ? conversation : lessened(conversation, messages.slice(from), chars);
}

/** A reference; the bytes are not part of what is kept. */
const FILE_CHARS = 80;

/** By identity: messages never change, and the size of long ones is needed again and again. */
const sizes = new WeakMap<ConversationMessage, number>();

/** Size of a message in characters of JSON text, roughly. */
export function sizeOf(message: ConversationMessage): number {
  const known = sizes.get(message);
  if (known !== undefined) return known;
  const size = measure(message);
  sizes.set(message, size);
  return size;
}

/** The same of several. */
export function sizeOfAll(messages: readonly ConversationMessage[]): number {
  return messages.reduce((sum, message) => sum + sizeOf(message), 0);
}

function measure(message: ConversationMessage): number {
  if (message.role === 'user') return message.text.length + 30 + (message.files?.length ?? 0) * FILE_CHARS;
  if (message.role === 'tool')
    return JSON.stringify(message.output ?? null).length + 60 + (message.files?.length ?? 0) * FILE_CHARS;
  const thought = message.thinking === undefined ? 0 : sizeOfThinking(message.thinking);
  return message.text.length + JSON.stringify(message.toolCalls).length + thought + 40;
}

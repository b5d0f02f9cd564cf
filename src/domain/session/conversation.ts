import type { SessionEvent } from './events.ts';

/** What a model is shown of a session, derived from its events and from nothing else (design, section 5). */
export type ConversationMessage =
  | { readonly role: 'user'; readonly text: string }
  | {
      readonly role: 'assistant';
      readonly text: string;
      readonly toolCalls: readonly { readonly callId: string; readonly name: string; readonly input: unknown }[];
    }
  | {
      readonly role: 'tool';
      readonly callId: string;
      readonly name: string;
      readonly failed: boolean;
      readonly output: unknown;
    };

export interface Conversation {
  readonly messages: readonly ConversationMessage[];
  /** Size of the messages in characters of JSON text, roughly. */
  readonly chars: number;
}

export const emptyConversation: Conversation = { messages: [], chars: 0 };

/**
 * How much of a conversation is kept. Older turns are left out whole, so that cost does not grow with history
 * (promise 6); the canonical history is untouched.
 */
export const CONVERSATION_CHARS_MAX = 1_000_000;
export const CONVERSATION_MESSAGES_MAX = 2_000;

export function evolveConversation(conversation: Conversation, event: SessionEvent): Conversation {
  switch (event.type) {
    case 'command.message':
      return append(conversation, { role: 'user', text: messageText(event.data) });
    case 'message.assistant':
      return append(conversation, { role: 'assistant', text: event.data.text, toolCalls: event.data.toolCalls });
    case 'tool.completed': {
      const { callId, name, outcome } = event.data;
      const failed = outcome.kind === 'failed';
      const output =
        outcome.kind === 'failed' ? { error: { code: outcome.code, message: outcome.message } } : outcome.output;
      return append(conversation, { role: 'tool', callId, name, failed, output });
    }
    default:
      return conversation;
  }
}

/** The text of a message command: its content, or its text parts one under the other. */
export function messageText(message: {
  content?: string | undefined;
  parts?: readonly { text: string }[] | undefined;
}): string {
  return message.content ?? (message.parts ?? []).map((part) => part.text).join('\n');
}

function append(conversation: Conversation, message: ConversationMessage): Conversation {
  const messages = [...conversation.messages, message];
  const chars = conversation.chars + sizeOf(message);
  if (chars <= CONVERSATION_CHARS_MAX && messages.length <= CONVERSATION_MESSAGES_MAX) return { messages, chars };
  return withoutOldTurns(messages, chars);
}

/** Drops the oldest turns until three quarters of the bound are left, never the newest turn. */
function withoutOldTurns(messages: readonly ConversationMessage[], size: number): Conversation {
  const newest = messages.findLastIndex((message) => message.role === 'user');
  let from = 0;
  let chars = size;
  const tooMuch = (): boolean =>
    chars > CONVERSATION_CHARS_MAX * 0.75 || messages.length - from > CONVERSATION_MESSAGES_MAX * 0.75;
  while (from < newest && (tooMuch() || messages[from]?.role !== 'user')) {
    const gone = messages[from];
    if (gone !== undefined) chars -= sizeOf(gone);
    from++;
  }
  return { messages: messages.slice(from), chars };
}

function sizeOf(message: ConversationMessage): number {
  if (message.role === 'user') return message.text.length + 30;
  if (message.role === 'tool') return JSON.stringify(message.output ?? null).length + 60;
  return message.text.length + JSON.stringify(message.toolCalls).length + 40;
}

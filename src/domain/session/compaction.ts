import type { Conversation, ConversationMessage } from './conversation.ts';

/** Which messages stay when a conversation is compacted: so many at its head and its tail. What is between is summarised. */
export interface Cut {
  readonly head: number;
  readonly keep: number;
}

/** How much of what is summarised a model is shown, as a part of the conversation that was too long for it. */
const SHOWN_PART = 0.5;

/**
 * Where to cut a conversation that no longer fits the model. Older turns go first; a turn that is alone keeps its message
 * and its newest step. Null: there is nothing to take away. `inherits`: an inherited conversation comes before it, which
 * is older than all of it and goes as a whole, with the head of this one.
 */
export function cutOf({ messages }: Conversation, inherits = false): Cut | null {
  const newest = messages.findLastIndex((message) => message.role === 'user' && message.byHost !== true);
  if (inherits && newest >= 0) return { head: 0, keep: messages.length - newest };
  if (newest > 0 && !isSummary(messages[newest - 1], newest)) return { head: 0, keep: messages.length - newest };
  const step = messages.findLastIndex(({ role }) => role === 'assistant');
  const head = Math.max(0, newest) + 1;
  return step > head ? { head, keep: messages.length - step } : null;
}

/** A summary that stands alone before the newest message: summarising it again takes nothing away. */
function isSummary(message: ConversationMessage | undefined, index: number): boolean {
  return index === 1 && message?.role === 'user' && message.byHost === true;
}

/** What a model is asked, to get a summary of what is cut. Only the newest part of it, where all would not fit either. */
export function summaryTask(conversation: Conversation, { head, keep }: Cut): string {
  const { messages, chars } = conversation;
  const told = messages
    .slice(head, messages.length - keep)
    .map(lineOf)
    .join('\n');
  const shown = told.slice(-Math.max(1_000, Math.floor(chars * SHOWN_PART)));
  return (
    'Summarise the conversation below for the assistant that will go on with it. Keep facts, decisions, names, numbers, ' +
    `file paths and what is still to be done. Answer with the summary only.\n\n${shown}`
  );
}

function lineOf(message: ConversationMessage): string {
  switch (message.role) {
    case 'user':
      return `User: ${message.text}`;
    case 'tool':
      return `Result of ${message.name}: ${JSON.stringify(message.output ?? null)}`;
    case 'assistant': {
      const calls = message.toolCalls.map(
        ({ name, input }) => ` [calls ${name} with ${JSON.stringify(input ?? null)}]`,
      );
      return `Assistant: ${message.text}${calls.join('')}`;
    }
  }
}

import { newestOfPerson, shortened, sizeOf, sizeOfAll } from './conversation.ts';
import type { Conversation, ConversationMessage } from './conversation.ts';

/** How many messages stay at the head and the tail when a conversation is compacted. What is between is summarised. */
export interface Cut {
  readonly head: number;
  readonly keep: number;
}

/** How a conversation that no longer fits is compacted. */
export type Shrink =
  | { readonly kind: 'summary'; readonly cut: Cut }
  /** Each message loses its middle beyond this many characters; no model has to be asked. */
  | { readonly kind: 'parts'; readonly partChars: number };

/** A summary is requested, and paid for, if it removes at least this fraction of the conversation. */
const WORTH_PART = 0.1;
/**
 * Less than this is replaced by hardly fewer words; of a conversation that is hardly longer, it is still a large part,
 * characters.
 */
const WORTH_CHARS = 500;
const SHORT_CHARS = 1_000;
/** No message is cut shorter than this, characters. */
const PART_CHARS_MIN = 1_000;
/** Cutting messages has to shrink the conversation by at least this fraction, or there is nothing left to cut. */
const CUT_PART = 0.05;
/** A summary has half the length of what it replaces, within these bounds, characters. */
const SUMMARY_CHARS_MIN = 200;
const SUMMARY_CHARS_MAX = 20_000;
/** How much of what is summarised a model is shown, as a fraction of the conversation that was too long for it. */
const SHOWN_PART = 0.5;

/**
 * How to compact a conversation that no longer fits the model: older turns are summarised first, then the older steps
 * of a single remaining turn, which keeps its message and its newest step; then what is long is cut. Each makes it
 * smaller, so repetition terminates. Null: nothing can be removed. `inherits`: an inherited conversation comes before
 * it, which is older than all of it and goes as a whole.
 */
export function shrinkOf(conversation: Conversation, inherits = false): Shrink | null {
  const { messages, chars } = conversation;
  const newest = newestOfPerson(messages);
  const cuts: Cut[] = [];
  if (newest >= 0 && (inherits || newest > 0)) cuts.push({ head: 0, keep: messages.length - newest });
  const step = messages.findLastIndex(({ role }) => role === 'assistant');
  const head = Math.max(0, newest) + 1;
  if (!inherits && step > head) cuts.push({ head, keep: messages.length - step });
  const sized = cuts.map((cut) => ({ cut, chars: charsGone(conversation, { cut, inherits }) }));
  const least = chars < SHORT_CHARS ? 1 : WORTH_CHARS;
  const worth = sized.find((one) => one.chars >= Math.max(least, chars * WORTH_PART));
  if (worth !== undefined) return { kind: 'summary', cut: worth.cut };
  const partChars = partCharsOf(conversation);
  if (partChars !== null) return { kind: 'parts', partChars };
  const any = sized.find((one) => one.chars >= least);
  return any === undefined ? null : { kind: 'summary', cut: any.cut };
}

/** What a cut removes, characters. What is inherited is not counted: removing that is always worth it. */
function charsGone({ messages }: Conversation, { cut, inherits }: { cut: Cut; inherits: boolean }): number {
  if (inherits && cut.head === 0) return Number.POSITIVE_INFINITY;
  const gone = messages.slice(cut.head, messages.length - cut.keep);
  // A summary of nothing but summaries removes nothing that cutting would not.
  return gone.every((message) => message.role === 'user' && message.byHost === true) ? 0 : sizeOfAll(gone);
}

/** The length that halves the conversation when no message is longer; null: cutting would not make it smaller. */
function partCharsOf(conversation: Conversation): number | null {
  const { messages, chars } = conversation;
  const kept = newestOfPerson(messages);
  const parts = messages.flatMap((message, i) => (i === kept ? [] : [sizeOf(message)]));
  const whole = sizeOfAll(messages) - parts.reduce((sum, size) => sum + size, 0);
  let partChars = Math.floor(parts.reduce((most, size) => Math.max(most, size), 0) / 2);
  const left = (): number => parts.reduce((sum, size) => sum + Math.min(size, partChars), whole);
  while (partChars > PART_CHARS_MIN && left() > chars / 2) partChars = Math.floor(partChars / 2);
  partChars = Math.max(partChars, PART_CHARS_MIN);
  return shortened(conversation, partChars).chars < chars * (1 - CUT_PART) ? partChars : null;
}

/** A summary that is shorter than what it replaces, whatever the model wrote. */
export function boundedSummary(
  summary: string,
  { messages }: Conversation,
  { cut, inherits }: { readonly cut: Cut; readonly inherits: boolean },
): string {
  const gone = sizeOfAll(messages.slice(cut.head, messages.length - cut.keep));
  const half = inherits && cut.head === 0 ? SUMMARY_CHARS_MAX : Math.floor(gone / 2);
  const charsMax = Math.min(SUMMARY_CHARS_MAX, Math.max(SUMMARY_CHARS_MIN, half));
  return summary.slice(0, charsMax).toWellFormed();
}

/**
 * The request to a model for a summary of what is cut; only the newest part, if all of it would not fit either.
 * `charsMax`: what the model is known to accept, characters.
 */
export function summaryTask(conversation: Conversation, { head, keep }: Cut, charsMax: number | null = null): string {
  const { messages, chars } = conversation;
  const told = messages
    .slice(head, messages.length - keep)
    .map(lineOf)
    .join('\n');
  const part = Math.max(1_000, Math.floor(chars * SHOWN_PART));
  const shown = told.slice(-Math.min(part, charsMax ?? part));
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

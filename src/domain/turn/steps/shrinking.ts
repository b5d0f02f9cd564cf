import { boundedSummary, shrinkOf } from '../compaction.ts';
import type { Cut, Shrink } from '../compaction.ts';
import type { Running, SessionOfTurn } from '../running.ts';
import type { Thread } from '../thread.ts';
import { failThread } from './ending.ts';
import type { Step } from './step.ts';

/** How often in a row a conversation is compacted for one step; each makes it smaller, so few need this many. */
export const COMPACTIONS_MAX = 16;
/** Summaries that one turn requests and pays for; beyond it what is too old is left out without one. */
export const SUMMARIES_MAX = 20;

type Conversations = Pick<SessionOfTurn, 'conversation' | 'inherits'>;

/**
 * How the conversation of a thread is compacted: an agent used as a tool has its own, the session's may continue an
 * inherited one.
 */
function shrinkOfThread(session: Conversations, thread: Thread): Shrink | null {
  if (thread.compactions >= COMPACTIONS_MAX) return null;
  return thread.conversation === null
    ? shrinkOf(session.conversation, session.inherits)
    : shrinkOf(thread.conversation);
}

/** What is to be summarised; null: no summary is needed. */
export function cutOfThread(session: Conversations, thread: Thread): Cut | null {
  const wanted = shrinkOfThread(session, thread);
  return wanted?.kind === 'summary' ? wanted.cut : null;
}

/** Whether anything can be removed from a conversation that is too long. */
export function isCompactable(at: Running): boolean {
  return shrinkOfThread(at.session, at.thread) !== null;
}

/** Does at once what needs no model; if a summary is needed, the next request asks for it. */
export function shrink(at: Running): Step {
  const wanted = shrinkOfThread(at.session, at.thread);
  if (wanted?.kind === 'parts' || at.thread.summaries >= SUMMARIES_MAX) return summarise(at, '');
  return 'next';
}

/** Replaces what was summarised by the summary, or cuts what is long if there is nothing to summarise. */
export function summarise(at: Running, text: string): Step {
  const { session, thread, conversation, stamp } = at;
  const wanted = shrinkOfThread(session, thread);
  if (wanted === null) {
    const message = 'The conversation is longer than the context of the model, and nothing more of it can be left out.';
    return failThread(at, { code: 'model_context_overflow', message });
  }
  if (wanted.kind === 'summary') {
    const { cut } = wanted;
    const inherits = thread.conversation === null && session.inherits;
    const summary = boundedSummary(text, conversation, { cut, inherits });
    at.add({ type: 'conversation.compacted', data: { ...stamp, summary, ...cut } });
  } else {
    const all = { head: conversation.messages.length, keep: 0 };
    const { partChars } = wanted;
    at.add({ type: 'conversation.compacted', data: { ...stamp, summary: '', ...all, partChars } });
  }
  return 'next';
}

import { boundedSummary, shrinkOf } from '../session/compaction.ts';
import type { Cut, Shrink } from '../session/compaction.ts';
import type { OpenSession } from '../session/state.ts';
import { byAgent, running } from './draft.ts';
import type { SessionDraft } from './draft.ts';
import { failThread } from './end.ts';
import type { Thread } from './thread.ts';

/** Times in a row that a conversation is made smaller for one step; each makes it smaller, so few need as many. */
export const COMPACTIONS_MAX = 16;
/** Summaries that one turn asks a model for and pays; past it what is too old is left out without. */
export const SUMMARIES_MAX = 20;

/** How the conversation of a thread is made smaller: an agent used as a tool has its own, the session's may go on an inherited one. */
function shrinkOfThread(session: Pick<OpenSession, 'conversation' | 'inherits'>, thread: Thread): Shrink | null {
  if (thread.compactions >= COMPACTIONS_MAX) return null;
  return thread.conversation === null
    ? shrinkOf(session.conversation, session.inherits)
    : shrinkOf(thread.conversation);
}

/** What a summary is asked for of; null: none is wanted. */
export function cutOfThread(session: Pick<OpenSession, 'conversation' | 'inherits'>, thread: Thread): Cut | null {
  const wanted = shrinkOfThread(session, thread);
  return wanted?.kind === 'summary' ? wanted.cut : null;
}

/** Whether anything can be taken away from a conversation that is too long. */
export function isCompactable(draft: SessionDraft, thread: Thread): boolean {
  const now = running(draft);
  return now !== null && shrinkOfThread(now.session, thread) !== null;
}

/** Does at once what no model has to be asked for; where a summary is wanted, the next request is that. */
export function shrink(draft: SessionDraft, threadId: string): void {
  const now = running(draft);
  const thread = now?.turn.threads[threadId];
  if (now === null || thread === undefined) return;
  const wanted = shrinkOfThread(now.session, thread);
  if (wanted?.kind === 'parts' || thread.summaries >= SUMMARIES_MAX) summarise(draft, threadId, '');
}

/** Puts a summary in the place of what it was asked for of, or cuts what is long where there is nothing to summarise. */
export function summarise(draft: SessionDraft, threadId: string, text: string): void {
  const now = running(draft);
  const thread = now?.turn.threads[threadId];
  if (now === null || thread === undefined) return;
  const conversation = thread.conversation ?? now.session.conversation;
  const wanted = shrinkOfThread(now.session, thread);
  const common = { turnId: now.turn.turnId, ...byAgent(thread) };
  if (wanted?.kind === 'summary') {
    const { cut } = wanted;
    const inherits = thread.conversation === null && now.session.inherits;
    const summary = boundedSummary(text, conversation, { cut, inherits });
    draft.add({ type: 'conversation.compacted', data: { ...common, summary, ...cut } });
  } else if (wanted?.kind === 'parts') {
    const all = { head: conversation.messages.length, keep: 0 };
    const { partChars } = wanted;
    draft.add({ type: 'conversation.compacted', data: { ...common, summary: '', ...all, partChars } });
  } else {
    const message = 'The conversation is longer than the context of the model, and nothing more of it can be left out.';
    failThread(draft, threadId, { code: 'model_context_overflow', message });
  }
}

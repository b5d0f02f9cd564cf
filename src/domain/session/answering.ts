import type { TurnContext } from '../turn/context.ts';
import { running } from '../turn/running.ts';
import type { Running } from '../turn/running.ts';
import { draftOf } from './state.ts';
import type { SessionDraft, SessionState } from './state.ts';

/** A turn that is being answered. */
export interface Answering {
  readonly draft: SessionDraft;
  readonly at: Running;
}

/** The running turn that an answer is for; null: none. */
export function answering(state: SessionState, { nowMs }: TurnContext): Answering | null {
  const draft = draftOf(state, nowMs);
  const at = running(draft);
  return at === null ? null : { draft, at };
}

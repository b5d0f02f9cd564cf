import { activeTurn } from './draft.ts';
import type { SessionDraft, TurnContext } from './draft.ts';
import { advance } from './process.ts';
import { rootOf } from './state.ts';
import { ROOT } from './thread.ts';
import { answerCall, openToolCalls } from './tools.ts';

/**
 * Settles the calls that a failed turn left without a result, and takes the turn that goes on with it from there. A call
 * that an executor had claimed may have run: it is not made again, the model is told. All others were never begun, and
 * are opened as if the step had just been answered; agents used as tools ended with their turn, and the model knows.
 */
export function goOn(draft: SessionDraft, context: TurnContext): void {
  const turn = activeTurn(draft);
  if (turn === null) return;
  const thread = rootOf(turn);
  for (const call of thread.openToolCalls) {
    if (!thread.doubtful.includes(call.callId)) continue;
    const message = 'The turn failed while this call was under way, and it is not known whether it ran.';
    answerCall(draft, { thread, call, code: 'effect_lost', message });
  }
  openToolCalls(draft, ROOT);
  advance(draft, context);
}

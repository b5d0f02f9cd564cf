import type { TurnContext } from './context.ts';
import { advance } from './process.ts';
import { running } from './running.ts';
import type { TurnDraft } from './running.ts';
import { answerCall } from './steps/tool-kind.ts';
import { openToolCalls } from './steps/tools.ts';

/**
 * Settles the calls that a failed turn left without a result, and advances the turn that continues it from there. A
 * call that an executor had claimed may have run: it is not made again, the model is told. All others never started,
 * and are opened as if the step had just been answered; agents used as tools ended with their turn, and the model
 * knows.
 */
export function resume(draft: TurnDraft, context: TurnContext): void {
  const at = running(draft);
  if (at === null) return;
  const { openToolCalls: open, doubtful } = at.thread;
  for (const call of open.filter(({ callId }) => doubtful.includes(callId))) {
    const message = 'The turn failed while this call was under way, and it is not known whether it ran.';
    answerCall(at, call, { code: 'effect_lost', message });
  }
  openToolCalls(at);
  advance(draft, context);
}

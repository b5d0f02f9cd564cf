import type { TurnContext } from './context.ts';
import { isCalling, wantsModel } from './jobs.ts';
import type { Running } from './running.ts';
import { beginWaiting } from './steps/agent-tools.ts';
import { hookAfterStep, hookBeforeTurn } from './steps/hooks.ts';
import { askModel } from './steps/model.ts';
import { hold } from './steps/hold.ts';
import { finish } from './steps/output.ts';
import type { Step } from './steps/step.ts';

/** Advances every thread as far as it gets without an answer; a thread's end may let its parent continue. */
export function progress(at: Running, context: TurnContext): void {
  for (let isMoving = true; isMoving && !at.isOver;) {
    isMoving = false;
    for (const thread of at.threads()) {
      if (!thread.isOver && stepOf(thread, context) !== 'waits') isMoving = true;
    }
  }
}

/** The next step of a thread; `Thread` shows their order. */
function stepOf(at: Running, context: TurnContext): Step {
  const { thread } = at;
  // Effects that are open without a worker begin with the next one.
  if (isCalling(thread) && at.turn.claim === null) hold(at, context);
  if (isCalling(thread)) return 'waits';
  if (!wantsModel(thread)) return beginWaiting(at);
  switch (thread.phase) {
    case 'begin': {
      const hooked = hookBeforeTurn(at);
      return hooked === 'next' ? askModel(at, context) : hooked;
    }
    case 'model':
      return askModel(at, context);
    case 'tools': {
      const hooked = hookAfterStep(at);
      if (hooked !== 'next') return hooked;
      return thread.calledTools && !thread.stopped ? askModel(at, context) : finish(at);
    }
  }
}

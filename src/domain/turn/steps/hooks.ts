import type { HookPoint } from '../../agent/manifest.ts';
import type { Running } from '../running.ts';
import { hookName } from '../thread.ts';
import type { Step } from './step.ts';
import { declaredTools } from './tools.ts';

/* Executors are told nothing at a hook that they could read from the history, except the newest step. */

export function hookBeforeTurn(at: Running): Step {
  return offer(at, { at: 'before', scope: 'turn' }, () => {
    const asked = at.conversation.messages.findLast((message) => message.role === 'user');
    return { input: asked?.text ?? '' };
  });
}

export function hookBeforeStep(at: Running): Step {
  return offer(at, { at: 'before', scope: 'step' }, () => {
    const tools = declaredTools(at.manifest, at.thread).map(({ name }) => name);
    return { step: at.thread.step, tools };
  });
}

export function hookAfterStep(at: Running): Step {
  return offer(at, { at: 'after', scope: 'step' }, () => {
    const { step, lastText: text } = at.thread;
    const last = at.conversation.messages.findLast((message) => message.role === 'assistant');
    return { step: step - 1, text, toolCalls: last?.toolCalls ?? [] };
  });
}

/** @param output what the thread would give now */
export function hookAfterTurn(at: Running, output: unknown): Step {
  return offer(at, { at: 'after', scope: 'turn' }, () => ({ output }));
}

/** Offers the hook that the thread's agent has at this point, unless it is done; the thread then waits for it. */
function offer(at: Running, hook: HookPoint, input: () => Readonly<Record<string, unknown>>): Step {
  const name = hookName(hook);
  if (at.thread.passed.includes(name)) return 'next';
  const { hooks = [] } = at.manifest;
  if (!hooks.some((one) => hookName(one) === name)) return 'next';
  const actionId = at.nextId('ac');
  const { agentId, stamp } = at;
  const action = { actionId, generation: 1, kind: 'hook', agentId, hook, callId: actionId, input: input() } as const;
  at.add({ type: 'action.pending', data: { ...stamp, ...action } });
  return 'waits';
}

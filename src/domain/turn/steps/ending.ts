import type { Outcome } from '../../action/events.ts';
import { optional } from '../../kernel/optional.ts';
import { toMs } from '../../kernel/time.ts';
import type { TurnError } from '../events.ts';
import type { Running } from '../running.ts';
import { callsInDoubt } from '../thread.ts';
import type { Thread } from '../thread.ts';
import { cancelMcpCalls, leaveMcpCalls } from './mcp-ending.ts';
import type { Step } from './step.ts';

/** Hands over a thread's output: the session's own thread ends the turn, an agent used as a tool answers its call. */
export function completeThread(at: Running, output: unknown): Step {
  const { turnId } = at;
  const { agent, callId } = at.thread;
  if (agent === null || callId === null) {
    at.add({ type: 'turn.completed', data: { turnId, output, usage: at.turn.usage } });
    return 'ended';
  }
  const outcome: Outcome = { kind: 'completed', output };
  at.add({ type: 'delegation.completed', data: { turnId, agent, callId, status: 'completed', outcome } });
  return 'ended';
}

/**
 * Ends a thread that cannot continue: the session's own fails the turn, an agent used as a tool returns a failed
 * result.
 */
export function failThread(at: Running, error: TurnError): Step {
  const { turnId } = at;
  const { agent, callId } = at.thread;
  if (agent === null || callId === null) return failTurn(at, error);
  cancelCalls(at);
  withdraw(at, agent.delegationId);
  const outcome = { kind: 'failed', ...error } as const;
  at.add({ type: 'delegation.completed', data: { turnId, agent, callId, status: 'failed', outcome } });
  return 'ended';
}

/** Ends the turn as failed, whatever it is doing. */
export function failTurn(at: Running, error: TurnError): Step {
  breakOff(at);
  at.add({ type: 'turn.failed', data: { turnId: at.turnId, error } });
  return 'ended';
}

/** Ends the turn as cancelled, whatever it is doing. */
export function cancelTurn(at: Running, reason: string | undefined): Step {
  breakOff(at);
  at.add({ type: 'turn.cancelled', data: { turnId: at.turnId, ...optional({ reason }) } });
  return 'ended';
}

/** Ends a turn past its deadline, whatever it is doing. Its clock stops while it waits for people. */
export function expireTurn(at: Running, nowMs: number): Step {
  const { pausedAt, deadlineAt } = at.turn;
  if (pausedAt !== null || nowMs < toMs(deadlineAt)) return 'next';
  return failTurn(at, { code: 'turn_timeout', message: 'The turn took longer than its limits.maxTurnSeconds.' });
}

/** Ends everything that the turn has in progress: model calls, agents used as tools, what was offered and asked. */
function breakOff(at: Running): void {
  for (const thread of at.threads()) cancelCalls(thread);
  for (const thread of at.threads()) {
    const { agent, callId } = thread.thread;
    if (agent === null || callId === null) continue;
    const outcome = { kind: 'failed', code: 'cancelled', message: 'The turn ended before the agent did.' } as const;
    const ended = { turnId: at.turnId, agent, callId, status: 'cancelled', outcome } as const;
    at.add({ type: 'delegation.completed', data: ended });
  }
  withdraw(at, null);
}

/** Ends the calls that a thread has under way, and says of which it is not known whether they happened. */
function cancelCalls(at: Running): void {
  giveUpCall(at, 'cancelled');
  for (const { actionId: effectId, callId } of callsInDoubt(at.thread)) {
    at.add({ type: 'effect.uncertain', data: { ...at.stamp, effectId, kind: 'sandbox', reason: 'cancelled', callId } });
  }
  cancelMcpCalls(at);
}

/** A worker no longer runs the turn: whether its unanswered calls happened is not known. */
export function giveUpCalls(at: Running, reason: 'lost' | 'cancelled'): void {
  for (const thread of at.threads()) {
    giveUpCall(thread, reason);
    leaveMcpCalls(thread);
  }
}

function giveUpCall(at: Running, reason: 'lost' | 'cancelled'): void {
  const { pending } = at.thread;
  if (pending === null) return;
  const { effectId, callId } = pending;
  at.add({ type: 'effect.uncertain', data: { ...at.stamp, effectId, kind: 'model', reason, callId } });
}

/** Withdraws what was offered and asked: of one delegation, or of the whole turn (null). */
function withdraw(at: Running, delegationId: string | null): void {
  const { turnId } = at;
  const { work } = at.turn;
  const isMeant = ({ agent }: { agent: Thread['agent'] }): boolean =>
    delegationId === null || agent?.delegationId === delegationId;
  for (const action of Object.values(work.actions)) {
    if (isMeant(action)) at.add({ type: 'action.withdrawn', data: { turnId, actionId: action.actionId } });
  }
  for (const interaction of Object.values(work.interactions)) {
    const { interactionId } = interaction;
    if (isMeant(interaction)) at.add({ type: 'interaction.withdrawn', data: { turnId, interactionId } });
  }
}

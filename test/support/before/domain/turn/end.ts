import { toMs } from '#src/domain/kernel/time.ts';
import { activeTurn, byAgent } from './draft.ts';
import type { SessionDraft } from './draft.ts';
import type { TurnError } from './events.ts';
import type { Thread } from './thread.ts';
import { ROOT } from './thread.ts';

/** Ends the turn as failed, whatever it is doing. */
export function failTurn(draft: SessionDraft, error: TurnError): void {
  const turn = activeTurn(draft);
  if (turn === null) return;
  giveUpCalls(draft, 'cancelled');
  endDelegations(draft);
  withdraw(draft, null);
  draft.add({ type: 'turn.failed', data: { turnId: turn.turnId, error } });
}

/** Ends the turn as cancelled, whatever it is doing. */
export function cancelTurn(draft: SessionDraft, reason: string | undefined): void {
  const turn = activeTurn(draft);
  if (turn === null) return;
  giveUpCalls(draft, 'cancelled');
  endDelegations(draft);
  withdraw(draft, null);
  draft.add({ type: 'turn.cancelled', data: { turnId: turn.turnId, ...(reason === undefined ? {} : { reason }) } });
}

function endDelegations(draft: SessionDraft): void {
  const turn = activeTurn(draft);
  for (const { agent, callId } of Object.values(turn?.threads ?? {})) {
    if (turn === null || agent === null || callId === null) continue;
    const outcome = { kind: 'failed', code: 'cancelled', message: 'The turn ended before the agent did.' } as const;
    const ended = { turnId: turn.turnId, agent, callId, status: 'cancelled', outcome } as const;
    draft.add({ type: 'delegation.completed', data: ended });
  }
}

/** A thread that cannot go on: the session's own ends the turn, an agent used as a tool gives a failed result. */
export function failThread(draft: SessionDraft, threadId: string, error: TurnError): void {
  const turn = activeTurn(draft);
  const thread = turn?.threads[threadId];
  if (turn === null || thread === undefined) return;
  const { agent, callId } = thread;
  if (threadId === ROOT || agent === null || callId === null) {
    failTurn(draft, error);
    return;
  }
  giveUpCall(draft, thread, 'cancelled');
  withdraw(draft, agent.delegationId);
  const outcome = { kind: 'failed', ...error } as const;
  draft.add({ type: 'delegation.completed', data: { turnId: turn.turnId, agent, callId, status: 'failed', outcome } });
}

/** Ends a turn whose time is over, whatever it is doing. Its time stands still while it waits for people. */
export function expireTurn(draft: SessionDraft, nowMs: number): void {
  const turn = activeTurn(draft);
  if (turn === null || turn.pausedAt !== null || nowMs < toMs(turn.deadlineAt)) return;
  failTurn(draft, { code: 'turn_timeout', message: 'The turn took longer than its limits.maxTurnSeconds.' });
}

/** Of every model call that has not answered it is not known whether it happened. */
export function giveUpCalls(draft: SessionDraft, reason: 'lost' | 'cancelled'): void {
  for (const thread of Object.values(activeTurn(draft)?.threads ?? {})) giveUpCall(draft, thread, reason);
}

function giveUpCall(draft: SessionDraft, thread: Thread, reason: 'lost' | 'cancelled'): void {
  const turn = activeTurn(draft);
  if (turn === null || thread.pending === null) return;
  const { effectId, callId } = thread.pending;
  draft.add({
    type: 'effect.uncertain',
    data: { turnId: turn.turnId, effectId, kind: 'model', reason, callId, ...byAgent(thread) },
  });
}

/** Takes back what was offered and asked: of one delegation, or of the whole turn (null). */
function withdraw(draft: SessionDraft, delegationId: string | null): void {
  const turn = activeTurn(draft);
  if (turn === null) return;
  const { turnId, work } = turn;
  const isMeant = ({ agent }: { agent: Thread['agent'] }): boolean =>
    delegationId === null || agent?.delegationId === delegationId;
  for (const action of Object.values(work.actions)) {
    if (isMeant(action)) draft.add({ type: 'action.withdrawn', data: { turnId, actionId: action.actionId } });
  }
  for (const interaction of Object.values(work.interactions)) {
    const { interactionId } = interaction;
    if (isMeant(interaction)) draft.add({ type: 'interaction.withdrawn', data: { turnId, interactionId } });
  }
}

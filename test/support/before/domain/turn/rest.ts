import { toMs, toTimestamp } from '#src/domain/kernel/time.ts';
import { activeTurn } from './draft.ts';
import type { SessionDraft, TurnContext } from './draft.ts';
import { waitKey } from './state.ts';
import type { ActiveTurn } from './state.ts';
import { wantsModel } from './thread.ts';

/** What a turn is doing. People come first: what only they can answer is told at once. */
export const TURN_STATUSES = ['running', 'waiting', 'paused', 'uncertain'] as const;
export type TurnStatus = (typeof TURN_STATUSES)[number];

export function statusOf(turn: ActiveTurn): TurnStatus {
  if (uncertainIds(turn).length > 0) return 'uncertain';
  if (Object.keys(turn.work.interactions).length > 0) return 'paused';
  return turn.claim !== null || turn.wanted || turn.restsUntil !== null ? 'running' : 'waiting';
}

/** Effects of which nobody knows whether they happened. */
export function uncertainIds(turn: ActiveTurn): string[] {
  return Object.values(turn.work.actions)
    .filter(({ status }) => status === 'uncertain')
    .map(({ actionId }) => actionId);
}

/** Whether there is something for a worker to do: a model to be called, now or at its next try. */
export function hasJobs(turn: ActiveTurn): boolean {
  return Object.values(turn.threads).some((thread) => thread.pending !== null || wantsModel(thread));
}

/** Whether a worker that holds the turn could take it on right now, without any answer coming in. */
export function isReady(turn: ActiveTurn, nowMs: number): boolean {
  return Object.values(turn.threads).some(
    (thread) =>
      thread.pending === null && wantsModel(thread) && (thread.retryAt === null || nowMs >= toMs(thread.retryAt)),
  );
}

/** When the next retry is due, ms; null: none is. */
export function retryDueMs(turn: ActiveTurn): number | null {
  const due = Object.values(turn.threads).flatMap(({ pending, retryAt }) =>
    pending === null && retryAt !== null ? [toMs(retryAt)] : [],
  );
  return due.length === 0 ? null : Math.min(...due);
}

/** A worker keeps a turn for so long until the next try of a model; a longer wait holds neither a place nor a process, ms. */
export const HELD_WAIT_MS = 1_000;

/** Until when nobody has to run the turn, because all that it would run waits for its next try; null: somebody has to. */
export function restUntil(turn: ActiveTurn, nowMs: number): string | null {
  const wanting = Object.values(turn.threads).filter((thread) => thread.pending !== null || wantsModel(thread));
  let first: string | null = null;
  for (const { pending, retryAt } of wanting) {
    if (pending !== null || retryAt === null) return null;
    if (first === null || toMs(retryAt) < toMs(first)) first = retryAt;
  }
  if (first === null) return null;
  // What rests already goes on resting, however short the wait has become.
  const heldMs = turn.restsUntil === first ? 0 : HELD_WAIT_MS;
  return toMs(first) - nowMs > heldMs ? first : null;
}

/**
 * After whatever happened to a turn: says what it now waits for, keeps its deadline from counting the time of people, and
 * lets go of it when there is nothing to run. The turn holds no process while it rests.
 */
export function settleRest(draft: SessionDraft, context: TurnContext): void {
  resume(draft, context);
  announce(draft);
  const turn = activeTurn(draft);
  if (turn === null) return;
  const { turnId, epoch } = turn;
  const until = restUntil(turn, context.nowMs);
  if (until !== null) {
    if (turn.restsUntil !== until) draft.add({ type: 'segment.released', data: { turnId, epoch, until } });
  } else if (!hasJobs(turn)) {
    if (turn.claim !== null || turn.wanted || turn.restsUntil !== null)
      draft.add({ type: 'segment.released', data: { turnId, epoch, resting: true } });
  } else if (turn.claim === null) {
    if (!turn.wanted) draft.add({ type: 'segment.wanted', data: { turnId } });
  } else if (context.release === true && turn.claim.workerId === context.workerId && !isCalling(turn)) {
    draft.add({ type: 'segment.released', data: { turnId, epoch } });
  }
}

function isCalling(turn: ActiveTurn): boolean {
  return Object.values(turn.threads).some(({ pending }) => pending !== null);
}

/** Once nobody has to answer anything any more, the time that people took is added to the deadline. */
function resume(draft: SessionDraft, { nowMs }: TurnContext): void {
  const turn = activeTurn(draft);
  if (turn?.pausedAt == null) return;
  if (uncertainIds(turn).length > 0 || Object.keys(turn.work.interactions).length > 0) return;
  const deadlineAt = toTimestamp(toMs(turn.deadlineAt) + Math.max(0, nowMs - toMs(turn.pausedAt)));
  draft.add({ type: 'turn.extended', data: { turnId: turn.turnId, deadlineAt } });
}

function announce(draft: SessionDraft): void {
  const turn = activeTurn(draft);
  if (turn === null) return;
  const { turnId, work } = turn;
  const actions = Object.values(work.actions);
  const isNew = (key: string): boolean => !turn.announced.includes(key);
  const uncertain = actions.filter(({ status }) => status === 'uncertain');
  const open = Object.values(work.interactions);
  if (uncertain.some((action) => isNew(waitKey(action)))) {
    draft.add({ type: 'turn.uncertain', data: { turnId, effectIds: uncertain.map(({ actionId }) => actionId) } });
  }
  if (open.some(({ interactionId }) => isNew(interactionId))) {
    const interactions = open.map(({ agentId: _agentId, agent: _agent, callId: _callId, ...shown }) => shown);
    draft.add({ type: 'turn.paused', data: { turnId, interactions } });
  }
  if (uncertain.length > 0 || open.length > 0 || hasJobs(turn)) return;
  if (actions.some((action) => isNew(waitKey(action)))) {
    draft.add({ type: 'turn.waiting', data: { turnId, actionIds: actions.map(({ actionId }) => actionId) } });
  }
}

import { toMs, toTimestamp } from '../../kernel/time.ts';
import type { TurnContext } from '../context.ts';
import { hasCalls, hasJobs, restUntil } from '../jobs.ts';
import type { Running } from '../running.ts';
import { uncertainCalls } from '../mcp-calls.ts';
import { waitKey } from '../state.ts';
import { isUncertain } from '../summary.ts';

/**
 * After anything that happened to a turn: announces what it now waits for, keeps people's time out of its deadline, and
 * releases it when there is nothing to run. An idle turn holds no process.
 */
export function settleRest(at: Running, context: TurnContext): void {
  resumeClock(at, context);
  announce(at);
  const { turnId, turn } = at;
  const { epoch, claim } = turn;
  const until = restUntil(turn, context.nowMs);
  if (until !== null) {
    if (turn.restsUntil !== until) at.add({ type: 'segment.released', data: { turnId, epoch, until } });
  } else if (!hasJobs(turn)) {
    if (claim !== null || turn.wanted || turn.restsUntil !== null)
      at.add({ type: 'segment.released', data: { turnId, epoch, resting: true } });
  } else if (claim === null) {
    if (!turn.wanted) at.add({ type: 'segment.wanted', data: { turnId } });
  } else if (context.release === true && claim.workerId === context.workerId && !hasCalls(turn)) {
    at.add({ type: 'segment.released', data: { turnId, epoch } });
  }
}

/** Once every person has answered, the time that people took is added to the deadline. */
function resumeClock(at: Running, { nowMs }: TurnContext): void {
  const { pausedAt, deadlineAt: before, work } = at.turn;
  if (pausedAt === null) return;
  if (Object.values(work.actions).some(isUncertain) || Object.keys(work.interactions).length > 0) return;
  if (uncertainCalls(at.turn).length > 0) return;
  const deadlineAt = toTimestamp(toMs(before) + Math.max(0, nowMs - toMs(pausedAt)));
  at.add({ type: 'turn.extended', data: { turnId: at.turnId, deadlineAt } });
}

function announce(at: Running): void {
  const { turnId, turn } = at;
  const { work, announced } = turn;
  const actions = Object.values(work.actions);
  const isNew = (key: string): boolean => !announced.includes(key);
  const uncertain = actions.filter(isUncertain);
  const open = Object.values(work.interactions);
  const calls = uncertainCalls(turn).map(({ effectId }) => effectId);
  if (uncertain.some((action) => isNew(waitKey(action))) || calls.some(isNew)) {
    const effectIds = [...uncertain.map(({ actionId }) => actionId), ...calls];
    at.add({ type: 'turn.uncertain', data: { turnId, effectIds } });
  }
  if (open.some(({ interactionId }) => isNew(interactionId))) {
    const interactions = open.map(
      ({ agentId: _agentId, agent: _agent, callId: _callId, mcp: _mcp, grants: _grants, ...shown }) => shown,
    );
    at.add({ type: 'turn.paused', data: { turnId, interactions } });
  }
  if (uncertain.length + calls.length > 0 || open.length > 0 || hasJobs(turn)) return;
  if (actions.some((action) => isNew(waitKey(action)))) {
    at.add({ type: 'turn.waiting', data: { turnId, actionIds: actions.map(({ actionId }) => actionId) } });
  }
}

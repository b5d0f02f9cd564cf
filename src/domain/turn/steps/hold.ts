import type { TurnContext } from '../context.ts';
import type { Running } from '../running.ts';
import { leaveMcpCalls } from './mcp-ending.ts';
import type { Step } from './step.ts';

/**
 * Whether the process that decides may start effects of the turn; a turn without a worker is claimed for its own
 * worker.
 */
export function hold(at: Running, { workerId, release }: TurnContext): Step {
  if (workerId === null || release === true) return 'waits';
  const { turnId } = at;
  const { claim, epoch } = at.turn;
  if (claim !== null) return claim.workerId === workerId ? 'next' : 'waits';
  at.add({ type: 'segment.claimed', data: { turnId, epoch: epoch + 1, workerId } });
  // What an earlier worker left behind when it stopped.
  for (const thread of at.threads()) leaveMcpCalls(thread);
  return 'next';
}

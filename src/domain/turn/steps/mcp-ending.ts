import type { OpenMcpCall } from '../mcp-calls.ts';
import type { Running } from '../running.ts';

/* What becomes of calls of MCP servers when their worker, or their thread, is gone. */

/** A question that was asked in the middle of the attempt ends with it. */
export function withdrawQuestion(at: Running, { interactionId }: OpenMcpCall): void {
  if (interactionId === null) return;
  at.add({ type: 'interaction.withdrawn', data: { turnId: at.turnId, interactionId } });
}

/** Whether the attempt happened is not known. */
export function giveUpMcpCall(at: Running, call: OpenMcpCall, reason: 'lost' | 'cancelled'): void {
  const { effectId, callId, agentId, name: toolName } = call;
  const whose = { callId, agentId, toolName };
  at.add({ type: 'effect.uncertain', data: { ...at.stamp, effectId, kind: 'mcp', reason, ...whose } });
}

/** The calls of a thread that its worker leaves behind. A call that may be repeated stays open, and is made again. */
export function leaveMcpCalls(at: Running): void {
  const { epoch } = at.turn;
  for (const call of at.thread.mcp.calls) {
    if (call.status !== 'called') continue;
    withdrawQuestion(at, call);
    if (call.epoch < epoch && !call.repeatable) giveUpMcpCall(at, call, 'lost');
  }
}

/** The calls of a thread that ends. */
export function cancelMcpCalls(at: Running): void {
  const { epoch } = at.turn;
  for (const call of at.thread.mcp.calls) {
    const { callId, effectId, status } = call;
    if (status === 'called' && call.epoch <= epoch) giveUpMcpCall(at, call, 'cancelled');
    else at.add({ type: 'mcp.withdrawn', data: { ...at.stamp, callId, effectId } });
  }
}

import type { JsonSchema } from '../../kernel/json-schema.ts';
import { usedManifest } from '../agents.ts';
import type { ToolCall } from '../events.ts';
import type { Running } from '../running.ts';
import type { Step } from './step.ts';
import { answerCall } from './tool-kind.ts';
import type { ToolKind } from './tool-kind.ts';

/** The input of an agent used as a tool. */
const DELEGATION_INPUT: JsonSchema = {
  type: 'object',
  properties: { task: { type: 'string', minLength: 1 } },
  required: ['task'],
  additionalProperties: false,
};

/** Agents used as tools that a turn runs at the same time; what it calls beyond it waits. */
export const DELEGATIONS_MAX = 16;

/** Other agents; one used as a tool uses none itself. */
export const agentTools: ToolKind = {
  declared: ({ agents = [] }, { agent }) =>
    agent === null
      ? agents.map(({ agentId: name, description }) => ({ name, description, inputSchema: DELEGATION_INPUT }))
      : [],
  open: delegate,
};

function delegate(at: Running, call: ToolCall): void {
  if (usedManifest(at.session, at.turn, call.name) === undefined) {
    answerCall(at, call, { code: 'agent_unknown', message: `The agent ${call.name} is not there.` });
    return;
  }
  // It begins once another one has ended.
  if (room(at) > 0) begin(at, call);
}

/** Begins what has waited, as far as there is room for it. */
export function beginWaiting(at: Running): Step {
  const { agent, openToolCalls } = at.thread;
  if (agent !== null || openToolCalls.length === 0 || room(at) === 0) return 'waits';
  const begun = new Set(Object.values(at.turn.threads).map(({ callId }) => callId));
  const isAgent = ({ name }: ToolCall): boolean => at.manifest.agents?.some(({ agentId }) => agentId === name) === true;
  const waiting = openToolCalls.filter((call) => isAgent(call) && !begun.has(call.callId)).slice(0, room(at));
  for (const call of waiting) begin(at, call);
  return waiting.length === 0 ? 'waits' : 'next';
}

/** All threads of a turn but its root are of agents used as tools. */
function room({ turn }: Running): number {
  return Math.max(0, DELEGATIONS_MAX + 1 - Object.keys(turn.threads).length);
}

function begin(at: Running, call: ToolCall): void {
  const { turnId, session } = at;
  const agent = { id: call.name, path: `${session.agentId}/${call.name}`, delegationId: at.nextId('dg') };
  const task = String(Object(call.input)['task']);
  at.add({ type: 'delegation.started', data: { turnId, agent, callId: call.callId, task } });
}

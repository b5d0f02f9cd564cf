import type { JsonSchema } from '../../kernel/json-schema.ts';
import { usedManifest } from '../agents.ts';
import type { ToolCall } from '../events.ts';
import type { Running } from '../running.ts';
import { answerCall } from './tool-kind.ts';
import type { ToolKind } from './tool-kind.ts';

/** The input of an agent used as a tool. */
const DELEGATION_INPUT: JsonSchema = {
  type: 'object',
  properties: { task: { type: 'string', minLength: 1 } },
  required: ['task'],
  additionalProperties: false,
};

/** Other agents; one used as a tool uses none itself. */
export const agentTools: ToolKind = {
  declared: ({ agents = [] }, { agent }) =>
    agent === null
      ? agents.map(({ agentId: name, description }) => ({ name, description, inputSchema: DELEGATION_INPUT }))
      : [],
  open: delegate,
};

function delegate(at: Running, call: ToolCall): void {
  const { turnId, session } = at;
  if (usedManifest(session, at.turn, call.name) === undefined) {
    answerCall(at, call, { code: 'agent_unknown', message: `The agent ${call.name} is not there.` });
    return;
  }
  const agent = { id: call.name, path: `${session.agentId}/${call.name}`, delegationId: at.nextId('dg') };
  const task = String(Object(call.input)['task']);
  at.add({ type: 'delegation.started', data: { turnId, agent, callId: call.callId, task } });
}

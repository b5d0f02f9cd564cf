import { optional } from '../../kernel/optional.ts';
import type { ToolCall } from '../events.ts';
import type { Running } from '../running.ts';
import type { ToolKind } from './tool-kind.ts';

/** Tools of the manifest: executors run them. */
export const executorTools: ToolKind = {
  declared: ({ tools = [] }) =>
    tools.map(({ name, description, inputSchema }) => ({
      name,
      ...optional({ description }),
      inputSchema,
    })),
  open: (at, call) => {
    const tool = at.manifest.tools?.find(({ name }) => name === call.name);
    if (tool?.approval === 'always') askApproval(at, call);
    else offerTool(at, call);
  },
};

function askApproval(at: Running, { name: toolName, callId, input }: ToolCall): void {
  const { agentId, stamp } = at;
  // The action id is known from now on: readers follow the call by it, whatever the answer is.
  const ids = { interactionId: at.nextId('in'), actionId: at.nextId('ac') };
  at.add({
    type: 'interaction.opened',
    data: { ...stamp, ...ids, kind: 'approval', agentId, toolName, callId, input },
  });
}

function offerTool(at: Running, { name: toolName, callId, input }: ToolCall): void {
  const { agentId, stamp } = at;
  const action = { actionId: at.nextId('ac'), generation: 1, kind: 'tool', agentId, toolName, callId, input } as const;
  at.add({ type: 'action.pending', data: { ...stamp, ...action } });
}

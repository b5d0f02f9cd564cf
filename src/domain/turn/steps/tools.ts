import type { Outcome } from '../../action/events.ts';
import type { Manifest, ToolManifest } from '../../agent/manifest.ts';
import { valueProblem } from '../../kernel/json-schema.ts';
import type { JsonSchema } from '../../kernel/json-schema.ts';
import { usedManifest } from '../agents.ts';
import type { ToolCall } from '../events.ts';
import type { Running } from '../running.ts';
import { ROOT } from '../thread.ts';
import type { Thread } from '../thread.ts';
import type { Step } from './step.ts';

/** What an agent used as a tool takes. */
const DELEGATION_INPUT: JsonSchema = {
  type: 'object',
  properties: { task: { type: 'string', minLength: 1 } },
  required: ['task'],
  additionalProperties: false,
};

/** A tool as a model is told of it. */
export interface DeclaredTool {
  readonly name: string;
  readonly description?: string;
  readonly inputSchema: JsonSchema;
}

/** A kind of tool: which ones of it a thread has, and how a call of one begins once its input fits. */
interface ToolKind {
  readonly declared: (manifest: Manifest, thread: Thread) => readonly DeclaredTool[];
  readonly open: (at: Running, call: ToolCall) => void;
}

/** Tools of the manifest: executors run them. */
const executorTools: ToolKind = {
  declared: ({ tools = [] }) =>
    tools.map(({ name, description, inputSchema }) => ({
      name,
      ...(description === undefined ? {} : { description }),
      inputSchema,
    })),
  open: (at, call) => {
    const tool = at.manifest.tools?.find(({ name }) => name === call.name);
    if (tool?.approval === 'always') askApproval(at, call);
    else offerTool(at, call);
  },
};

/** Other agents; one that is used as a tool uses none itself. */
const agentTools: ToolKind = {
  declared: ({ agents = [] }, { agent }) =>
    agent === null
      ? agents.map(({ agentId: name, description }) => ({ name, description, inputSchema: DELEGATION_INPUT }))
      : [],
  open: delegate,
};

/** In the order in which models are told of them; where two share a name, the first is called. */
const KINDS: readonly ToolKind[] = [executorTools, agentTools];

/** The tools that a thread's model may call at its next step. */
export function declaredTools(manifest: Manifest, thread: Thread): DeclaredTool[] {
  return KINDS.flatMap((kind) => toolsOf(kind, manifest, thread));
}

function toolsOf({ declared }: ToolKind, manifest: Manifest, thread: Thread): readonly DeclaredTool[] {
  const { stepTools } = thread;
  const tools = declared(manifest, thread);
  return stepTools === null ? tools : tools.filter(({ name }) => stepTools.includes(name));
}

/** Opens the tool calls of a step: each is answered at once, offered to executors, put before a person, or delegated. */
export function openToolCalls(at: Running): Step {
  // The calls of a step may name only what that step's model was told of.
  for (const call of at.thread.openToolCalls) openToolCall(at, call);
  return 'next';
}

function openToolCall(at: Running, call: ToolCall): void {
  const { manifest, thread } = at;
  for (const kind of KINDS) {
    const declared = toolsOf(kind, manifest, thread).find(({ name }) => name === call.name);
    if (declared === undefined) continue;
    const problem = valueProblem(declared.inputSchema, call.input);
    if (problem === null) kind.open(at, call);
    else answerCall(at, call, { code: 'tool_input_invalid', message: `The input does not fit: ${problem}.` });
    return;
  }
  answerCall(at, call, { code: 'tool_unknown', message: `This agent has no tool named ${call.name}.` });
}

/** Answers a call of a step in place of a tool: with a failed result. */
export function answerCall(
  at: Running,
  { callId, name }: ToolCall,
  failure: { readonly code: string; readonly message: string },
): void {
  const outcome: Outcome = { kind: 'failed', ...failure };
  at.add({ type: 'tool.completed', data: { ...at.stamp, callId, name, outcome } });
}

function askApproval(at: Running, { name: toolName, callId, input }: ToolCall): void {
  const { agentId, stamp } = at;
  // The action is known from now on: readers follow the call by it, whatever the answer is.
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

/** The tool of an action, as the manifest of its thread has it. */
export function toolOf(
  at: Running,
  { agent, toolName }: { readonly agent: Thread['agent']; readonly toolName: string | null },
): ToolManifest | null {
  const thread = at.at(agent?.delegationId ?? ROOT);
  return thread.isOver ? null : (thread.manifest.tools?.find(({ name }) => name === toolName) ?? null);
}

/** Gives calls of one step ids that differ, for what answers them goes by the id. */
export function withOwnIds(calls: readonly ToolCall[]): ToolCall[] {
  const seen = new Set<string>();
  return calls.map((call, at) => {
    let { callId } = call;
    while (seen.has(callId)) callId = `${callId}_${at}`;
    seen.add(callId);
    return { ...call, callId };
  });
}

import type { Outcome } from '#src/domain/action/events.ts';
import type { HookPoint, Manifest, ToolManifest } from '#src/domain/agent/manifest.ts';
import { valueProblem } from '#src/domain/kernel/json-schema.ts';
import type { JsonSchema } from '#src/domain/kernel/json-schema.ts';
import { agentIdOf, byAgent, manifestOf, nextId, running, usedManifest } from './draft.ts';
import type { SessionDraft } from './draft.ts';
import type { ToolCall } from './events.ts';
import type { Thread } from './thread.ts';

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

/** The tools that a thread's model may call at its next step; an agent used as a tool uses no other agents. */
export function declaredTools(manifest: Manifest, thread: Thread): DeclaredTool[] {
  const tools: DeclaredTool[] = (manifest.tools ?? []).map(({ name, description, inputSchema }) => ({
    name,
    ...(description === undefined ? {} : { description }),
    inputSchema,
  }));
  const agents = thread.agent === null ? (manifest.agents ?? []) : [];
  for (const { agentId: name, description } of agents) tools.push({ name, description, inputSchema: DELEGATION_INPUT });
  const { stepTools } = thread;
  return stepTools === null ? tools : tools.filter(({ name }) => stepTools.includes(name));
}

/** Opens the tool calls of a step: each is answered at once, offered to executors, put before a person, or delegated. */
export function openToolCalls(draft: SessionDraft, threadId: string): void {
  const now = running(draft);
  const thread = now?.turn.threads[threadId];
  if (now === null || thread === undefined) return;
  const manifest = manifestOf(now.session, now.turn, thread);
  // The calls of a step may name only what that step's model was told of.
  for (const call of thread.openToolCalls) openToolCall(draft, { manifest, thread, call });
}

interface Opening {
  readonly manifest: Manifest;
  readonly thread: Thread;
  readonly call: ToolCall;
}

function openToolCall(draft: SessionDraft, { manifest, thread, call }: Opening): void {
  const now = running(draft);
  if (now === null) return;
  const declared = declaredTools(manifest, thread).find(({ name }) => name === call.name);
  if (declared === undefined) {
    answerCall(draft, { thread, call, code: 'tool_unknown', message: `This agent has no tool named ${call.name}.` });
    return;
  }
  const problem = valueProblem(declared.inputSchema, call.input);
  if (problem !== null) {
    answerCall(draft, { thread, call, code: 'tool_input_invalid', message: `The input does not fit: ${problem}.` });
    return;
  }
  const tool = manifest.tools?.find(({ name }) => name === call.name);
  if (tool === undefined) delegate(draft, { thread, call });
  else if (tool.approval === 'always') askApproval(draft, { thread, call });
  else offerTool(draft, { thread, call });
}

/** Answers a call of a step in place of a tool: with a failed result. */
export function answerCall(
  draft: SessionDraft,
  { thread, call, code, message }: { thread: Thread; call: ToolCall; code: string; message: string },
): void {
  const now = running(draft);
  if (now === null) return;
  const { callId, name } = call;
  const outcome: Outcome = { kind: 'failed', code, message };
  draft.add({
    type: 'tool.completed',
    data: { turnId: now.turn.turnId, callId, name, outcome, ...byAgent(thread) },
  });
}

function askApproval(draft: SessionDraft, { thread, call }: { thread: Thread; call: ToolCall }): void {
  const now = running(draft);
  if (now === null) return;
  draft.add({
    type: 'interaction.opened',
    data: {
      turnId: now.turn.turnId,
      interactionId: nextId('in', now.turn),
      kind: 'approval',
      agentId: agentIdOf(now.session, thread),
      // Known from now on: readers follow the call by it, whatever the answer is.
      actionId: nextId('ac', now.turn),
      toolName: call.name,
      callId: call.callId,
      input: call.input,
      ...byAgent(thread),
    },
  });
}

function offerTool(draft: SessionDraft, { thread, call }: { thread: Thread; call: ToolCall }): void {
  const now = running(draft);
  if (now === null) return;
  draft.add({
    type: 'action.pending',
    data: {
      turnId: now.turn.turnId,
      actionId: nextId('ac', now.turn),
      generation: 1,
      kind: 'tool',
      agentId: agentIdOf(now.session, thread),
      toolName: call.name,
      callId: call.callId,
      input: call.input,
      ...byAgent(thread),
    },
  });
}

function delegate(draft: SessionDraft, { thread, call }: { thread: Thread; call: ToolCall }): void {
  const now = running(draft);
  if (now === null) return;
  const { session, turn } = now;
  if (usedManifest(session, turn, call.name) === undefined) {
    answerCall(draft, { thread, call, code: 'agent_unknown', message: `The agent ${call.name} is not there.` });
    return;
  }
  const agent = { id: call.name, path: `${session.agentId}/${call.name}`, delegationId: nextId('dg', turn) };
  const task = String(Object(call.input)['task']);
  draft.add({ type: 'delegation.started', data: { turnId: turn.turnId, agent, callId: call.callId, task } });
}

/** Offers a hook of the thread's agent to its executors; the thread goes on when it has been answered. */
export function offerHook(
  draft: SessionDraft,
  { thread, hook, input }: { thread: Thread; hook: HookPoint; input: unknown },
): void {
  const now = running(draft);
  if (now === null) return;
  const actionId = nextId('ac', now.turn);
  draft.add({
    type: 'action.pending',
    data: {
      turnId: now.turn.turnId,
      actionId,
      generation: 1,
      kind: 'hook',
      agentId: agentIdOf(now.session, thread),
      hook,
      callId: actionId,
      input,
      ...byAgent(thread),
    },
  });
}

/** The tool of an action, as the manifest of its thread has it. */
export function toolOf(
  draft: SessionDraft,
  action: { agent: Thread['agent']; toolName: string | null },
): ToolManifest | null {
  const now = running(draft);
  const thread = now === null ? undefined : threadOfAgent(now.turn.threads, action.agent);
  if (now === null || thread === undefined) return null;
  return manifestOf(now.session, now.turn, thread).tools?.find(({ name }) => name === action.toolName) ?? null;
}

function threadOfAgent(threads: Readonly<Record<string, Thread>>, agent: Thread['agent']): Thread | undefined {
  return Object.values(threads).find((thread) => thread.agent?.delegationId === agent?.delegationId);
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

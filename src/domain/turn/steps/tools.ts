import type { Manifest, ToolManifest } from '../../agent/manifest.ts';
import { valueProblem } from '../../kernel/json-schema.ts';
import type { ToolCall } from '../events.ts';
import type { Running } from '../running.ts';
import { ROOT } from '../thread.ts';
import type { Thread } from '../thread.ts';
import { agentTools } from './agent-tools.ts';
import { executorTools } from './executor-tools.ts';
import { mcpTools } from './mcp-tools.ts';
import { sandboxTools } from './sandbox-tools.ts';
import type { Step } from './step.ts';
import { answerCall } from './tool-kind.ts';
import type { DeclaredTool, ToolKind } from './tool-kind.ts';

/** In the order in which models are shown them; where two share a name, the first is called. */
const KINDS: readonly ToolKind[] = [executorTools, sandboxTools, agentTools, mcpTools];

/** The tools that a thread's model may call at its next step. */
export function declaredTools(manifest: Manifest, thread: Thread): DeclaredTool[] {
  return KINDS.flatMap((kind) => toolsOf(kind, manifest, thread));
}

function toolsOf({ declared }: ToolKind, manifest: Manifest, thread: Thread): readonly DeclaredTool[] {
  const { stepTools } = thread;
  const tools = declared(manifest, thread);
  return stepTools === null ? tools : tools.filter(({ name }) => stepTools.includes(name));
}

/**
 * Opens the tool calls of a step: each is answered at once, offered to executors, submitted to a person, or delegated.
 */
export function openToolCalls(at: Running): Step {
  // The calls of a step may name only what that step's model was shown.
  for (const call of at.thread.openToolCalls) openToolCall(at, call);
  return 'next';
}

/** It is not known which calls of a cut answer are whole, and a half of one may be valid. */
const HALF_WRITTEN = {
  code: 'tool_call_truncated',
  message: 'Nothing was run: your answer was cut at its limit of tokens. Make the call again, with less in one answer.',
};

function openToolCall(at: Running, call: ToolCall): void {
  const { manifest, thread } = at;
  if (thread.truncated) return answerCall(at, call, HALF_WRITTEN);
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

/** The tool of an action, as the manifest of its thread has it. */
export function toolOf(
  at: Running,
  { agent, toolName }: { readonly agent: Thread['agent']; readonly toolName: string | null },
): ToolManifest | null {
  const thread = at.at(agent?.delegationId ?? ROOT);
  return thread.isOver ? null : (thread.manifest.tools?.find(({ name }) => name === toolName) ?? null);
}

/** Gives calls of one step distinct ids, since answers refer to the id. */
export function withOwnIds(calls: readonly ToolCall[]): ToolCall[] {
  const seen = new Set<string>();
  return calls.map((call, at) => {
    let { callId } = call;
    while (seen.has(callId)) callId = `${callId}_${at}`;
    seen.add(callId);
    return { ...call, callId };
  });
}

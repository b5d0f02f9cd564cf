import type { Outcome } from '../../action/events.ts';
import type { Manifest } from '../../agent/manifest.ts';
import type { JsonSchema } from '../../kernel/json-schema.ts';
import type { ToolCall } from '../events.ts';
import type { Running } from '../running.ts';
import type { Thread } from '../thread.ts';

/** A tool as a model is shown it. */
export interface DeclaredTool {
  readonly name: string;
  readonly description?: string;
  readonly inputSchema: JsonSchema;
}

/** A kind of tool: which tools of it a thread has, and how a call of one begins once its input is valid. */
export interface ToolKind {
  readonly declared: (manifest: Manifest, thread: Thread) => readonly DeclaredTool[];
  readonly open: (at: Running, call: ToolCall) => void;
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

import type { ModelSettings } from '../../domain/agent/manifest.ts';
import type { JsonSchema } from '../../domain/kernel/json-schema.ts';
import type { ConversationMessage } from '../../domain/session/conversation.ts';
import type { ModelOutcome } from '../../domain/turn/process.ts';

/** A tool as the model is told of it. */
export interface DeclaredTool {
  readonly name: string;
  readonly description?: string;
  readonly inputSchema: JsonSchema;
}

/** One step of a turn, as a model is asked for it. */
export interface ModelRequest {
  /** Id of the call, for the provider's and our own logs; the ids of tool calls may be made from it. */
  readonly callId: string;
  readonly model: string;
  readonly settings: ModelSettings;
  /** The system prompt. */
  readonly instructions: string;
  readonly messages: readonly ConversationMessage[];
  readonly tools: readonly DeclaredTool[];
  /** The form of the final answer; null: text. */
  readonly outputSchema: JsonSchema | null;
  /** How many calls of this turn have been answered before, with a result or an error. */
  readonly answered: number;
}

/**
 * A provider of models. `call` settles with an outcome and does not reject: what the provider reports, a refused
 * connection or an overload is a failed outcome that says whether another attempt makes sense. When the signal aborts,
 * the request is cancelled and the call settles soon; its outcome is then looked at for its bill only.
 * No implementation retries by itself: attempts are the turn's, and each is recorded.
 */
export interface ModelDriver {
  call(request: ModelRequest, signal: AbortSignal): Promise<ModelOutcome>;
}

/** The drivers of this Host, by provider. */
export type ModelDrivers = ReadonlyMap<string, ModelDriver>;

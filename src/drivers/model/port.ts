import type { ModelSettings } from '../../domain/agent/manifest.ts';
import type { JsonSchema } from '../../domain/kernel/json-schema.ts';
import type { ConversationMessage, FileRef } from '../../domain/turn/conversation.ts';
import type { ModelOutcome } from '../../domain/turn/model-outcome.ts';

/** A tool as the model is shown it. */
export interface DeclaredTool {
  readonly name: string;
  readonly description?: string;
  readonly inputSchema: JsonSchema;
}

/** A file that a message names. */
export interface ModelFile {
  readonly name: string;
  readonly contentType: string;
  readonly size: number;
  /** Of its bytes; of a folder, of its tree. */
  readonly sha256: string;
  /**
   * Its bytes; null: it is larger than a model could take, or a folder, and can only be mentioned.
   * @throws UnavailableError (objects); the caller makes another attempt of it
   */
  readonly read: (() => Promise<Uint8Array>) | null;
}

/** One step of a turn, as a model is asked for it. */
export interface ModelRequest {
  /** Id of the call, for the provider's and our own logs; the ids of tool calls may be made from it. */
  readonly callId: string;
  /** Whose address and credential of the provider are used. */
  readonly tenant: string;
  /** The same for all calls whose conversations share a beginning, and for no others: where to look in a cache. */
  readonly conversationId: string;
  readonly model: string;
  readonly settings: ModelSettings;
  /** The system prompt. */
  readonly instructions: string;
  readonly messages: readonly ConversationMessage[];
  /** What a file of a message is; null: it has been deleted since. A driver reads those that its model understands. */
  readonly file: (file: FileRef) => Promise<ModelFile | null>;
  readonly tools: readonly DeclaredTool[];
  /** Of this step; a tool that is not among `tools` has been left out of them, and so is the choice of it. */
  readonly toolChoice: NonNullable<ModelSettings['toolChoice']>;
  /**
   * The form of the final answer; null: text. A driver asks for it in the best way that the provider has; whether the
   * answer keeps to it is for the caller to check.
   */
  readonly outputSchema: JsonSchema | null;
  /** How many calls of this turn have been answered before, with a result or an error. */
  readonly answered: number;
}

/** A piece of an answer that is being written. Nothing of it is final: the outcome replaces all of them. */
export type ModelDelta =
  | { readonly kind: 'text'; readonly text: string }
  /** What the model thinks; empty where a provider says only that it does. */
  | { readonly kind: 'reasoning'; readonly text: string }
  /** The next piece of a call's arguments, as JSON text. `index`: which of the answer's calls, from 0. */
  | { readonly kind: 'toolCall'; readonly index: number; readonly name: string; readonly input: string };

export type OnModelDelta = (delta: ModelDelta) => void;

/**
 * A provider of models. `call` settles with an outcome and does not reject: what the provider reports, a refused
 * connection or an overload is a failed outcome that says whether another attempt makes sense; only what `file` throws may pass. When the signal aborts,
 * the request is cancelled and the call settles soon; its outcome then only matters for its cost.
 * `onDelta` is called with the pieces of the answer as they arrive, and not after the call has settled.
 * No implementation retries by itself: attempts are the turn's, and each is recorded. No outcome contains a key, a
 * header or the provider's own error text. Ids of tool calls are unique among all calls, whatever the provider names
 * them; an input that is not valid JSON comes as its text.
 */
export interface ModelDriver {
  /** Tokens that a model accepts, including its answer; null or absent: not known. */
  readonly contextWindow?: (model: string, tenant: string) => number | null;
  call(request: ModelRequest, signal: AbortSignal, onDelta?: OnModelDelta): Promise<ModelOutcome>;
}

/** Providers that are called over the network. */
export const REMOTE_PROVIDERS = ['anthropic', 'openai', 'google', 'openai-compatible'] as const;
export type RemoteProvider = (typeof REMOTE_PROVIDERS)[number];

/** The drivers of this Host, by provider. */
export type ModelDrivers = ReadonlyMap<string, ModelDriver>;

/** US dollars per million tokens; what is absent costs as much as other input. */
export interface OwnPrice {
  readonly model: string;
  readonly inputUsdPerMillion: number;
  readonly outputUsdPerMillion: number;
  readonly cacheReadUsdPerMillion?: number | undefined;
  readonly cacheWriteUsdPerMillion?: number | undefined;
}

/** How a tenant reaches a provider. */
export interface ModelConnection {
  /** Null: the provider's own address. */
  readonly baseUrl: string | null;
  readonly key:
    | { readonly kind: 'known'; readonly apiKey: string }
    /** The tenant has stored none. */
    | { readonly kind: 'none' }
    /** There is one, but it cannot be read now: it is being replaced, or the store is unavailable. */
    | { readonly kind: 'unreadable' };
  /** What the tenant pays for models of the provider, before any catalogue. */
  readonly prices?: readonly OwnPrice[];
}

/** Queried for every call, so that a credential changed on any node is used by the next one. */
export type ModelConnections = (tenant: string, provider: string) => Promise<ModelConnection>;

import { createAnthropic } from '@ai-sdk/anthropic';
import { createGoogle } from '@ai-sdk/google';
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import type { LanguageModelV4, LanguageModelV4CallOptions, SharedV4ProviderOptions } from '@ai-sdk/provider';
import { optional } from '../../domain/kernel/optional.ts';
import type { ModelOutcome } from '../../domain/turn/model-outcome.ts';
import { firstOf } from '../../lib/abort.ts';
import { ANSWER_CHARS_MAX, estimatedUsage, outcomeOf } from './answer.ts';
import { attachmentsOf } from './attachments.ts';
import type { Attachments } from './attachments.ts';
import type { ModelClient } from './client.ts';
import { failed, failureOf } from './failure.ts';
import type {
  ModelConnection,
  ModelConnections,
  ModelDriver,
  ModelRequest,
  OnModelDelta,
  OwnPrice,
  RemoteProvider,
} from './port.ts';
import { contextWindowOf } from './prices.ts';
import type { Seller } from './prices.ts';
import { withBreakpoints } from './caching.ts';
import { toPrompt } from './prompt.ts';
import { AnswerReader } from './stream.ts';
import { mayThink, thinkingOptions } from './thinking.ts';
import { Uploads } from './uploads.ts';
import type { Account, CallUploads } from './uploads.ts';
import { SILENT, Watchdog } from './watchdog.ts';
import type { StreamPatience } from './watchdog.ts';

export interface RemoteModelDeps {
  readonly client: ModelClient;
  readonly connections: ModelConnections;
  readonly clock: () => number;
  readonly patience: StreamPatience;
}

/** The libraries would take another address from the environment when none is given. */
const ADDRESSES: Readonly<Record<RemoteProvider, string | null>> = {
  anthropic: 'https://api.anthropic.com/v1',
  openai: 'https://api.openai.com/v1',
  google: 'https://generativelanguage.googleapis.com/v1beta',
  'openai-compatible': null,
};

const UNREADABLE_KEY_RETRY_MS = 1_000;

/**
 * A provider through the AI SDK: one request for one step, whose answer is streamed. Only the provider's translation of
 * the SDK is used (its published model interface), not its loop: attempts, tools and the check of the output are the
 * turn's.
 */
export function remoteModel(provider: RemoteProvider, deps: RemoteModelDeps): ModelDriver {
  const stored = new Uploads(deps.clock);
  return {
    contextWindow: (model) => contextWindowOf(provider, model),
    async call(request, signal, onDelta) {
      const connection = await deps.connections(request.tenant, provider);
      const reached = reach(provider, connection, deps.client.fetch);
      if ('kind' in reached) return reached;
      const { prices = [] } = connection;
      const asked = { reached, request, prices, signal, onDelta };
      const { account } = reached;
      const uploads =
        request.settings.files === 'upload' && account !== null
          ? stored.of({ ...account, provider, tenant: request.tenant }, signal)
          : null;
      const outcome = await attempt(deps, asked, uploads);
      if (uploads?.isUsed !== true || !mayMeanFiles(outcome)) return outcome;
      // What the provider says of a file that it does not have differs too much to be read: the same call without ids tells.
      const inline = await attempt(deps, asked, null);
      if (inline.kind === 'completed') uploads.refused();
      return inline;
    },
  };
}

/** Refusals of a whole request, before anything of it is billed. */
const REFUSALS = new Set(['model_request_invalid', 'model_not_found', 'model_forbidden']);

function mayMeanFiles(outcome: ModelOutcome): boolean {
  return outcome.kind === 'failed' && REFUSALS.has(outcome.error.code);
}

/** One request. @throws UnavailableError (objects) */
async function attempt(
  deps: RemoteModelDeps,
  asked: Omit<Streaming, 'options'>,
  uploads: CallUploads | null,
): Promise<ModelOutcome> {
  const { reached, request, signal } = asked;
  const { provider } = reached;
  const attachments = await attachmentsOf(provider, request, uploads);
  try {
    const options = optionsOf(provider, request, attachments);
    if ('kind' in options) return options;
    const outcome = await streamed(deps, { ...asked, options });
    if (outcome.kind === 'completed') uploads?.accepted();
    return outcome;
  } catch (error) {
    return failureOf(error, { signal, nowMs: deps.clock() });
  }
}

interface Streaming {
  readonly reached: Reached;
  readonly request: ModelRequest;
  readonly prices: readonly OwnPrice[];
  readonly options: LanguageModelV4CallOptions;
  readonly signal: AbortSignal;
  readonly onDelta: OnModelDelta | undefined;
}

async function streamed({ patience, clock }: RemoteModelDeps, asked: Streaming): Promise<ModelOutcome> {
  const { reached, request, prices, options, signal, onDelta } = asked;
  const watchdog = new Watchdog(patience);
  // Whatever ends the reading early ends the request, too: an answer that is not read is still paid for.
  const over = new AbortController();
  const ends = firstOf([signal, watchdog.signal, over.signal]);
  const { callId, model, settings } = request;
  const { provider, seller } = reached;
  const context = { callId, provider, model, seller, prices, showReasoning: settings.showReasoning === true };
  const reader = new AnswerReader({ onDelta, watchdog, charsMax: ANSWER_CHARS_MAX });
  let isOpen = false;
  try {
    const sent = { ...options, abortSignal: ends.signal, includeRawChunks: true };
    const { stream } = await reached.model(model).doStream(sent);
    isOpen = true;
    return outcomeOf(await reader.read(stream), context);
  } catch (error) {
    const { hasBegun } = watchdog;
    const failure = failureOf(watchdog.signal.aborted ? SILENT : error, { signal, nowMs: clock(), hasBegun });
    // What the provider has worked at is billed, whether or not anybody reads it.
    const isBilled = hasBegun || (isOpen && signal.aborted);
    return isBilled ? { ...failure, usage: estimatedUsage(reader.soFar, options, context) } : failure;
  } finally {
    watchdog.stop();
    over.abort(OVER);
    ends.release();
  }
}

/** The default reason of an abort costs a stack trace for each call. */
const OVER = new Error('the call is over');

interface Reached {
  readonly provider: RemoteProvider;
  readonly model: (id: string) => Pick<LanguageModelV4, 'doStream'>;
  readonly seller: Seller;
  /** Where it stores files that end by themselves; null: it does not. */
  readonly account: Pick<Account, 'files' | 'baseUrl' | 'apiKey'> | null;
}

function reach(
  provider: RemoteProvider,
  { baseUrl, key }: ModelConnection,
  fetch: ModelClient['fetch'],
): Reached | ModelOutcome {
  const baseURL = baseUrl ?? ADDRESSES[provider];
  if (baseURL === null) {
    const message = 'The provider openai-compatible has no address. Set baseUrl with PUT /v1/tenant/model.';
    return failed({ code: 'model_address_missing', message, retry: false });
  }
  if (key.kind === 'unreadable') {
    const message = 'The credential of the provider cannot be read at the moment.';
    const failure = failed({ code: 'model_credential_unreadable', message, retry: true });
    return { ...failure, retryAfterMs: UNREADABLE_KEY_RETRY_MS };
  }
  // A server of the tenant's own may well ask for none.
  if (provider === 'openai-compatible') {
    const own = key.kind === 'known' ? { apiKey: key.apiKey } : {};
    const sdk = createOpenAICompatible({ name: 'openaiCompatible', baseURL, fetch, includeUsage: true, ...own });
    return { provider, model: (id) => sdk.chatModel(id), seller: { providerApiUrl: baseURL }, account: null };
  }
  if (key.kind === 'none') {
    const message = `No credential is stored for the provider ${provider}. Store one with PUT /v1/tenant/model/credentials/${provider}.`;
    return failed({ code: 'model_credential_missing', message, retry: false });
  }
  return known(provider, { apiKey: key.apiKey, baseURL, fetch });
}

function known(
  provider: Exclude<RemoteProvider, 'openai-compatible'>,
  settings: { readonly apiKey: string; readonly baseURL: string; readonly fetch: ModelClient['fetch'] },
): Reached {
  const seller = { providerId: provider };
  const { apiKey, baseURL: baseUrl } = settings;
  switch (provider) {
    // What is stored there stays until it is deleted, which a node that has died does not do.
    case 'anthropic':
      return { provider, model: (id) => createAnthropic(settings).languageModel(id), seller, account: null };
    case 'openai': {
      const sdk = createOpenAI(settings);
      return { provider, model: (id) => sdk.responses(id), seller, account: { files: sdk.files(), baseUrl, apiKey } };
    }
    case 'google': {
      const sdk = createGoogle(settings);
      const account = { files: sdk.files(), baseUrl, apiKey };
      return { provider, model: (id) => sdk.languageModel(id), seller, account };
    }
  }
}

function optionsOf(
  provider: RemoteProvider,
  request: ModelRequest,
  attachments: Attachments,
): LanguageModelV4CallOptions | ModelOutcome {
  const { settings, tools, outputSchema } = request;
  const native = outputSchema !== null && takesSchema(provider, outputSchema, tools);
  const instructions = outputSchema === null || native ? request.instructions : asking(request, outputSchema);
  const effort = effortOf(provider, mayThink(provider, request) ? settings.reasoningEffort : undefined, request);
  if ('kind' in effort) return effort;
  const { temperature, maxOutputTokens } = settings;
  return {
    prompt: withBreakpoints(
      provider,
      request,
      toPrompt(instructions, request.messages, attachments, { provider, model: request.model }),
    ),
    ...optional({ temperature, maxOutputTokens }),
    ...(tools.length === 0 ? {} : { tools: tools.map(toolOf), ...choiceOf(request) }),
    ...(native ? { responseFormat: { type: 'json', schema: outputSchema } } : {}),
    ...effort,
  };
}

function choiceOf({ toolChoice, tools }: ModelRequest): Pick<LanguageModelV4CallOptions, 'toolChoice'> {
  if (toolChoice === 'auto') return {};
  if (typeof toolChoice === 'string') return { toolChoice: { type: toolChoice } };
  const isThere = tools.some(({ name }) => name === toolChoice.tool);
  return isThere ? { toolChoice: { type: 'tool', toolName: toolChoice.tool } } : {};
}

function toolOf({ name, description, inputSchema }: ModelRequest['tools'][number]) {
  return { type: 'function' as const, name, inputSchema, ...optional({ description }) };
}

/**
 * Servers that copy OpenAI may accept a schema or ignore it; providers that accept one accept objects only. If one does
 * not accept it together with tools, the library asks for a call of its own tool, named `json`.
 */
function takesSchema(
  provider: RemoteProvider,
  schema: Readonly<Record<string, unknown>>,
  tools: ModelRequest['tools'],
): boolean {
  return provider !== 'openai-compatible' && schema['type'] === 'object' && !tools.some(({ name }) => name === 'json');
}

function asking({ instructions }: ModelRequest, schema: Readonly<Record<string, unknown>>): string {
  const wish = `Give your final answer as JSON only, without a code fence or other text, valid against this JSON Schema:\n${JSON.stringify(schema)}`;
  return instructions.trim() === '' ? wish : `${instructions}\n\n${wish}`;
}

const EFFORTS = ['none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max'] as const;

/** The provider-specific part of the request, including how much the model should think. */
function effortOf(
  provider: RemoteProvider,
  wanted: string | undefined,
  request: ModelRequest,
): Pick<LanguageModelV4CallOptions, 'reasoning' | 'providerOptions'> | ModelOutcome {
  const { conversationId, settings } = request;
  // What begins the same is sent to where it was cached.
  const cacheKey = settings.caching === 'off' ? {} : { promptCacheKey: conversationId };
  // Nothing is kept at the provider, and a schema that its strict mode does not cover is not an error.
  const shown = thinkingOptions(provider, request, wanted);
  const fixed: SharedV4ProviderOptions =
    provider === 'openai'
      ? { openai: { store: false, strictJsonSchema: false, ...cacheKey, ...shown['openai'] } }
      : { ...shown };
  if (wanted === undefined) return { providerOptions: fixed };
  // A server of the tenant's own has its own options.
  if (provider === 'openai-compatible') {
    return { providerOptions: { openaiCompatible: { reasoningEffort: wanted } } };
  }
  const reasoning = EFFORTS.find((effort) => effort === wanted);
  if (reasoning !== undefined) return { reasoning, providerOptions: fixed };
  const message = `The reasoningEffort of the model settings is not known. Use one of ${EFFORTS.join(', ')}.`;
  return failed({ code: 'model_settings_invalid', message, retry: false });
}

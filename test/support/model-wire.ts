import { z } from 'zod';

/**
 * What providers send and take, written from their documents and from nothing of ours: Anthropic's Messages API, OpenAI's
 * Responses API, Google's generateContent, and the chat completions that everyone else copies.
 */
export const WIRES = ['anthropic', 'openai', 'google', 'openai-compatible'] as const;
export type Wire = (typeof WIRES)[number];

export interface WireAnswer {
  readonly text?: string;
  /** `input` as text is sent as it is where the provider sends inputs as text. */
  readonly toolCalls?: readonly { readonly name: string; readonly input: unknown }[];
  readonly tokens?: {
    readonly input: number;
    readonly output: number;
    readonly cached?: number;
    readonly cacheWrite?: number;
    readonly reasoning?: number;
  };
  /** Default: as the answer goes. */
  readonly finish?: 'length' | 'filtered' | 'context';
  /** Sends no usage at all. */
  readonly silentUsage?: boolean;
}

interface Tokens {
  readonly input: number;
  readonly output: number;
  readonly cached: number;
  readonly cacheWrite: number;
  readonly reasoning: number;
}

/** The body of a successful answer. */
export function answerBody(wire: Wire, model: string, answer: WireAnswer): unknown {
  const tokens = { cached: 0, cacheWrite: 0, reasoning: 0, input: 10, output: 5, ...answer.tokens };
  switch (wire) {
    case 'anthropic':
      return anthropicAnswer(model, answer, tokens);
    case 'openai':
      return openaiAnswer(model, answer, tokens);
    case 'google':
      return googleAnswer(model, answer, tokens);
    case 'openai-compatible':
      return chatAnswer(model, answer, tokens);
  }
}

const asText = (input: unknown): string => (typeof input === 'string' ? input : JSON.stringify(input));

function anthropicAnswer(model: string, { text, toolCalls = [], finish }: WireAnswer, tokens: Tokens): unknown {
  const blocks = toolCalls.map(({ name, input }, i) => ({ type: 'tool_use', id: `toolu_${i}`, name, input }));
  const reasons = { length: 'max_tokens', filtered: 'refusal', context: 'model_context_window_exceeded' };
  return {
    id: 'msg_1',
    type: 'message',
    role: 'assistant',
    model,
    content: [...(text === undefined ? [] : [{ type: 'text', text }]), ...blocks],
    stop_reason: finish === undefined ? (blocks.length > 0 ? 'tool_use' : 'end_turn') : reasons[finish],
    stop_sequence: null,
    usage: {
      // What came from the cache, or went there, is not part of it.
      input_tokens: tokens.input - tokens.cached - tokens.cacheWrite,
      cache_read_input_tokens: tokens.cached,
      cache_creation_input_tokens: tokens.cacheWrite,
      output_tokens: tokens.output,
      ...(tokens.reasoning > 0 ? { output_tokens_details: { thinking_tokens: tokens.reasoning } } : {}),
    },
  };
}

function openaiAnswer(model: string, answer: WireAnswer, tokens: Tokens): unknown {
  const { text, toolCalls = [], finish, silentUsage } = answer;
  const message = {
    type: 'message',
    id: 'msg_1',
    status: 'completed',
    role: 'assistant',
    content: [{ type: 'output_text', text, annotations: [], logprobs: [] }],
  };
  const calls = toolCalls.map(({ name, input }, i) => ({
    type: 'function_call',
    id: `fc_${i}`,
    call_id: `call_${i}`,
    status: 'completed',
    name,
    arguments: asText(input),
  }));
  const reasons = { length: 'max_output_tokens', filtered: 'content_filter', context: 'max_output_tokens' };
  return {
    id: 'resp_1',
    object: 'response',
    created_at: 1_760_000_000,
    status: finish === undefined ? 'completed' : 'incomplete',
    error: null,
    incomplete_details: finish === undefined ? null : { reason: reasons[finish] },
    model,
    output: [...(text === undefined ? [] : [message]), ...calls],
    parallel_tool_calls: true,
    store: false,
    ...(silentUsage === true
      ? {}
      : {
          usage: {
            input_tokens: tokens.input,
            input_tokens_details: { cached_tokens: tokens.cached },
            output_tokens: tokens.output,
            output_tokens_details: { reasoning_tokens: tokens.reasoning },
            total_tokens: tokens.input + tokens.output,
          },
        }),
  };
}

function googleAnswer(model: string, { text, toolCalls = [], finish }: WireAnswer, tokens: Tokens): unknown {
  const calls = toolCalls.map(({ name, input }) => ({ functionCall: { name, args: input } }));
  const parts = [...(text === undefined ? [] : [{ text }]), ...calls];
  const reasons = { length: 'MAX_TOKENS', filtered: 'SAFETY', context: 'MAX_TOKENS' };
  return {
    candidates: [
      {
        ...(parts.length === 0 ? {} : { content: { role: 'model', parts } }),
        finishReason: finish === undefined ? 'STOP' : reasons[finish],
        index: 0,
      },
    ],
    usageMetadata: {
      promptTokenCount: tokens.input,
      cachedContentTokenCount: tokens.cached,
      // Thoughts are counted beside it.
      candidatesTokenCount: tokens.output - tokens.reasoning,
      thoughtsTokenCount: tokens.reasoning,
      totalTokenCount: tokens.input + tokens.output,
    },
    modelVersion: model,
    responseId: 'r1',
  };
}

function chatAnswer(model: string, answer: WireAnswer, tokens: Tokens): unknown {
  const { text, toolCalls = [], finish, silentUsage } = answer;
  const calls = toolCalls.map(({ name, input }) => ({
    // Some servers give the same id to every call.
    id: 'call_0',
    type: 'function',
    function: { name, arguments: asText(input) },
  }));
  const reasons = { length: 'length', filtered: 'content_filter', context: 'length' };
  return {
    id: 'chatcmpl-1',
    object: 'chat.completion',
    created: 1_760_000_000,
    model,
    choices: [
      {
        index: 0,
        message: { role: 'assistant', content: text ?? null, ...(calls.length > 0 ? { tool_calls: calls } : {}) },
        finish_reason: finish === undefined ? (calls.length > 0 ? 'tool_calls' : 'stop') : reasons[finish],
      },
    ],
    ...(silentUsage === true
      ? {}
      : {
          usage: {
            prompt_tokens: tokens.input,
            prompt_tokens_details: { cached_tokens: tokens.cached },
            completion_tokens: tokens.output,
            completion_tokens_details: { reasoning_tokens: tokens.reasoning },
            total_tokens: tokens.input + tokens.output,
          },
        }),
  };
}

export interface WireError {
  readonly status: number;
  readonly type: string;
  readonly message: string;
}

/** The body of a refusal, in the provider's own form. */
export function errorBody(wire: Wire, { status, type, message }: WireError): unknown {
  switch (wire) {
    case 'anthropic':
      return { type: 'error', error: { type, message }, request_id: 'req_1' };
    case 'google':
      return { error: { code: status, message, status: type } };
    case 'openai':
    case 'openai-compatible':
      return { error: { message, type, param: null, code: type } };
  }
}

const text = z.string().regex(/\S/);
const safeId = z.string().regex(/^[a-zA-Z0-9_-]{1,64}$/);
const toolName = z.string().regex(/^[a-zA-Z0-9_-]{1,64}$/);
const object = z.record(z.string(), z.unknown());
const jsonObjectText = z.string().transform((value) => object.parse(JSON.parse(value)));

const base64 = z.base64().min(1);
const dataUrl = (type: string) => z.string().regex(new RegExp(`^data:${type};base64,[A-Za-z0-9+/]+=*$`));
const imageUrl = dataUrl('image/(png|jpeg|gif|webp)');

const anthropicBlock = z.discriminatedUnion('type', [
  z.object({ type: z.literal('text'), text }),
  z.object({
    type: z.literal('image'),
    source: z.object({ type: z.literal('base64'), media_type: z.string().startsWith('image/'), data: base64 }),
  }),
  z.object({
    type: z.literal('document'),
    source: z.object({ type: z.literal('base64'), media_type: z.literal('application/pdf'), data: base64 }),
  }),
  z.object({ type: z.literal('tool_use'), id: safeId, name: toolName, input: object }),
  z.object({
    type: z.literal('tool_result'),
    tool_use_id: safeId,
    content: z.unknown(),
    is_error: z.boolean().optional(),
  }),
]);
const anthropicRequest = z.object({
  model: text,
  max_tokens: z.int().min(1),
  system: z.array(z.object({ type: z.literal('text'), text })).optional(),
  messages: z.array(z.object({ role: z.enum(['user', 'assistant']), content: z.array(anthropicBlock).min(1) })).min(1),
});
const openaiItem = z.union([
  z.object({ role: z.enum(['system', 'developer']), content: text }),
  z.object({
    role: z.literal('user'),
    content: z
      .array(
        z.discriminatedUnion('type', [
          z.object({ type: z.literal('input_text'), text }),
          z.object({ type: z.literal('input_image'), image_url: imageUrl }),
          z.object({ type: z.literal('input_file'), filename: text, file_data: dataUrl('application/pdf') }),
        ]),
      )
      .min(1),
  }),
  z.object({
    role: z.literal('assistant'),
    content: z.union([text, z.array(z.object({ type: z.literal('output_text'), text })).min(1)]),
  }),
  z.object({ type: z.literal('function_call'), call_id: safeId, name: toolName, arguments: jsonObjectText }),
  z.object({ type: z.literal('function_call_output'), call_id: safeId, output: z.unknown() }),
]);
const openaiRequest = z.object({ model: text, store: z.literal(false), input: z.array(openaiItem).min(1) });
const googlePart = z.union([
  z.object({ text }),
  z.object({ inlineData: z.object({ mimeType: text, data: base64 }) }),
  z.object({ functionCall: z.object({ id: safeId, name: toolName, args: object }) }),
  z.object({ functionResponse: z.object({ id: safeId, name: toolName, response: object }) }),
]);
const googleRequest = z.object({
  systemInstruction: z.object({ parts: z.array(z.object({ text })).min(1) }).optional(),
  contents: z.array(z.object({ role: z.enum(['user', 'model']), parts: z.array(googlePart).min(1) })).min(1),
});
const chatMessage = z.discriminatedUnion('role', [
  z.object({ role: z.literal('system'), content: text }),
  z.object({
    role: z.literal('user'),
    content: z.union([
      text,
      z
        .array(
          z.discriminatedUnion('type', [
            z.object({ type: z.literal('text'), text }),
            z.object({ type: z.literal('image_url'), image_url: z.object({ url: imageUrl }) }),
          ]),
        )
        .min(1),
    ]),
  }),
  z.object({
    role: z.literal('assistant'),
    content: text.nullable().optional(),
    tool_calls: z
      .array(
        z.object({
          // What Mistral takes.
          id: z.string().regex(/^[a-zA-Z0-9]{9}$/),
          type: z.literal('function'),
          function: z.object({ name: toolName, arguments: jsonObjectText }),
        }),
      )
      .min(1)
      .optional(),
  }),
  z.object({ role: z.literal('tool'), tool_call_id: z.string().regex(/^[a-zA-Z0-9]{9}$/), content: z.string() }),
]);
const chatRequest = z.object({ model: text, messages: z.array(chatMessage).min(1) });

/** Who speaks in a request, and which calls and results it has, in order. */
export interface Spoken {
  readonly role: 'user' | 'assistant';
  readonly texts: readonly string[];
  readonly calls: readonly string[];
  readonly results: readonly string[];
}

/** The conversation of a request. @throws ZodError when the provider would refuse it */
export function spokenIn(wire: Wire, body: unknown): readonly Spoken[] {
  switch (wire) {
    case 'anthropic':
      return anthropicRequest.parse(body).messages.map(({ role, content }) => ({
        role,
        texts: content.flatMap((block) => (block.type === 'text' ? [block.text] : [])),
        calls: content.flatMap((block) => (block.type === 'tool_use' ? [block.id] : [])),
        results: content.flatMap((block) => (block.type === 'tool_result' ? [block.tool_use_id] : [])),
      }));
    case 'openai':
      return joined(openaiRequest.parse(body).input.flatMap(openaiSpoken));
    case 'google':
      // It takes several messages of the same role one after the other.
      return joined(
        googleRequest.parse(body).contents.map(({ role, parts }) => ({
          role: role === 'model' ? ('assistant' as const) : ('user' as const),
          texts: parts.flatMap((part) => ('text' in part ? [part.text] : [])),
          calls: parts.flatMap((part) => ('functionCall' in part ? [part.functionCall.id] : [])),
          results: parts.flatMap((part) => ('functionResponse' in part ? [part.functionResponse.id] : [])),
        })),
      );
    case 'openai-compatible':
      return joined(chatRequest.parse(body).messages.flatMap(chatSpoken));
  }
}

const NOTHING = { texts: [], calls: [], results: [] };

function openaiSpoken(item: z.output<typeof openaiItem>): Spoken[] {
  if ('arguments' in item) return [{ ...NOTHING, role: 'assistant', calls: [item.call_id] }];
  if ('call_id' in item) return [{ ...NOTHING, role: 'user', results: [item.call_id] }];
  if (item.role === 'system' || item.role === 'developer') return [];
  return [{ ...NOTHING, role: item.role, texts: textsOf(item.content) }];
}

function textsOf(content: string | readonly object[]): string[] {
  if (typeof content === 'string') return [content];
  return content.flatMap((part) => ('text' in part ? [String(part.text)] : []));
}

function chatSpoken(message: z.output<typeof chatMessage>): Spoken[] {
  switch (message.role) {
    case 'system':
      return [];
    case 'user':
      return [{ ...NOTHING, role: 'user', texts: textsOf(message.content) }];
    case 'assistant': {
      const { content, tool_calls: calls = [] } = message;
      return [{ ...NOTHING, role: 'assistant', texts: content ? [content] : [], calls: calls.map(({ id }) => id) }];
    }
    case 'tool':
      return [{ ...NOTHING, role: 'user', results: [message.tool_call_id] }];
  }
}

/** Neighbours of the same role as one, as the other providers have them. */
function joined(items: readonly Spoken[]): Spoken[] {
  const found: Spoken[] = [];
  for (const item of items) {
    const last = found.at(-1);
    if (last?.role !== item.role) found.push(item);
    else {
      found[found.length - 1] = {
        role: item.role,
        texts: [...last.texts, ...item.texts],
        calls: [...last.calls, ...item.calls],
        results: [...last.results, ...item.results],
      };
    }
  }
  return found;
}

/** What a provider refuses although each message is right: roles that do not alternate, calls without their results. */
export function violationsIn(spoken: readonly Spoken[]): string[] {
  return spoken.flatMap(({ role, calls, results, texts }, i) => {
    const found: string[] = [];
    if (i === 0 && role !== 'user') found.push('the first message is not the user’s');
    if (spoken[i - 1]?.role === role) found.push(`message ${i} repeats the role ${role}`);
    if (calls.length + results.length + texts.length === 0) found.push(`message ${i} is empty`);
    if (new Set(calls).size !== calls.length) found.push(`message ${i} repeats the id of a call`);
    const wanted = spoken[i - 1]?.calls ?? [];
    if (wanted.toSorted().join() !== results.toSorted().join()) found.push(`message ${i} lacks results, or has others`);
    if (i === spoken.length - 1 && calls.length > 0) found.push('the last calls have no results');
    return found;
  });
}

/**
 * What providers send and take, written from their documents and from nothing of ours: Anthropic's Messages API, OpenAI's
 * Responses API, Google's generateContent, and the chat completions that everyone else copies.
 */
export const WIRES = ['anthropic', 'openai', 'google', 'openai-compatible'] as const;
export type Wire = (typeof WIRES)[number];

export interface WireAnswer {
  /** What the model thought before it answered, as the provider signs it; `redacted`: more that only the provider reads. */
  readonly thought?: { readonly text: string; readonly seal: string; readonly redacted?: string };
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
export function answerBody(wire: Wire, model: string, answer: WireAnswer): object {
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

function anthropicAnswer(model: string, { thought, text, toolCalls = [], finish }: WireAnswer, tokens: Tokens): object {
  const thoughts = [
    ...(thought === undefined ? [] : [{ type: 'thinking', thinking: thought.text, signature: thought.seal }]),
    ...(thought?.redacted === undefined ? [] : [{ type: 'redacted_thinking', data: thought.redacted }]),
  ];
  const blocks = toolCalls.map(({ name, input }, i) => ({ type: 'tool_use', id: `toolu_${i}`, name, input }));
  const reasons = { length: 'max_tokens', filtered: 'refusal', context: 'model_context_window_exceeded' };
  return {
    id: 'msg_1',
    type: 'message',
    role: 'assistant',
    model,
    content: [...thoughts, ...(text === undefined ? [] : [{ type: 'text', text }]), ...blocks],
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

function openaiAnswer(model: string, answer: WireAnswer, tokens: Tokens): object {
  const { thought, text, toolCalls = [], finish, silentUsage } = answer;
  const summary = thought === undefined || thought.text === '' ? [] : [{ type: 'summary_text', text: thought.text }];
  const reasoning = { type: 'reasoning', id: 'rs_1', summary, encrypted_content: thought?.seal };
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
    output: [...(thought === undefined ? [] : [reasoning]), ...(text === undefined ? [] : [message]), ...calls],
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

function googleAnswer(model: string, { thought, text, toolCalls = [], finish }: WireAnswer, tokens: Tokens): object {
  // Of calls made together only the first is signed.
  const calls = toolCalls.map(({ name, input }, i) => ({
    functionCall: { name, args: input },
    ...(thought !== undefined && i === 0 ? { thoughtSignature: thought.seal } : {}),
  }));
  const thoughts = thought === undefined || thought.text === '' ? [] : [{ text: thought.text, thought: true }];
  const parts = [...thoughts, ...(text === undefined ? [] : [{ text }]), ...calls];
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

function chatAnswer(model: string, answer: WireAnswer, tokens: Tokens): object {
  const { thought, text, toolCalls = [], finish, silentUsage } = answer;
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
        message: {
          ...{ role: 'assistant', content: text ?? null },
          ...(thought === undefined ? {} : { reasoning_content: thought.text }),
          ...(calls.length > 0 ? { tool_calls: calls } : {}),
        },
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

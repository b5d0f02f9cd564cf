import type { Wire } from './model-wire.ts';

/**
 * The same answers as streams, each wire's server-sent events, from the whole body of `answerBody`. Written from the
 * providers' documents, as that is.
 */
export function streamOf(wire: Wire, body: object): readonly string[] {
  switch (wire) {
    case 'anthropic':
      return anthropicStream(body as AnthropicBody);
    case 'openai':
      return openaiStream(body as OpenAiBody);
    case 'google':
      return googleStream(body as GoogleBody);
    case 'openai-compatible':
      return chatStream(body as ChatBody);
  }
}

/** What a provider sends when it breaks off an answer that has begun; null: its wire has no such frame. */
export function brokenOff(wire: Wire): string {
  const message = 'Overloaded';
  switch (wire) {
    case 'anthropic':
      return named({ type: 'error', error: { type: 'overloaded_error', message } });
    case 'openai':
      return named({
        type: 'response.failed',
        sequence_number: 9,
        response: { id: 'resp_1', status: 'failed', error: { code: 'server_error', message } },
      });
    case 'google':
      return data({ error: { code: 503, message, status: 'UNAVAILABLE' } });
    case 'openai-compatible':
      return data({ error: { message, type: 'server_error', code: 'server_error' } });
  }
}

const PIECE_CHARS = 8_192;

/** Small texts word by word, large ones in pieces. */
function pieces(text: string): readonly string[] {
  if (text.length < 1_000) return text.match(/\s*\S+\s*$|\s*\S+/gu) ?? (text === '' ? [] : [text]);
  return Array.from({ length: Math.ceil(text.length / PIECE_CHARS) }, (_, i) =>
    text.slice(i * PIECE_CHARS, (i + 1) * PIECE_CHARS),
  );
}

function data(value: unknown): string {
  return `data: ${JSON.stringify(value)}\n\n`;
}

function named(value: { readonly type: string } & Readonly<Record<string, unknown>>): string {
  return `event: ${value.type}\n${data(value)}`;
}

interface AnthropicBody {
  readonly content: readonly (
    | { readonly type: 'text'; readonly text: string }
    | { readonly type: 'tool_use'; readonly id: string; readonly name: string; readonly input: unknown }
    | { readonly type: 'thinking'; readonly thinking: string; readonly signature: string }
    | { readonly type: 'redacted_thinking'; readonly data: string }
  )[];
  readonly stop_reason: string;
  readonly usage: Readonly<Record<string, unknown>>;
}

function anthropicStream(body: AnthropicBody): string[] {
  const { content, stop_reason: reason, usage } = body;
  const { output_tokens: output, output_tokens_details: details, ...input } = usage;
  const begun = { ...body, content: [], stop_reason: null, usage: { ...input, output_tokens: 1 } };
  const ended = { output_tokens: output, ...(details === undefined ? {} : { output_tokens_details: details }) };
  const blocks = content.flatMap((block, index) => {
    const { empty, deltas } = anthropicBlock(block);
    return [
      named({ type: 'content_block_start', index, content_block: empty }),
      ...deltas.map((delta) => named({ type: 'content_block_delta', index, delta })),
      named({ type: 'content_block_stop', index }),
    ];
  });
  return [
    named({ type: 'message_start', message: begun }),
    named({ type: 'ping' }),
    ...blocks,
    named({ type: 'message_delta', delta: { stop_reason: reason, stop_sequence: null }, usage: ended }),
    named({ type: 'message_stop' }),
  ];
}

function anthropicBlock(block: AnthropicBody['content'][number]): { empty: object; deltas: readonly object[] } {
  switch (block.type) {
    case 'text':
      return {
        empty: { ...block, text: '' },
        deltas: pieces(block.text).map((text) => ({ type: 'text_delta', text })),
      };
    case 'tool_use':
      return {
        empty: { ...block, input: {} },
        deltas: pieces(JSON.stringify(block.input)).map((json) => ({ type: 'input_json_delta', partial_json: json })),
      };
    case 'thinking':
      return {
        empty: { ...block, thinking: '', signature: '' },
        deltas: [
          ...pieces(block.thinking).map((thinking) => ({ type: 'thinking_delta', thinking })),
          { type: 'signature_delta', signature: block.signature },
        ],
      };
    case 'redacted_thinking':
      return { empty: block, deltas: [] };
  }
}

interface OpenAiBody {
  readonly status: string;
  readonly output: readonly (
    | { readonly type: 'message'; readonly id: string; readonly content: readonly { readonly text: string }[] }
    | { readonly type: 'function_call'; readonly id: string; readonly arguments: string }
    | { readonly type: 'reasoning'; readonly id: string; readonly summary: readonly { readonly text: string }[] }
  )[];
}

function openaiStream(body: OpenAiBody): string[] {
  const begun = { ...body, status: 'in_progress', output: [], usage: null, incomplete_details: null };
  const items = body.output.flatMap((item, index) => {
    const at = { item_id: item.id, output_index: index };
    const { empty, deltas } = openaiItem(item, at);
    return [
      { type: 'response.output_item.added', output_index: index, item: { ...empty, status: 'in_progress' } },
      ...deltas,
      { type: 'response.output_item.done', output_index: index, item },
    ];
  });
  const type = body.status === 'completed' ? 'response.completed' : 'response.incomplete';
  return [{ type: 'response.created', response: begun }, ...items, { type, response: body }].map((event, at) =>
    named({ ...event, sequence_number: at }),
  );
}

type OpenAiFrame = { readonly type: string } & Readonly<Record<string, unknown>>;

function openaiItem(item: OpenAiBody['output'][number], at: object): { empty: object; deltas: readonly OpenAiFrame[] } {
  switch (item.type) {
    case 'message':
      return {
        empty: { ...item, content: [] },
        deltas: pieces(item.content[0]?.text ?? '').map((delta) => ({
          ...{ type: 'response.output_text.delta', ...at, content_index: 0, delta, logprobs: [] },
        })),
      };
    case 'function_call':
      return {
        empty: { ...item, arguments: '' },
        deltas: pieces(item.arguments).map((delta) => ({
          ...{ type: 'response.function_call_arguments.delta', ...at, delta },
        })),
      };
    case 'reasoning': {
      const deltas = item.summary.flatMap((part, index) => {
        const of = { ...at, summary_index: index };
        return [
          { type: 'response.reasoning_summary_part.added', ...of, part: { type: 'summary_text', text: '' } },
          ...pieces(part.text).map((delta) => ({ type: 'response.reasoning_summary_text.delta', ...of, delta })),
          { type: 'response.reasoning_summary_part.done', ...of, part },
        ];
      });
      // What is encrypted is there with the end only.
      return { empty: { ...item, summary: [], encrypted_content: null }, deltas };
    }
  }
}

interface GoogleBody {
  readonly candidates: readonly {
    readonly content?: { readonly parts: readonly { readonly text?: string }[] };
    readonly finishReason: string;
  }[];
  readonly usageMetadata: { readonly promptTokenCount: number };
}

function googleStream({ candidates, usageMetadata, ...rest }: GoogleBody): string[] {
  const candidate = candidates[0];
  const parts = (candidate?.content?.parts ?? []).flatMap((part) =>
    part.text === undefined ? [part] : pieces(part.text).map((text) => ({ ...part, text })),
  );
  const { promptTokenCount } = usageMetadata;
  const chunks = parts.map((part) => ({
    ...{ candidates: [{ content: { role: 'model', parts: [part] }, index: 0 }], usageMetadata: { promptTokenCount } },
    ...rest,
  }));
  const last = { candidates: [{ finishReason: candidate?.finishReason, index: 0 }], usageMetadata, ...rest };
  return [...chunks, last].map(data);
}

interface ChatBody {
  readonly id: string;
  readonly created: number;
  readonly model: string;
  readonly choices: readonly {
    readonly message: {
      readonly content: string | null;
      readonly reasoning_content?: string;
      readonly tool_calls?: readonly {
        readonly id: string;
        readonly type: string;
        readonly function: { readonly name: string; readonly arguments: string };
      }[];
    };
    readonly finish_reason: string;
  }[];
  readonly usage?: unknown;
}

function chatStream({ id, created, model, choices, usage }: ChatBody): string[] {
  const choice = choices[0];
  const calls = (choice?.message.tool_calls ?? []).flatMap(
    ({ function: { name, arguments: input }, ...call }, index) => [
      { tool_calls: [{ index, ...call, function: { name, arguments: '' } }] },
      ...pieces(input).map((text) => ({ tool_calls: [{ index, function: { arguments: text } }] })),
    ],
  );
  const deltas = [
    { role: 'assistant', content: '' },
    ...pieces(choice?.message.reasoning_content ?? '').map((thought) => ({ reasoning_content: thought })),
    ...pieces(choice?.message.content ?? '').map((content) => ({ content })),
    ...calls,
  ];
  const chunk = { id, object: 'chat.completion.chunk', created, model };
  return [
    ...deltas.map((delta) => data({ ...chunk, choices: [{ index: 0, delta, finish_reason: null }] })),
    data({ ...chunk, choices: [{ index: 0, delta: {}, finish_reason: choice?.finish_reason }] }),
    ...(usage === undefined ? [] : [data({ ...chunk, choices: [], usage })]),
    'data: [DONE]\n\n',
  ];
}

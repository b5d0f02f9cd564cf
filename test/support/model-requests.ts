import { z } from 'zod';
import type { Wire } from './model-wire.ts';

/* What providers accept in a request, and what they refuse. */

const text = z.string().regex(/\S/);
const safeId = z.string().regex(/^[a-zA-Z0-9_-]{1,64}$/);
const toolName = z.string().regex(/^[a-zA-Z0-9_-]{1,64}$/);
const object = z.record(z.string(), z.unknown());
const jsonObjectText = z.string().transform((value) => object.parse(JSON.parse(value)));

const base64 = z.base64().min(1);
const dataUrl = (type: string) => z.string().regex(new RegExp(`^data:${type};base64,[A-Za-z0-9+/]+=*$`));
const imageUrl = dataUrl('image/(png|jpeg|gif|webp)');

const anthropicShown = [
  z.object({ type: z.literal('text'), text }),
  z.object({
    type: z.literal('image'),
    source: z.object({ type: z.literal('base64'), media_type: z.string().startsWith('image/'), data: base64 }),
  }),
  z.object({
    type: z.literal('document'),
    source: z.object({ type: z.literal('base64'), media_type: z.literal('application/pdf'), data: base64 }),
  }),
] as const;
const anthropicBlock = z.discriminatedUnion('type', [
  ...anthropicShown,
  z.object({ type: z.literal('tool_use'), id: safeId, name: toolName, input: object }),
  z.object({ type: z.literal('thinking'), thinking: z.string(), signature: text }),
  z.object({ type: z.literal('redacted_thinking'), data: text }),
  z.object({
    type: z.literal('tool_result'),
    tool_use_id: safeId,
    content: z.union([z.string(), z.array(z.discriminatedUnion('type', anthropicShown)).min(1)]),
    is_error: z.boolean().optional(),
  }),
]);
const anthropicRequest = z.object({
  model: text,
  stream: z.literal(true),
  max_tokens: z.int().min(1),
  system: z.array(z.object({ type: z.literal('text'), text })).optional(),
  messages: z.array(z.object({ role: z.enum(['user', 'assistant']), content: z.array(anthropicBlock).min(1) })).min(1),
});
const openaiShown = z.union([
  z.object({ type: z.literal('input_text'), text }),
  z.strictObject({ type: z.literal('input_image'), image_url: imageUrl }),
  z.strictObject({
    type: z.literal('input_file'),
    filename: z.string().regex(/\.pdf$/i),
    file_data: dataUrl('application/pdf'),
  }),
  // Of a file that is stored there.
  z.strictObject({ type: z.enum(['input_image', 'input_file']), file_id: text }),
]);
const openaiItem = z.union([
  z.object({ role: z.enum(['system', 'developer']), content: text }),
  z.object({
    role: z.literal('user'),
    content: z.array(openaiShown).min(1),
  }),
  z.object({
    role: z.literal('assistant'),
    content: z.union([text, z.array(z.object({ type: z.literal('output_text'), text })).min(1)]),
  }),
  // What is not stored at OpenAI comes back as it was encrypted there.
  z.object({ type: z.literal('reasoning'), id: text, encrypted_content: text, summary: z.array(z.object({ text })) }),
  z.object({ type: z.literal('function_call'), call_id: safeId, name: toolName, arguments: jsonObjectText }),
  z.object({
    type: z.literal('function_call_output'),
    call_id: safeId,
    output: z.union([z.string(), z.array(openaiShown).min(1)]),
  }),
]);
const openaiRequest = z.object({
  model: text,
  stream: z.literal(true),
  store: z.literal(false),
  input: z.array(openaiItem).min(1),
});
const googlePart = z.union([
  z.object({ text }),
  z.object({ inlineData: z.object({ mimeType: text, data: base64 }) }),
  z.object({ fileData: z.object({ mimeType: text, fileUri: z.url() }) }),
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
const chatRequest = z.object({
  model: text,
  stream: z.literal(true),
  // Otherwise it reports no usage.
  stream_options: z.object({ include_usage: z.literal(true) }),
  messages: z.array(chatMessage).min(1),
});

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
  if ('summary' in item) return [];
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

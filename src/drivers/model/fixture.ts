import { z } from 'zod';
import type { ConversationMessage } from '../../domain/turn/conversation.ts';
import type { ModelOutcome } from '../../domain/turn/model-outcome.ts';
import { NO_USAGE } from '../../domain/turn/usage.ts';
import type { Usage } from '../../domain/turn/usage.ts';
import { delay } from '../../lib/backoff.ts';
import type { ModelDriver, ModelFile, ModelRequest, OnModelDelta } from './port.ts';

const step = z.strictObject({
  text: z.string().optional(),
  toolCalls: z
    .array(z.strictObject({ name: z.string(), input: z.unknown() }))
    .max(100)
    .optional(),
  error: z.strictObject({ code: z.string(), message: z.string(), retryable: z.boolean().optional() }).optional(),
  delayMs: z.int().min(0).max(3_600_000).optional(),
  tokensPerSecond: z.number().min(0.01).max(100_000).optional(),
  usage: z.strictObject({ inputTokens: z.int().min(0), outputTokens: z.int().min(0) }).optional(),
});

const script = z.strictObject({ fixture: z.array(step).max(1_000) });

type Step = z.infer<typeof step>;

/**
 * The deterministic model: it plays the script in the newest user message, a step per call, and echoes if there is
 * none. It is free, so its cost is known to be 0.
 */
export const fixtureModel: ModelDriver = {
  async call(asked, signal, onDelta) {
    const request = await withTextOfFiles(asked);
    const played = scriptOf(request)[request.answered];
    if (played?.delayMs !== undefined) await delay(played.delayMs, signal);
    const written =
      played?.tokensPerSecond === undefined ? '' : await write(played, played.tokensPerSecond, { signal, onDelta });
    if (signal.aborted) return cancelled(written === '' ? NO_USAGE : estimated(request, written));
    return played === undefined ? echo(request) : play(played, request);
  },
};

interface Writing {
  readonly signal: AbortSignal;
  readonly onDelta: OnModelDelta | undefined;
}

/** Word by word, a word a token: the text, then the inputs of the calls. Returns what was written. */
async function write({ text = '', toolCalls = [] }: Step, rate: number, { signal, onDelta }: Writing): Promise<string> {
  const said = wordsOf(text).map((word) => ({ kind: 'text' as const, text: word }));
  const called = toolCalls.flatMap(({ name, input }, index) =>
    wordsOf(JSON.stringify(input) ?? '').map((word) => ({ kind: 'toolCall' as const, index, name, input: word })),
  );
  let written = '';
  for (const delta of [...said, ...called]) {
    await delay(1_000 / rate, signal);
    if (signal.aborted) break;
    onDelta?.(delta);
    written += delta.kind === 'text' ? delta.text : delta.input;
  }
  return written;
}

/** With the white space before each. No part of the pattern repeats: the text is a tenant's, and may be nothing but blanks. */
function wordsOf(text: string): readonly string[] {
  return text === '' ? [] : text.split(/(?<=\S)(?=\s)/u);
}

/** A message of files only is answered with the contents of text files, and with what the others are. */
async function withTextOfFiles(request: ModelRequest): Promise<ModelRequest> {
  const at = request.messages.findLastIndex((message) => message.role === 'user' && message.byHost !== true);
  const message = request.messages[at];
  if (message?.role !== 'user' || message.text !== '' || message.files === undefined) return request;
  const texts: string[] = [];
  for (const ref of message.files) texts.push(await textOf(await request.file(ref)));
  return { ...request, messages: request.messages.with(at, { ...message, text: texts.join('\n') }) };
}

async function textOf(file: ModelFile | null): Promise<string> {
  if (file === null) return '[a deleted file]';
  const { name, contentType, size, read } = file;
  if (read === null || !contentType.startsWith('text/')) return `[${name}, ${contentType}, ${size} bytes]`;
  return Buffer.from(await read()).toString();
}

function scriptOf(request: ModelRequest): readonly Step[] {
  const user = request.messages.findLast((message) => message.role === 'user' && message.byHost !== true);
  if (user === undefined) return [];
  const known = scripts.get(user);
  if (known !== undefined) return known;
  const steps = user.role === 'user' ? parsed(user.text) : [];
  scripts.set(user, steps);
  return steps;
}

/** By identity: a script is asked for with each of its steps. */
const scripts = new WeakMap<ConversationMessage, readonly Step[]>();

function parsed(text: string): readonly Step[] {
  if (!text.trimStart().startsWith('{')) return [];
  try {
    return script.parse(JSON.parse(text)).fixture;
  } catch {
    // Text that is not a script is text.
    return [];
  }
}

function play(played: Step, request: ModelRequest): ModelOutcome {
  const usage = usageOf(request, played.text ?? '', played.usage);
  if (played.error !== undefined) {
    const { code, message, retryable } = played.error;
    const overflow = code === 'context_overflow' ? { contextOverflow: true as const } : {};
    return {
      kind: 'failed',
      error: { code, message },
      retryAfterMs: retryable === true ? 0 : null,
      usage,
      ...overflow,
    };
  }
  const calls = (played.toolCalls ?? []).map(({ name, input }, i) => ({
    callId: `call_${request.callId.slice(3)}_${i}`,
    name,
    input,
  }));
  const finishReason = calls.length === 0 ? 'stop' : 'tool_calls';
  return { kind: 'completed', text: played.text ?? '', toolCalls: calls, finishReason, usage };
}

function echo(request: ModelRequest): ModelOutcome {
  const text = `echo: ${lastInput(request.messages)}`;
  return { kind: 'completed', text, toolCalls: [], finishReason: 'stop', usage: usageOf(request, text, undefined) };
}

function lastInput(messages: readonly ConversationMessage[]): string {
  const last = messages.findLast((message) => message.role !== 'assistant');
  if (last === undefined) return '';
  if (last.role === 'user') return last.text;
  return typeof last.output === 'string' ? last.output : JSON.stringify(last.output ?? null);
}

/**
 * Four characters per token, unless the script says otherwise. Only the newest input is counted, so that the cost does
 * not grow.
 */
function usageOf(request: ModelRequest, output: string, said: Step['usage']): Usage {
  const input = request.instructions.length + lastInput(request.messages).length;
  const inputTokens = said?.inputTokens ?? Math.ceil(input / 4);
  const outputTokens = said?.outputTokens ?? Math.ceil(output.length / 4);
  const totalTokens = inputTokens + outputTokens;
  return { ...NO_USAGE, inputTokens, outputTokens, totalTokens, tokensReported: true, costKnown: true };
}

/** A script may say what a whole answer uses; of a part it says nothing. */
function estimated(request: ModelRequest, written: string): Usage {
  return { ...usageOf(request, written, undefined), tokensReported: false };
}

function cancelled(usage: Usage): ModelOutcome {
  return {
    kind: 'failed',
    error: { code: 'cancelled', message: 'The call was cancelled.' },
    retryAfterMs: null,
    usage,
  };
}

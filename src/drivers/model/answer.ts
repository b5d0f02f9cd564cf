import type { LanguageModelV4FinishReason, LanguageModelV4Usage } from '@ai-sdk/provider';
import type { FinishReason } from '../../domain/turn/attempt.ts';
import type { ModelOutcome } from '../../domain/turn/model-outcome.ts';
import type { Thinking } from '../../domain/turn/thinking.ts';
import type { Usage } from '../../domain/turn/usage.ts';
import { CHARS_PER_TOKEN, countOf, isCount, sentTokens } from './estimate.ts';
import { failed } from './failure.ts';
import type { OwnPrice, RemoteProvider } from './port.ts';
import { costOf } from './prices.ts';
import type { Seller } from './prices.ts';
import type { AnswerReader, StreamedAnswer } from './stream.ts';
import { thinkingOf } from './thinking.ts';

/**
 * Text and inputs of one answer; with the rest of its commit they fit the smallest message size that a log may accept.
 */
export const ANSWER_CHARS_MAX = 1_000_000;
const CALLS_MAX = 200;
/** Of what is shown of one answer's thoughts; the rest is left out. */
const REASONING_CHARS_MAX = 100_000;

export interface AnswerContext {
  /** Of the call; ids of tool calls are derived from it. */
  readonly callId: string;
  readonly provider: RemoteProvider;
  readonly model: string;
  /** Whether readers are shown what the model thought. */
  readonly showReasoning: boolean;
  readonly seller: Seller;
  /** What the tenant pays, before the catalogue's prices. */
  readonly prices: readonly OwnPrice[];
}

const FINISH_REASONS: Readonly<Record<LanguageModelV4FinishReason['unified'], FinishReason>> = {
  stop: 'stop',
  length: 'length',
  'content-filter': 'content_filter',
  'tool-calls': 'tool_calls',
  error: 'other',
  interrupted: 'other',
  other: 'other',
};

/** What a model answered, as a turn takes it. */
export function outcomeOf(answer: StreamedAnswer, context: AnswerContext): ModelOutcome {
  return { ...contentOf(answer, context), finishReason: FINISH_REASONS[answer.finishReason.unified] };
}

function contentOf({ content, finishReason, usage: reported }: StreamedAnswer, context: AnswerContext): ModelOutcome {
  const usage = usageOf(reported, context);
  // One by one: cleaning leaves their lengths as they are.
  const text = content.map((part) => (part.type === 'text' ? clean(part.text) : '')).join('');
  const calls = content.flatMap((part) => (part.type === 'call' ? [part.call] : []));
  const chars = calls.reduce((sum, { toolName, input }) => sum + toolName.length + input.length, text.length);
  if (chars > ANSWER_CHARS_MAX || calls.length > CALLS_MAX) {
    const message = 'The answer of the model is too large to be stored. Set maxOutputTokens.';
    return failed({ code: 'model_answer_too_large', message, retry: false }, usage);
  }
  if (finishReason.raw === 'model_context_window_exceeded') {
    const message = 'The context of the model was full before the answer was complete.';
    return failed({ code: 'model_context_overflow', message, retry: false, contextOverflow: true }, usage);
  }
  const useless = uselessBy(finishReason.unified, text === '' && calls.length === 0);
  if (useless !== null) return failed(useless, usage);
  const toolCalls = calls.map(({ toolName, input }, i) => ({
    callId: `call_${context.callId.slice(3)}_${i}`,
    name: clean(toolName),
    input: inputOf(input),
  }));
  return { kind: 'completed', text, toolCalls, usage, ...thoughtsOf(content, context, ANSWER_CHARS_MAX - chars) };
}

/** What is kept and shown of what a model thought, as far as there is room for it beside the answer. */
function thoughtsOf(
  content: StreamedAnswer['content'],
  { provider, model, showReasoning }: AnswerContext,
  charsMax: number,
): { readonly thinking?: Thinking; readonly reasoning?: string } {
  const thoughts = content.flatMap((part) => (part.type === 'thought' && part.text !== '' ? [part.text] : []));
  const shown = showReasoning ? clean(thoughts.join('\n\n')).slice(0, REASONING_CHARS_MAX).toWellFormed() : '';
  const thinking = thinkingOf(provider, model, content);
  const isKept = thinking !== null && JSON.stringify(thinking).length + shown.length <= charsMax;
  return { ...(isKept ? { thinking } : {}), ...(shown === '' || shown.length > charsMax ? {} : { reasoning: shown }) };
}

/**
 * Why an answer is none, by how it ended; null: it is one. What a provider withheld or broke off in the middle is not
 * what the model would have said, and no call of it may be made.
 */
function uselessBy(reason: LanguageModelV4FinishReason['unified'], isEmpty: boolean) {
  switch (reason) {
    case 'length':
      if (!isEmpty) return null;
      return {
        code: 'model_output_truncated',
        message: 'The model reached maxOutputTokens before it said anything. Raise it, or lower reasoningEffort.',
        retry: false,
      };
    case 'content-filter':
      return { code: 'model_refused', message: 'The provider withheld the answer by its content rules.', retry: false };
    case 'error':
      return {
        code: 'model_provider_error',
        message: 'The provider broke off the answer.',
        retry: true,
        mayBeBilled: true as const,
      };
    default:
      return null;
  }
}

/** An input that is not valid JSON is passed on as its text; the turn answers the model with a failed result. */
function inputOf(text: string): unknown {
  if (text.trim() === '') return {};
  try {
    return cleaned(JSON.parse(text));
  } catch {
    return clean(text);
  }
}

/** Text that every store can hold: no NUL, no lone surrogate. */
function clean(text: string): string {
  return text.toWellFormed().replaceAll('\u0000', '\ufffd');
}

const DEPTH_MAX = 60;

/** @throws RangeError when it is nested deeper than a store can hold */
function cleaned(value: unknown, depth = 0): unknown {
  if (typeof value === 'string') return clean(value);
  if (typeof value !== 'object' || value === null) return value;
  if (depth >= DEPTH_MAX) throw new RangeError('too deep');
  if (Array.isArray(value)) return value.map((one) => cleaned(one, depth + 1));
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [clean(name), cleaned(one, depth + 1)]));
}

/** What is known of a call whose stream did not come to its end; the rest is estimated. */
export function estimatedUsage(
  { chars, reported }: AnswerReader['soFar'],
  sent: Parameters<typeof sentTokens>[0],
  { seller, model, prices }: AnswerContext,
): Usage {
  const inputTokens = reported.inputTokens ?? sentTokens(sent);
  // Providers begin with a count of one, and come back to it at the end.
  const outputTokens = Math.max(reported.outputTokens ?? 0, Math.ceil(chars / CHARS_PER_TOKEN));
  const { cachedTokens = 0, cacheWriteTokens = 0, reasoningTokens = 0 } = reported;
  const tokens = { inputTokens, outputTokens, cachedTokens, cacheWriteTokens, reasoningTokens };
  const cost = costOf(seller, model, tokens, prices);
  return {
    ...{ ...tokens, totalTokens: inputTokens + outputTokens, duplicate: false, tokensReported: false },
    ...{ costUsd: cost ?? 0, costKnown: cost !== null },
  };
}

function usageOf({ inputTokens: input, outputTokens: output }: LanguageModelV4Usage, context: AnswerContext): Usage {
  const tokens = {
    inputTokens: countOf(input.total),
    outputTokens: countOf(output.total),
    totalTokens: countOf(input.total) + countOf(output.total),
    cachedTokens: countOf(input.cacheRead),
    cacheWriteTokens: countOf(input.cacheWrite),
    reasoningTokens: countOf(output.reasoning),
  };
  const tokensReported = isCount(input.total) && isCount(output.total);
  const cost = tokensReported ? costOf(context.seller, context.model, tokens, context.prices) : null;
  return { ...tokens, costUsd: cost ?? 0, duplicate: false, tokensReported, costKnown: cost !== null };
}

import type { ConversationMessage } from '../domain/turn/conversation.ts';
import type { ModelOutcome } from '../domain/turn/model-outcome.ts';
import { NO_USAGE } from '../domain/turn/usage.ts';
import type { ModelDriver, ModelRequest } from '../drivers/model/port.ts';
import type { ModelAnswer, ModelScript } from './types.ts';

/** A model that answers as a test says, for the provider `fixture`. It is free. */
export function scriptedModel(script: ModelScript): ModelDriver {
  return {
    call: async (request, signal) => {
      const answer = await unlessAborted(answerOf(script, request, signal), signal);
      if (answer === null) return CANCELLED;
      return outcomeOf(typeof answer === 'string' ? { text: answer } : answer, request);
    },
  };
}

const CANCELLED: ModelOutcome = {
  kind: 'failed',
  error: { code: 'cancelled', message: 'The call was cancelled.' },
  ...{ retryAfterMs: null, usage: NO_USAGE },
};

/** Null: its signal was aborted before; a script that ignores it is not waited for. */
async function unlessAborted<T>(answer: Promise<T>, signal: AbortSignal): Promise<T | null> {
  const aborted = Promise.withResolvers<null>();
  const abort = (): void => aborted.resolve(null);
  signal.addEventListener('abort', abort);
  if (signal.aborted) abort();
  return await Promise.race([answer, aborted.promise]).finally(() => signal.removeEventListener('abort', abort));
}

async function answerOf(script: ModelScript, request: ModelRequest, signal: AbortSignal): Promise<ModelAnswer> {
  const { model, instructions, messages, answered: step } = request;
  if (typeof script !== 'function') return script[step] ?? '';
  const tools = request.tools.map(({ name }) => name);
  return await script({ model, instructions, messages: messages.map(plain), tools, step, signal });
}

/** As JSON: a script that changes what it is given changes nothing else. */
function plain(message: ConversationMessage): Record<string, unknown> {
  return { ...structuredClone(message) };
}

function outcomeOf(answer: Exclude<ModelAnswer, string>, { callId }: ModelRequest): ModelOutcome {
  const { text = '', toolCalls = [], error, usage: given } = answer;
  const { inputTokens = 0, outputTokens = 0 } = given ?? {};
  const totalTokens = inputTokens + outputTokens;
  const usage = { ...NO_USAGE, inputTokens, outputTokens, totalTokens, tokensReported: true, costKnown: true };
  if (error !== undefined) {
    const { code, message, retryable = false } = error;
    return { kind: 'failed', error: { code, message }, retryAfterMs: retryable ? 0 : null, usage };
  }
  const calls = toolCalls.map(({ name, input = {} }, n) => ({ callId: `call_${callId.slice(3)}_${n}`, name, input }));
  const finishReason = calls.length === 0 ? 'stop' : 'tool_calls';
  return { kind: 'completed', text, toolCalls: calls, finishReason, usage };
}

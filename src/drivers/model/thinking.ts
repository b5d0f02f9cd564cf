import type {
  LanguageModelV4Message,
  LanguageModelV4ToolCall,
  LanguageModelV4ToolCallPart,
  SharedV4ProviderMetadata,
} from '@ai-sdk/provider';
import type { Seal, Thinking } from '../../domain/turn/thinking.ts';
import type { ModelRequest, RemoteProvider } from './port.ts';

/** A part of an answer, in its place. */
export type AnswerPart =
  | { readonly type: 'thought' | 'text'; readonly text: string; readonly seal?: Seal }
  | { readonly type: 'call'; readonly call: LanguageModelV4ToolCall; readonly seal?: Seal };

/** What of a provider's metadata has to go back: of a thought, and of what it led to. */
const KEPT: Readonly<Record<AnswerPart['type'], Readonly<Record<string, readonly string[]>>>> = {
  thought: {
    anthropic: ['signature', 'redactedData'],
    openai: ['itemId', 'reasoningEncryptedContent'],
    google: ['thoughtSignature'],
  },
  text: { google: ['thoughtSignature'], openai: ['phase'] },
  call: { google: ['thoughtSignature'] },
};

/** What was known of a part's seal and what another frame says of it; the newest counts. */
export function sealed(type: AnswerPart['type'], before: Seal, metadata: SharedV4ProviderMetadata | undefined): Seal {
  let after = before;
  for (const [provider, names] of Object.entries(KEPT[type])) {
    for (const name of names) {
      const value = metadata?.[provider]?.[name];
      if (typeof value === 'string') after = { ...after, [provider]: { ...after?.[provider], [name]: value } };
    }
  }
  return after;
}

/**
 * What has to be kept of an answer so that its model can continue; null: nothing. Servers that copy OpenAI sign nothing: some
 * want to have the thoughts before a call back, and none those before a text.
 */
export function thinkingOf(provider: RemoteProvider, model: string, content: readonly AnswerPart[]): Thinking | null {
  const isSealed = content.some((part) => part.seal !== undefined);
  const isAsked = content.some(({ type }) => type === 'thought') && content.some(({ type }) => type === 'call');
  if (!isSealed && !(provider === 'openai-compatible' && isAsked)) return null;
  const parts = content.map((part) => {
    const seal = part.seal === undefined ? {} : { seal: part.seal };
    if (part.type === 'call') return { kind: 'call' as const, ...seal };
    if (part.type === 'text') return { kind: 'text' as const, chars: part.text.length, ...seal };
    return { kind: 'thought' as const, text: part.text, ...seal };
  });
  return { provider, model, parts };
}

type AssistantContent = Extract<LanguageModelV4Message, { role: 'assistant' }>['content'];

/** A message's content with what was thought, each part in its place and unaltered. */
export function thoughtful(
  { parts }: Thinking,
  text: string,
  calls: readonly LanguageModelV4ToolCallPart[],
): AssistantContent {
  let [at, nth] = [0, 0];
  const content = parts.flatMap((part): AssistantContent => {
    const sent = part.seal === undefined ? {} : { providerOptions: part.seal };
    if (part.kind === 'thought') return [{ type: 'reasoning', text: part.text, ...sent }];
    if (part.kind === 'call') {
      const call = calls[nth];
      nth += 1;
      return call === undefined ? [] : [{ ...call, ...sent }];
    }
    const said = text.slice(at, at + part.chars);
    at += part.chars;
    return said.trim() === '' && part.seal === undefined ? [] : [{ type: 'text', text: said, ...sent }];
  });
  // A thought that nothing came of is refused.
  return content.slice(0, content.findLastIndex(({ type }) => type !== 'reasoning') + 1);
}

/**
 * Claude up to 4.5 accepts a step after tool results only with the thinking that preceded the calls, or without any; none is
 * kept of another model's steps and of what was shortened.
 */
const THINKS_IN_ONE_GO = /^claude-(3|(opus|sonnet|haiku)-4(-[0-5])?(-\d{8}|-latest)?$)/;

export function mayThink(provider: RemoteProvider, { model, messages, toolChoice }: ModelRequest): boolean {
  if (provider !== 'anthropic') return true;
  // It does not think about a call that it has to make.
  if (toolChoice === 'required' || typeof toolChoice === 'object') return false;
  if (messages.at(-1)?.role !== 'tool' || !THINKS_IN_ONE_GO.test(model)) return true;
  const asked = messages.findLastIndex(({ role }) => role === 'user');
  const first = messages.slice(asked + 1).find(({ role }) => role === 'assistant');
  return first?.role === 'assistant' && isOf(first.thinking, provider, model);
}

/** Whether a model may be given this thinking back. */
export function isOf(thinking: Thinking | undefined, provider: string, model: string): thinking is Thinking {
  return thinking?.provider === provider && thinking.model === model;
}

/** Shows what a model thinks, where a provider has to be asked for it. `effort`: what it is asked for in this call. */
export function thinkingOptions(
  provider: RemoteProvider,
  { model, settings }: Pick<ModelRequest, 'model' | 'settings'>,
  effort: string | undefined,
): Readonly<
  Record<string, Readonly<Record<string, string | boolean | null | Readonly<Record<string, string | boolean>>>>>
> {
  const isShown = settings.showReasoning === true;
  switch (provider) {
    case 'anthropic': {
      const thinks = effort !== undefined && effort !== 'none';
      // Older ones show it anyway, and know no such wish.
      return isShown && thinks && !THINKS_IN_ONE_GO.test(model)
        ? { anthropic: { thinking: { type: 'adaptive', display: 'summarized' } } }
        : {};
    }
    case 'openai':
      // Without a word from us the library asks for one, which takes time, and at OpenAI an organisation that is verified.
      return { openai: { reasoningSummary: isShown ? 'auto' : null } };
    case 'google':
      return isShown && effort !== 'none' ? { google: { thinkingConfig: { includeThoughts: true } } } : {};
    case 'openai-compatible':
      return {};
  }
}

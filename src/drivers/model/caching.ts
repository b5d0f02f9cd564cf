import type { LanguageModelV4Message } from '@ai-sdk/provider';
import type { ModelRequest, RemoteProvider } from './port.ts';

const BREAKPOINT = { anthropic: { cacheControl: { type: 'ephemeral' } } };

/**
 * The same prompt with the places up to which the provider keeps it, for those that want to be told: Anthropic. The tools
 * and the system prompt are one beginning that many calls share; the whole prompt is the beginning of the next step's; and
 * what was the whole prompt of the step before is where this one is found, however many results have come since (the
 * provider looks back over 20 blocks only). Where a prompt is too short to be kept, the provider ignores them.
 */
export function withBreakpoints(
  provider: RemoteProvider,
  { settings }: Pick<ModelRequest, 'settings'>,
  prompt: LanguageModelV4Message[],
): LanguageModelV4Message[] {
  if (provider !== 'anthropic' || settings.caching === 'off') return prompt;
  const marked = new Set([
    prompt.findIndex(({ role }) => role === 'system'),
    endOfStepBefore(prompt),
    prompt.length - 1,
  ]);
  return prompt.map((message, at) => (marked.has(at) ? { ...message, providerOptions: BREAKPOINT } : message));
}

/** The last message that the step before was sent; -1: there was none. */
function endOfStepBefore(prompt: readonly LanguageModelV4Message[]): number {
  const answered = prompt.findLastIndex(({ role }) => role === 'assistant');
  return answered < 1 ? -1 : answered - 1;
}

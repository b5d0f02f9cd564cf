import type { LanguageModelV4CallOptions, LanguageModelV4Message } from '@ai-sdk/provider';

/**
 * What a stream has used that was cut or cancelled: what the provider has said of it so far, and of the rest an estimate of
 * what was sent and received. Four UTF-16 units of text, of names and of JSON are a token, and a file is as many as an
 * image of middle size.
 */
export interface PartlyReported {
  readonly inputTokens?: number;
  readonly cachedTokens?: number;
  readonly cacheWriteTokens?: number;
  readonly outputTokens?: number;
  readonly reasoningTokens?: number;
}

export const CHARS_PER_TOKEN = 4;
const FILE_TOKENS = 1_500;

/** Tokens of a request. */
export function sentTokens({ prompt, tools = [] }: Pick<LanguageModelV4CallOptions, 'prompt' | 'tools'>): number {
  const declared = tools.reduce((sum, tool) => sum + (JSON.stringify(tool) ?? '').length, 0);
  const chars = prompt.reduce((sum, message) => sum + charsOf(message), declared);
  return Math.ceil(chars / CHARS_PER_TOKEN);
}

type Part = Exclude<LanguageModelV4Message['content'], string>[number];

function charsOf({ content }: LanguageModelV4Message): number {
  if (typeof content === 'string') return content.length;
  return content.reduce((sum: number, part: Part) => sum + charsOfPart(part), 0);
}

function charsOfPart(part: Part): number {
  switch (part.type) {
    case 'text':
    case 'reasoning':
      return part.text.length;
    case 'tool-call':
      return part.toolName.length + jsonChars(part.input);
    case 'tool-result': {
      const { output } = part;
      if (output.type !== 'content') return jsonChars('value' in output ? output.value : undefined);
      return output.value.reduce((sum, one) => sum + (one.type === 'text' ? one.text.length : FILE_CHARS), 0);
    }
    case 'file':
      return FILE_CHARS;
    default:
      return 0;
  }
}

const FILE_CHARS = FILE_TOKENS * CHARS_PER_TOKEN;

function jsonChars(value: unknown): number {
  return (JSON.stringify(value) ?? '').length;
}

/** What a frame of a provider's stream says about tokens, as far as the providers do before the end. */
export function reportedIn(frame: unknown): PartlyReported | null {
  const usage = of(of(frame, 'message'), 'usage') ?? of(frame, 'usage') ?? of(frame, 'usageMetadata');
  if (typeof usage !== 'object' || usage === null) return null;
  const read = (...names: readonly string[]): number => names.reduce((sum, name) => sum + countOf(of(usage, name)), 0);
  const cached = read('cache_read_input_tokens', 'cachedContentTokenCount');
  const written = read('cache_creation_input_tokens');
  // Claude's input leaves out what its cache is used for; Gemini's output leaves out its thoughts.
  const input = read('input_tokens', 'prompt_tokens', 'promptTokenCount') + read('cache_read_input_tokens') + written;
  const thought = read('thoughtsTokenCount');
  const output = read('output_tokens', 'completion_tokens', 'candidatesTokenCount') + thought;
  return {
    ...(input === 0 ? {} : { inputTokens: input, cachedTokens: cached, cacheWriteTokens: written }),
    ...(output === 0 ? {} : { outputTokens: output, reasoningTokens: thought }),
  };
}

function of(value: unknown, name: string): unknown {
  if (typeof value !== 'object' || value === null) return undefined;
  return Object.hasOwn(value, name) ? Reflect.get(value, name) : undefined;
}

const TOKENS_MAX = 1_000_000_000_000;

/** What an unknown server reports is not taken on trust. */
export function isCount(value: unknown): value is number {
  return typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= TOKENS_MAX;
}

export function countOf(value: unknown): number {
  return isCount(value) ? value : 0;
}

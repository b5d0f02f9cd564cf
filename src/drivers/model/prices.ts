import { calcPrice, findProvider } from '@pydantic/genai-prices';
import type { ModelInfo, ModelPrice } from '@pydantic/genai-prices';
import { optional } from '../../domain/kernel/optional.ts';
import type { Usage } from '../../domain/turn/usage.ts';
import type { OwnPrice } from './port.ts';

/** A model of the catalogue; prices in US dollars per million tokens, the lowest tier where there are several. */
export interface PricedModel {
  readonly id: string;
  readonly name: string;
  readonly contextWindow?: number;
  readonly inputUsdPerMillion?: number;
  readonly outputUsdPerMillion?: number;
}

/** Who sells the model: the provider itself, or for an address of the tenant's own the provider that is known to be there. */
export type Seller = { readonly providerId: string } | { readonly providerApiUrl: string };

type Tokens = Pick<Usage, 'inputTokens' | 'outputTokens' | 'cachedTokens' | 'cacheWriteTokens'>;

/** What a call cost at the price that the tenant itself has named, US dollars. */
function ownCost(price: OwnPrice, { inputTokens, outputTokens, cachedTokens, cacheWriteTokens }: Tokens): number {
  const { inputUsdPerMillion: input, outputUsdPerMillion: output } = price;
  const { cacheReadUsdPerMillion: read = input, cacheWriteUsdPerMillion: write = input } = price;
  const plainTokens = Math.max(0, inputTokens - cachedTokens - cacheWriteTokens);
  return (plainTokens * input + cachedTokens * read + cacheWriteTokens * write + outputTokens * output) / 1_000_000;
}

/** What a call cost, US dollars; null when no price is known for the model. */
export function costOf(seller: Seller, model: string, tokens: Tokens, own: readonly OwnPrice[] = []): number | null {
  const named = own.find((price) => price.model === model);
  if (named !== undefined) return ownCost(named, tokens);
  const usage = {
    // All input tokens, including cached ones.
    input_tokens: Math.max(tokens.inputTokens, tokens.cachedTokens + tokens.cacheWriteTokens),
    output_tokens: tokens.outputTokens,
    cache_read_tokens: tokens.cachedTokens,
    cache_write_tokens: tokens.cacheWriteTokens,
  };
  try {
    const total = calcPrice(usage, model, seller)?.total_price;
    return total !== undefined && Number.isFinite(total) && total >= 0 ? total : null;
  } catch {
    // The catalogue has the model, but no price for what was used of it.
    return null;
  }
}

/** Tokens that a model accepts, including its answer; null when the catalogue does not say. */
export function contextWindowOf(provider: string, model: string): number | null {
  const key = `${provider} ${model}`;
  const known = windows.get(key);
  if (known !== undefined) return known;
  const found = findWindow(provider, model);
  // Names come from manifests, so there is no limit to them.
  if (windows.size >= WINDOWS_KEPT) windows.clear();
  windows.set(key, found);
  return found;
}

/** Looking one up takes a fifth of a millisecond, and each call asks for it. */
const windows = new Map<string, number | null>();
const WINDOWS_KEPT = 1_000;

function findWindow(provider: string, model: string): number | null {
  try {
    const found = calcPrice({ input_tokens: 1, output_tokens: 1 }, model, { providerId: provider });
    return found?.model.context_window ?? null;
  } catch {
    return null;
  }
}

/** A provider's text models in the catalogue, by id. */
export function catalogueOf(provider: string): readonly PricedModel[] {
  const found = findProvider({ providerId: provider });
  const own = OWN_MODELS[provider];
  const models = (found?.models ?? []).filter(({ id, deprecated }) => deprecated !== true && own?.test(id) === true);
  return models.map((model) => pricedModel(provider, model)).toSorted((one, other) => (one.id < other.id ? -1 : 1));
}

/** The catalogue also has what other kinds of APIs sell: images, speech, embeddings, other makers' models. */
const OWN_MODELS: Readonly<Record<string, RegExp>> = {
  anthropic: /^claude-(?!v?\d)/,
  openai: /^(gpt-[4-9](?!.*(image|audio|realtime|transcribe|tts|vision|ft|:))|o\d|codex)/,
  google: /^(gemini|gemma)-\d(?!.*(image|tts|live|vision|embedding|maas))/,
};

function pricedModel(provider: string, { id, name, context_window: contextWindow }: ModelInfo): PricedModel {
  // Prices change by date: the one in force now is meant.
  const found = calcPrice({ input_tokens: 1, output_tokens: 1 }, id, { providerId: provider });
  const current = found?.model.id === id ? found.model_price : undefined;
  const [input, output] = [lowest(current, 'input_mtok'), lowest(current, 'output_mtok')];
  return {
    id,
    name: name ?? id,
    ...optional({ contextWindow, inputUsdPerMillion: input, outputUsdPerMillion: output }),
  };
}

function lowest(prices: ModelPrice | undefined, unit: string): number | undefined {
  const price = prices?.[unit];
  return typeof price === 'object' ? price.base : price;
}

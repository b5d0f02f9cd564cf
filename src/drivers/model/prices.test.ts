import { expect, test } from 'vitest';
import { catalogueOf, costOf } from './prices.ts';

const tokens = (inputTokens: number, outputTokens = 0, cachedTokens = 0, cacheWriteTokens = 0) => ({
  ...{ inputTokens, outputTokens, cachedTokens, cacheWriteTokens },
});
const anthropic = { providerId: 'anthropic' };

test('input, output, what came from the cache and what went there have prices of their own', () => {
  // Dollars for a million tokens: 3, 15, 0.30 and 3.75; below the tier of long contexts.
  const model = 'claude-sonnet-4-5-20250929';
  expect(costOf(anthropic, model, tokens(100_000))).toBeCloseTo(0.3, 10);
  expect(costOf(anthropic, model, tokens(100_000, 10_000))).toBeCloseTo(0.45, 10);
  expect(costOf(anthropic, model, tokens(100_000, 0, 100_000))).toBeCloseTo(0.03, 10);
  expect(costOf(anthropic, model, tokens(100_000, 0, 50_000, 50_000))).toBeCloseTo(0.015 + 0.1875, 10);
  expect(costOf(anthropic, model, tokens(0))).toBe(0);
});

test('who is at an address is known by it; an unknown price is not made up', () => {
  expect(
    costOf({ providerApiUrl: 'https://api.groq.com/openai/v1' }, 'llama-3.3-70b-versatile', tokens(1_000)),
  ).toBeGreaterThan(0);
  for (const seller of [{ providerApiUrl: 'http://127.0.0.1:1/v1' }, { providerApiUrl: 'https://models.example' }]) {
    expect(costOf(seller, 'gpt-5-mini', tokens(1_000))).toBeNull();
  }
  expect(costOf(anthropic, 'nobody-sells-this', tokens(1_000))).toBeNull();
});

test('what a tenant says that it pays counts before the catalogue', () => {
  const model = 'claude-sonnet-4-5';
  const price = { model, inputUsdPerMillion: 10, outputUsdPerMillion: 100 };
  expect(costOf(anthropic, model, tokens(1_000_000, 10_000), [price])).toBeCloseTo(11, 10);
  // What has no price of its own costs as much as other input.
  expect(costOf(anthropic, model, tokens(1_000_000, 0, 400_000, 100_000), [price])).toBeCloseTo(10, 10);
  const cached = { ...price, cacheReadUsdPerMillion: 1, cacheWriteUsdPerMillion: 20 };
  expect(costOf(anthropic, model, tokens(1_000_000, 0, 400_000, 100_000), [cached])).toBeCloseTo(5 + 0.4 + 2, 10);
  expect(
    costOf({ providerApiUrl: 'http://127.0.0.1:1/v1' }, 'own', tokens(1_000_000), [{ ...price, model: 'own' }]),
  ).toBe(10);
  expect(costOf(anthropic, 'another', tokens(1), [price])).toBeNull();
});

test('usage that cannot be is not an error', () => {
  expect(costOf(anthropic, 'claude-sonnet-4-5', tokens(10, 1, 500, 500))).toBeGreaterThan(0);
});

test('the catalogue lists models that make text, each once, at prices of today', () => {
  for (const provider of ['anthropic', 'openai', 'google']) {
    const models = catalogueOf(provider);
    expect(new Set(models.map(({ id }) => id)).size).toBe(models.length);
    expect(models.map(({ id }) => id).join(' ')).not.toMatch(/embedding|image|tts|whisper|realtime|:/);
  }
  expect(catalogueOf('anthropic').find(({ id }) => id === 'claude-sonnet-4-5')).toEqual({
    ...{ id: 'claude-sonnet-4-5', name: 'Claude Sonnet 4.5', contextWindow: 200_000 },
    ...{ inputUsdPerMillion: 3, outputUsdPerMillion: 15 },
  });
  expect(catalogueOf('openai-compatible')).toEqual([]);
});

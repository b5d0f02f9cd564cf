import { describe, expect, test } from 'vitest';
import type { ModelOutcome } from '../../domain/turn/model-outcome.ts';
import { NO_USAGE } from '../../domain/turn/usage.ts';
import { Circuits } from './circuit.ts';
import type { ModelDriver, ModelRequest } from './port.ts';

const ANSWER: ModelOutcome = { kind: 'completed', text: 'here', toolCalls: [], usage: NO_USAGE };
const failing = (code: string, retryAfterMs: number | null = 0): ModelOutcome => ({
  ...{ kind: 'failed', error: { code, message: 'm' }, retryAfterMs, usage: NO_USAGE },
});
const BUSY = failing('model_overloaded');
const NEVER = new AbortController().signal;

/** A provider whose answer a test sets, behind its circuit. */
class Provider {
  asked = 0;
  nowMs = 1_000_000;
  apiKey = 'one';
  answer: ModelOutcome | Promise<ModelOutcome> = BUSY;
  readonly #driver: ModelDriver;

  constructor() {
    const connections = async () =>
      await Promise.resolve({ baseUrl: null, key: { kind: 'known', apiKey: this.apiKey } as const });
    const call = async (): Promise<ModelOutcome> => {
      this.asked += 1;
      return await this.answer;
    };
    this.#driver = new Circuits({ connections, clock: () => this.nowMs, random: () => 0 }).around('p', { call });
  }

  async call({ tenant = 't', model = 'm', signal = NEVER } = {}): Promise<ModelOutcome> {
    const request: ModelRequest = {
      ...{
        callId: 'mc_1',
        tenant,
        conversationId: 'c',
        model,
        settings: {},
        instructions: '',
        messages: [],
        tools: [],
      },
      ...{ file: async () => await Promise.resolve(null), outputSchema: null, toolChoice: 'auto', answered: 0 },
    };
    return await this.#driver.call(request, signal);
  }

  async times(n: number, answer: ModelOutcome): Promise<void> {
    this.answer = answer;
    for (let i = 0; i < n; i++) await this.call();
  }
}

/** One that has failed as often as it takes. */
async function down(): Promise<Provider> {
  const provider = new Provider();
  await provider.times(5, BUSY);
  return provider;
}

describe('a model that has failed several times in a row', () => {
  test('is sent nothing for a while, and says when to come again', async () => {
    const provider = await down();
    const outcome = await provider.call();
    expect(outcome).toMatchObject({ kind: 'failed', error: { code: 'model_overloaded' }, notSent: true });
    expect(outcome.usage).toEqual(NO_USAGE);
    expect(provider.asked).toBe(5);
    const afterMs = outcome.kind === 'failed' ? (outcome.retryAfterMs ?? 0) : 0;
    expect(afterMs).toBeGreaterThan(0);
    expect(afterMs).toBeLessThanOrEqual(1_000);
  });

  test('is tried by one call alone, and is up once that is answered', async () => {
    const provider = await down();
    provider.nowMs += 1_000;
    const probe = Promise.withResolvers<ModelOutcome>();
    provider.answer = probe.promise;
    const trying = provider.call();
    await Promise.resolve();
    expect(await provider.call()).toMatchObject({ notSent: true });
    provider.answer = ANSWER;
    probe.resolve(ANSWER);
    expect(await trying).toBe(ANSWER);
    expect(await provider.call()).toBe(ANSWER);
    expect(provider.asked).toBe(7);
  });

  test('is left alone for longer each time that it fails, and never for longer than half a minute', async () => {
    const provider = await down();
    let before = 0;
    for (let n = 0; n < 12; n++) {
      const outcome = await provider.call();
      const waitMs = outcome.kind === 'failed' ? (outcome.retryAfterMs ?? 0) : 0;
      expect(waitMs).toBeGreaterThanOrEqual(Math.min(before, 15_000) / 2);
      expect(waitMs).toBeLessThanOrEqual(30_000);
      before = waitMs;
      provider.nowMs += waitMs;
      await provider.call();
    }
    expect(before).toBeGreaterThanOrEqual(15_000);
  });

  test('is left alone no longer for the calls that were under way when it went down', async () => {
    const provider = new Provider();
    const end = Promise.withResolvers<ModelOutcome>();
    provider.answer = end.promise;
    const many = Array.from({ length: 40 }, async () => await provider.call());
    end.resolve(BUSY);
    await Promise.all(many);
    const outcome = await provider.call();
    expect(outcome).toMatchObject({ notSent: true });
    expect(outcome.kind === 'failed' && outcome.retryAfterMs).toBeLessThanOrEqual(1_000);
  });

  test('is as long left alone as it asks for', async () => {
    const provider = new Provider();
    await provider.times(5, failing('model_overloaded', 20_000));
    expect(await provider.call()).toMatchObject({ notSent: true, retryAfterMs: 20_000 });
  });

  test('is up for another tenant, another key and another model', async () => {
    const provider = await down();
    provider.answer = ANSWER;
    expect(await provider.call({ tenant: 'other' })).toBe(ANSWER);
    expect(await provider.call({ model: 'other' })).toBe(ANSWER);
    expect(await provider.call()).toMatchObject({ notSent: true });
    provider.apiKey = 'two';
    expect(await provider.call()).toBe(ANSWER);
  });

  test('a call that is cancelled finds nothing out', async () => {
    const provider = await down();
    provider.nowMs += 1_000;
    const abort = new AbortController();
    const probe = Promise.withResolvers<ModelOutcome>();
    provider.answer = probe.promise;
    const trying = provider.call({ signal: abort.signal });
    abort.abort();
    probe.resolve(failing('cancelled', null));
    await trying;
    provider.answer = ANSWER;
    expect(await provider.call(), 'the next one tries it').toBe(ANSWER);
  });
});

test.each(['model_rate_limited', 'model_answer_invalid'])('%s says nothing about the provider', async (code) => {
  const provider = new Provider();
  await provider.times(10, failing(code));
  expect(provider.asked).toBe(10);
});

test('an answer in between ends the row, and so does a refusal', async () => {
  const provider = new Provider();
  for (const between of [ANSWER, failing('model_refused', null)]) {
    await provider.times(4, BUSY);
    await provider.times(1, between);
  }
  await provider.times(4, BUSY);
  expect(provider.asked).toBe(14);
});

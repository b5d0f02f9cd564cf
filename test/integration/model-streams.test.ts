import { describe, expect, test } from 'vitest';
import type { ModelDelta } from '#src/drivers/model/port.ts';
import { NO_USAGE } from '#src/domain/turn/usage.ts';
import { CALLABLE, ModelCalls, NEVER, TOOL } from '../support/model-calls.ts';
import { modelClient } from '#src/drivers/model/client.ts';
import { WIRES } from '../support/model-wire.ts';
import { until } from '../support/wait-until.ts';

const WORDS = 'The answer comes word by word, so a person can read along.';

/** A gate that opens once. */
function gate(): { readonly opened: Promise<void>; readonly open: () => void } {
  const { promise, resolve } = Promise.withResolvers<void>();
  return { opened: promise, open: resolve };
}

function textOf(deltas: readonly ModelDelta[]): string {
  return deltas.map((delta) => (delta.kind === 'text' ? delta.text : '')).join('');
}

describe.each(WIRES)('%s', (wire) => {
  const calls = new ModelCalls(wire);

  test('pieces of the text arrive before its end does', async () => {
    const { opened, open } = gate();
    calls.server.next({ text: WORDS, stallAfter: { frames: 6, until: opened } });
    const deltas: ModelDelta[] = [];
    const running = calls.driver.call(calls.request(), NEVER, (delta) => deltas.push(delta));
    await until('a piece has come', () => textOf(deltas).length > 0);
    expect(WORDS.startsWith(textOf(deltas))).toBe(true);
    expect(textOf(deltas)).not.toBe(WORDS);
    open();
    expect(await running).toMatchObject({ kind: 'completed', text: WORDS });
    expect(textOf(deltas)).toBe(WORDS);
    expect(deltas.length).toBeGreaterThan(3);
  });

  test('so do the arguments of each call', async () => {
    const inputs = [{ q: 'one two three' }, { q: 'four five', deep: [1, { x: null }] }];
    calls.server.next({ toolCalls: inputs.map((input) => ({ name: 'search', input })) });
    const deltas: ModelDelta[] = [];
    await calls.driver.call(calls.request({ tools: [TOOL] }), NEVER, (delta) => deltas.push(delta));
    const written = inputs.map((_, index) =>
      deltas.map((delta) => (delta.kind === 'toolCall' && delta.index === index ? delta.input : '')).join(''),
    );
    expect(written.map((text) => JSON.parse(text) as unknown)).toEqual(inputs);
    expect(new Set(deltas.map((delta) => delta.kind === 'toolCall' && delta.name))).toEqual(new Set(['search']));
  });

  test('a silence in the middle, and one before the beginning, are time-outs', async () => {
    // Longer than the machine stands still: what the provider has sent by then has come.
    const impatient = calls.with(modelClient({ policy: CALLABLE, silenceMs: 60_000 }), {
      ...{ firstTokenMs: 5_000, silenceMs: 4_000 },
    });
    const { opened, open } = gate();
    calls.server.next({ text: WORDS, stallAfter: { frames: 6, until: opened } });
    const middle = await impatient.call(calls.request(), NEVER);
    expect(middle).toMatchObject({ error: { code: 'model_timeout' }, retryAfterMs: 0, mayBeBilled: true });
    expect(middle.usage.outputTokens).toBeGreaterThan(0);
    calls.server.next({ text: WORDS, stallAfter: { frames: 0, until: opened } });
    const abandoned = calls.server.abandoned;
    const before = await impatient.call(calls.request(), NEVER);
    expect(before).toMatchObject({ error: { code: 'model_timeout' }, retryAfterMs: 0 });
    expect(before).not.toHaveProperty('mayBeBilled');
    expect(before.usage).toEqual(NO_USAGE);
    await until('the provider sees that its answer is not waited for', () => calls.server.abandoned > abandoned);
    open();
  });

  test('what is cut in the middle costs what was reported, else what was sent and received', async () => {
    const tokens = { input: 1_000, output: 500, cached: 200, cacheWrite: wire === 'anthropic' ? 100 : 0 };
    const abort = new AbortController();
    const { opened, open } = gate();
    let received = '';
    // Seven frames are half of the words at least, and the end is not among them.
    calls.server.next({ text: WORDS, tokens, stallAfter: { frames: 7, until: opened } });
    const running = calls.driver.call(calls.request({ tools: [TOOL] }), abort.signal, (delta) => {
      received += delta.kind === 'text' ? delta.text : '';
      if (received.split(' ').length > 3) abort.abort(new Error('no longer wanted'));
    });
    const { usage } = await running;
    open();
    const isTold = wire === 'anthropic' || wire === 'google';
    const sent = JSON.stringify(calls.server.newest.body).length;
    expect(usage).toMatchObject({ tokensReported: false, duplicate: false });
    expect(usage.inputTokens).toBeGreaterThan(isTold ? 999 : 20);
    expect(usage.inputTokens).toBeLessThan(isTold ? 1_001 : sent / 4);
    expect(usage.cachedTokens).toBe(wire === 'anthropic' ? 200 : 0);
    expect(usage.outputTokens).toBeGreaterThanOrEqual(Math.ceil(received.length / 4));
    expect(usage.outputTokens).toBeLessThan(500);
    expect(usage.totalTokens).toBe(usage.inputTokens + usage.outputTokens);
    expect(usage.costKnown).toBe(wire !== 'openai-compatible');
    expect(usage.costUsd > 0).toBe(usage.costKnown);
  });

  test('an abort in the middle ends the request at the provider, and no piece comes after it', async () => {
    const { opened, open } = gate();
    const abort = new AbortController();
    const deltas: ModelDelta[] = [];
    calls.server.next({ text: WORDS, stallAfter: { frames: 6, until: opened } });
    const abandoned = calls.server.abandoned;
    const running = calls.driver.call(calls.request(), abort.signal, (delta) => deltas.push(delta));
    await until('a piece has come', () => deltas.length > 0);
    abort.abort(new Error('no longer wanted'));
    expect(await running).toMatchObject({ kind: 'failed', error: { code: 'cancelled' } });
    const { length } = deltas;
    await until('the connection is closed', () => calls.server.abandoned > abandoned);
    open();
    expect(deltas.length).toBe(length);
  });

  test('an answer that never ends is not read to its end', async () => {
    const { opened, open } = gate();
    calls.server.next({ text: 'x'.repeat(4_000_000), stallAfter: { frames: 300, until: opened } });
    const abandoned = calls.server.abandoned;
    expect(await calls.failure()).toMatchObject({ error: { code: 'model_answer_too_large' }, retryAfterMs: null });
    await until('the connection is closed', () => calls.server.abandoned > abandoned);
    open();
  });
});

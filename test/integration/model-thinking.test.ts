import path from 'node:path';
import { describe, expect, test } from 'vitest';
import type { ConversationMessage } from '#src/domain/turn/conversation.ts';
import type { ModelOutcome } from '#src/domain/turn/model-outcome.ts';
import type { ModelDelta } from '#src/drivers/model/port.ts';
import { after } from '../support/golden-wire.ts';
import { MODELS, ModelCalls, NEVER, TOOL } from '../support/model-calls.ts';
import { WIRES } from '../support/model-wire.ts';
import type { Wire } from '../support/model-wire.ts';

/** What a model thought goes back with the results of its calls, as its provider signed it, and to no other model. */
const ASKED: ConversationMessage = { role: 'user', text: 'Where is it?' };
const THOUGHT = { text: 'The user wants a page. I search for it.', seal: 'c2lnbmVkKysvPT0=' };
const TWO_CALLS = [
  { name: 'search', input: { q: 'one' } },
  { name: 'search', input: { q: 'two' } },
];
/** What shows that a request has the thought. */
const KEPT: Readonly<Record<Wire, object>> = {
  anthropic: { thinking: THOUGHT.text, signature: THOUGHT.seal },
  openai: { encrypted_content: THOUGHT.seal },
  google: { thoughtSignature: THOUGHT.seal },
  'openai-compatible': { reasoning_content: THOUGHT.text },
};

function objectsIn(value: unknown): object[] {
  if (typeof value !== 'object' || value === null) return [];
  return [value, ...Object.values(value).flatMap(objectsIn)];
}

function has(body: unknown, wanted: object): boolean {
  return objectsIn(body).some((one) =>
    Object.entries(wanted).every(([name, value]) => Reflect.get(one, name) === value),
  );
}

async function golden(name: string, body: unknown): Promise<void> {
  const file = path.join(import.meta.dirname, '../support/model-wire', `${name}.txt`);
  await expect(`${JSON.stringify(body, null, 2)}\n`).toMatchFileSnapshot(file);
}

describe.each(WIRES)('%s', (wire) => {
  const calls = new ModelCalls(wire);
  // Of Claude the one that takes a step after results only with what was thought before.
  const settings = { reasoningEffort: 'low', ...(wire === 'openai-compatible' ? {} : { maxOutputTokens: 4_000 }) };
  const asked = { settings, tools: [TOOL], model: wire === 'google' ? 'gemini-3-pro-preview' : MODELS[wire] };

  async function thoughtful(more = {}): Promise<ModelOutcome> {
    const redacted = wire === 'anthropic' ? { redacted: 'cmVkYWN0ZWQ=' } : {};
    calls.server.next({ thought: { ...THOUGHT, ...redacted }, text: 'I look.', toolCalls: TWO_CALLS });
    return await calls.call({ ...asked, messages: [ASKED], ...more });
  }

  test('what was thought goes back unaltered with the results, in its place', async () => {
    const first = await thoughtful();
    const begun = calls.server.newest.body;
    await golden(`${wire}.first`, begun);
    const messages = after(first, [ASKED]);
    expect(await calls.call({ ...asked, messages })).toMatchObject({ kind: 'completed' });
    const { body } = calls.server.newest;
    expect(has(body, KEPT[wire])).toBe(true);
    await golden(`${wire}.second`, body);
    // Also with the next message, which begins with the same bytes.
    await calls.call({ ...asked, messages: [...messages, { role: 'user', text: 'And?' }] });
    expect(has(calls.server.newest.body, KEPT[wire])).toBe(true);
  });

  test('another model is not given what this one thought', async () => {
    const messages = after(await thoughtful(), [ASKED]);
    const other = { anthropic: 'claude-opus-4-6', openai: 'gpt-5', google: 'gemini-3-flash-preview' };
    const model = { ...other, 'openai-compatible': 'another' }[wire];
    expect(await calls.call({ ...asked, model, messages })).toMatchObject({ kind: 'completed' });
    expect(has(calls.server.newest.body, KEPT[wire])).toBe(false);
  });

  test('none is asked for where a call is forced and the provider takes one without it only', async () => {
    const models = wire === 'anthropic' ? [asked.model, 'claude-opus-4-6'] : [asked.model];
    for (const model of models) {
      const shown = { ...settings, showReasoning: true };
      const wanted = { ...asked, model, settings: shown, messages: [ASKED], toolChoice: 'required' } as const;
      expect(await calls.call(wanted)).toMatchObject({ kind: 'completed' });
      expect(calls.server.newest.body).not.toHaveProperty('thinking');
    }
  });

  test('is shown only where the settings say so', async () => {
    const deltas: ModelDelta[] = [];
    calls.server.next({ thought: THOUGHT, text: 'Here.' });
    const request = calls.request({ ...asked, settings: { ...settings, showReasoning: true } });
    const shown = await calls.driver.call(request, NEVER, (delta) => deltas.push(delta));
    expect(shown).toMatchObject({ kind: 'completed', text: 'Here.', reasoning: THOUGHT.text });
    const thought = deltas.map((delta) => (delta.kind === 'reasoning' ? delta.text : ''));
    expect(thought.join('')).toBe(THOUGHT.text);
    expect(deltas[0]?.kind, 'it comes first').toBe('reasoning');
    expect(await thoughtful()).not.toHaveProperty('reasoning');
  });

  test('an answer without a thought keeps nothing', async () => {
    calls.server.next({ text: 'Here.', toolCalls: TWO_CALLS });
    expect(await calls.call({ ...asked, messages: [ASKED] })).not.toHaveProperty('thinking');
  });

  test('a thought that there is no room for is left out, and the model is asked without it', async () => {
    calls.server.next({ thought: { text: 'x'.repeat(600_000), seal: 'y'.repeat(500_000) }, toolCalls: TWO_CALLS });
    const first = await calls.call({ ...asked, messages: [ASKED] });
    expect(first).toMatchObject({ kind: 'completed', toolCalls: [{}, {}] });
    // The server that copies OpenAI signs nothing.
    if (wire !== 'openai-compatible') {
      // oxlint-disable-next-line vitest/no-conditional-expect
      expect(first).not.toHaveProperty('thinking');
    }
    expect(await calls.call({ ...asked, messages: after(first, [ASKED]) })).toMatchObject({ kind: 'completed' });
  });
});

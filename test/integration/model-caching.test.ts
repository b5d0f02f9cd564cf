import { describe, expect, test } from 'vitest';
import type { ConversationMessage } from '#src/domain/turn/conversation.ts';
import { ModelCalls, TOOL } from '../support/model-calls.ts';
import { WIRES } from '../support/model-wire.ts';

/** A conversation of two turns with tools, several results in one step. */
const MESSAGES: readonly ConversationMessage[] = [
  { role: 'user', text: 'Find it.' },
  {
    role: 'assistant',
    text: 'Looking.',
    toolCalls: ['a', 'b'].map((callId) => ({ callId, name: 'search', input: { q: callId } })),
  },
  { role: 'tool', callId: 'a', name: 'search', failed: false, output: { found: 1 } },
  { role: 'tool', callId: 'b', name: 'search', failed: true, output: 'nothing' },
  { role: 'assistant', text: '', toolCalls: [{ callId: 'c', name: 'search', input: {} }] },
  { role: 'tool', callId: 'c', name: 'search', failed: false, output: 'found' },
  { role: 'assistant', text: 'Here it is.', toolCalls: [] },
  { role: 'user', text: 'And the other?' },
];
/** How many messages the model is sent at each step. */
const STEPS = [1, 4, 6, 8];

/** The messages of a request as their JSON texts, without the marks of what is cached. */
function messagesIn(body: unknown): readonly string[] {
  const { messages, input, contents } = Object(body);
  const list: unknown = messages ?? input ?? contents;
  return (Array.isArray(list) ? list : []).map((one) =>
    JSON.stringify(one, (name, value: unknown) => (name === 'cache_control' ? undefined : value)),
  );
}

describe.each(WIRES)('%s', (wire) => {
  const calls = new ModelCalls(wire);

  test('each step begins with the bytes of the step before', async () => {
    let before: readonly string[] = [];
    for (const length of STEPS) {
      await calls.call({ messages: MESSAGES.slice(0, length), tools: [TOOL] });
      const sent = messagesIn(calls.server.newest.body);
      expect(sent.length).toBeGreaterThan(before.length);
      expect(sent.slice(0, before.length)).toEqual(before);
      before = sent;
    }
  });
});

describe('Claude', () => {
  const calls = new ModelCalls('anthropic');

  function marks(body: unknown): { readonly system: number; readonly messages: readonly number[] } {
    const { system, messages } = Object(body);
    const count = (value: unknown): number => JSON.stringify(value ?? null).split('"cache_control"').length - 1;
    const places = (Array.isArray(messages) ? messages : []).flatMap((one, at) => (count(one) > 0 ? [at] : []));
    return { system: count(system), messages: places };
  }

  test('is told to keep what the next step begins with, and finds what it kept', async () => {
    await calls.call({ messages: MESSAGES.slice(0, 1), tools: [TOOL] });
    expect(marks(calls.server.newest.body)).toEqual({ system: 1, messages: [0] });
    await calls.call({ messages: MESSAGES.slice(0, 4), tools: [TOOL] });
    expect(marks(calls.server.newest.body)).toEqual({ system: 1, messages: [0, 2] });
    await calls.call({ messages: MESSAGES.slice(0, 6), tools: [TOOL] });
    expect(marks(calls.server.newest.body)).toEqual({ system: 1, messages: [2, 4] });
    await calls.call({ messages: MESSAGES, tools: [TOOL] });
    expect(marks(calls.server.newest.body)).toEqual({ system: 1, messages: [4, 6] });
  });

  test('keeps nothing when the settings say so', async () => {
    await calls.call({ messages: MESSAGES, settings: { caching: 'off' } });
    expect(JSON.stringify(calls.server.newest.body)).not.toContain('cache_control');
  });
});

describe('OpenAI', () => {
  const calls = new ModelCalls('openai');

  test.each([
    ['auto', 'conversation'],
    ['off', undefined],
  ] as const)('looks where the conversation was kept: %s', async (caching, key) => {
    await calls.call({ settings: { caching } });
    expect(Reflect.get(Object(calls.server.newest.body), 'prompt_cache_key')).toBe(key);
  });
});

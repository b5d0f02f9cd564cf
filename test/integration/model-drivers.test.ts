import { describe, expect, test } from 'vitest';
import type { ConversationMessage } from '#src/domain/turn/conversation.ts';
import type { ModelFile, ModelRequest } from '#src/drivers/model/port.ts';
import { MODELS, ModelCalls, TOOL } from '../support/model-calls.ts';
import { WIRES } from '../support/model-wire.ts';
import type { Wire } from '../support/model-wire.ts';

const PNG = Buffer.from('\u0089PNG\r\n\u001a\ndata', 'latin1');
const SCHEMA = { type: 'object', properties: { n: { type: 'number' } }, required: ['n'], additionalProperties: false };

describe.each(WIRES)('%s', (wire) => {
  const calls = new ModelCalls(wire);

  test('answers text, with the usage in all its parts and the instructions in their place', async () => {
    const cacheWrite = wire === 'anthropic' ? 20 : 0;
    calls.server.next({ text: 'pong', tokens: { input: 1_000, output: 50, cached: 200, cacheWrite, reasoning: 30 } });
    const outcome = await calls.call();
    expect(outcome).toMatchObject({
      kind: 'completed',
      text: 'pong',
      toolCalls: [],
      usage: {
        inputTokens: 1_000,
        outputTokens: 50,
        totalTokens: 1_050,
        cachedTokens: 200,
        cacheWriteTokens: cacheWrite,
        reasoningTokens: 30,
        tokensReported: true,
        duplicate: false,
      },
    });
    expect(JSON.stringify(calls.server.newest.body)).toContain('Be brief.');
  });

  test('calls tools, several in one step, with ids that no other call has', async () => {
    const toolCalls = [
      { name: 'search', input: { q: 'a' } },
      { name: 'search', input: { q: 'b', deep: { list: [1, null, 'x\u0000y'] } } },
    ];
    calls.server.next({ text: 'Looking.', toolCalls }, { toolCalls: [{ name: 'search', input: {} }] });
    const outcome = await calls.call({ tools: [TOOL] });
    expect(outcome).toMatchObject({
      text: 'Looking.',
      toolCalls: [
        { callId: 'call_01arz3ndektsv4rrffq69g5fav_0', name: 'search', input: { q: 'a' } },
        { callId: 'call_01arz3ndektsv4rrffq69g5fav_1', input: { q: 'b', deep: { list: [1, null, 'x\ufffdy'] } } },
      ],
    });
    expect(JSON.stringify(calls.server.newest.body)).toContain('Finds pages.');
    expect(await calls.call({ tools: [TOOL] })).toMatchObject({
      kind: 'completed',
      text: '',
      toolCalls: [{ input: {} }],
    });
  });

  test('takes every conversation that a session can have', async () => {
    const tool = (callId: string, output: unknown, failed = false): ConversationMessage => ({
      role: 'tool',
      callId,
      name: 'search',
      failed,
      output,
    });
    const calling = (text: string, ...ids: string[]): ConversationMessage => ({
      role: 'assistant',
      text,
      toolCalls: ids.map((callId, i) => ({
        callId,
        name: i === 2 ? 'no such.tool/näme' : 'search',
        input: i === 1 ? '{"q": "a' : { q: callId },
      })),
    });
    const messages: ConversationMessage[] = [
      { role: 'user', text: 'one' },
      { role: 'user', text: ' \n' },
      calling('', 'call_a:1', 'call_b', 'call_c'),
      tool('call_c', { error: { code: 'tool_unknown', message: 'm' } }, true),
      tool('call_a:1', 'text'),
      tool('call_b', [1, { two: null }]),
      calling('', 'call_d'),
      tool('call_d', null),
      calling('text only'),
      { role: 'user', text: 'two' },
      calling('', 'cut_off'),
      { role: 'user', text: 'three' },
      calling(''),
      { role: 'user', text: 'four' },
    ];
    for (let length = 1; length <= messages.length; length++) {
      const part = messages.slice(0, length);
      const last = part.at(-1);
      if (last?.role === 'assistant' || part.at(length - 1) === messages[3] || part.at(-1) === messages[4]) continue;
      const outcome = await calls.call({ messages: part, tools: [TOOL] });
      expect(outcome, `${length}: ${JSON.stringify(calls.server.newest.body)}`).toMatchObject({ text: 'pong' });
    }
    const sent = JSON.stringify(calls.server.newest.body);
    for (const word of ['one', 'two', 'three', 'four', 'tool_unknown', 'was not finished', 'invalidInput']) {
      expect(sent).toContain(word);
    }
  });

  test('asks for the output of a schema, also together with tools', async () => {
    for (const tools of [[], [TOOL]]) {
      // Gemini before 3 takes no schema beside tools: it has to call one that takes the output.
      const byCall = wire === 'google' && tools.length > 0;
      calls.server.next(byCall ? { toolCalls: [{ name: 'json', input: { n: 1 } }] } : { text: '{"n":1}' });
      const outcome = await calls.call({ outputSchema: SCHEMA, tools });
      expect(outcome).toMatchObject({ kind: 'completed', text: '{"n":1}', toolCalls: [] });
      const sent = JSON.stringify(calls.server.newest.body);
      expect(sent).toMatch(/"?properties\\?":\{\\?"n\\?":\{\\?"type\\?":\\?"number/);
      expect(sent.includes('JSON Schema')).toBe(wire === 'openai-compatible');
    }
    calls.server.next({ text: '[1]' }, { text: '{"n":1}' });
    expect(await calls.call({ outputSchema: { type: 'array' } })).toMatchObject({ text: '[1]' });
    expect(JSON.stringify(calls.server.newest.body)).toContain('JSON Schema');
    // A tool of the tenant's own with that name stays what it is.
    await calls.call({ outputSchema: SCHEMA, tools: [{ ...TOOL, name: 'json' }] });
    expect(JSON.stringify(calls.server.newest.body)).toContain('JSON Schema');
  });

  test('passes the settings on in the provider’s words', async () => {
    const settings = { temperature: 0.5, maxOutputTokens: 4_000, reasoningEffort: 'high' };
    await calls.call({ settings, model: { ...MODELS, anthropic: 'claude-opus-4-6', openai: 'gpt-5-mini' }[wire] });
    const sent = calls.server.newest.body;
    const wanted: Readonly<Record<Wire, object>> = {
      anthropic: { max_tokens: expect.any(Number), thinking: expect.anything() },
      openai: { max_output_tokens: 4_000, reasoning: { effort: 'high' }, store: false },
      google: { generationConfig: { maxOutputTokens: 4_000, temperature: 0.5, thinkingConfig: expect.anything() } },
      'openai-compatible': { max_tokens: 4_000, temperature: 0.5, reasoning_effort: 'high' },
    };
    expect(sent).toMatchObject(wanted[wire]);
  });

  test.each([
    ['required', { type: 'any' }, 'required', { functionCallingConfig: { mode: 'ANY' } }, 'required'],
    [
      { tool: 'search' },
      { type: 'tool', name: 'search' },
      { type: 'function', name: 'search' },
      { functionCallingConfig: { mode: 'ANY', allowedFunctionNames: ['search'] } },
      { type: 'function', function: { name: 'search' } },
    ],
    [{ tool: 'another' }, undefined, undefined, undefined, undefined],
    ['auto', undefined, undefined, undefined, undefined],
  ] as const)('is told which tool to call: %o', async (toolChoice, ...wanted) => {
    await calls.call({ tools: [TOOL], toolChoice });
    const { tool_choice: sent, toolConfig } = Object(calls.server.newest.body);
    expect(sent ?? toolConfig).toEqual(wanted[WIRES.indexOf(wire)]);
    await calls.call({ toolChoice });
    const without = Object(calls.server.newest.body);
    expect([without.tool_choice, without.toolConfig], 'without tools').toEqual([undefined, undefined]);
  });

  test('an answer without content says why', async () => {
    calls.server.next({ finish: 'length' });
    expect(await calls.failure()).toMatchObject({ error: { code: 'model_output_truncated' }, retryAfterMs: null });
    calls.server.next({ finish: 'filtered' });
    expect(await calls.failure()).toMatchObject({ error: { code: 'model_refused' }, usage: { tokensReported: true } });
    calls.server.next({ finish: 'length', text: 'as far as it' });
    expect(await calls.call()).toMatchObject({ kind: 'completed', text: 'as far as it', finishReason: 'length' });
  });

  test('says why it stopped', async () => {
    calls.server.next({ text: 'done' });
    expect(await calls.call()).toMatchObject({ finishReason: 'stop' });
    calls.server.next({ toolCalls: [{ name: 'search', input: {} }] });
    expect(await calls.call({ tools: [TOOL] })).toMatchObject({ finishReason: 'tool_calls' });
  });

  test('a call of a cut answer is told apart, with what was written of it', async () => {
    const input = wire.startsWith('openai') ? '{"q": "a' : { q: 'a' };
    calls.server.next({ text: 'I look', toolCalls: [{ name: 'search', input }], finish: 'length' });
    expect(await calls.call({ tools: [TOOL] })).toMatchObject({
      ...{ kind: 'completed', finishReason: 'length', text: 'I look' },
      toolCalls: [{ name: 'search', input }],
    });
  });

  test('what the provider withholds in the middle is no answer, and no call of it is made', async () => {
    for (const answer of [{ text: 'The first thing you' }, { toolCalls: [{ name: 'search', input: {} }] }]) {
      calls.server.next({ ...answer, finish: 'filtered' });
      expect(await calls.call({ tools: [TOOL] })).toMatchObject({
        ...{ kind: 'failed', error: { code: 'model_refused' }, retryAfterMs: null },
        ...{ finishReason: 'content_filter', usage: { tokensReported: true, inputTokens: 10 } },
      });
    }
  });
});

describe.each(WIRES.filter((wire) => wire !== 'openai-compatible'))('%s alone', (wire) => {
  const calls = new ModelCalls(wire);

  test('costs what the catalogue says, with the cheaper rate of the cache', async () => {
    calls.server.next(
      { text: 'a', tokens: { input: 1_000_000, output: 1_000_000 } },
      { text: 'a', tokens: { input: 1_000_000, output: 1_000_000, cached: 900_000 } },
    );
    const [plain, cached] = [(await calls.call()).usage, (await calls.call()).usage];
    expect(plain.costKnown).toBe(true);
    expect(plain.costUsd).toBeGreaterThan(0.1);
    expect(cached.costUsd).toBeGreaterThan(0);
    expect(cached.costUsd).toBeLessThan(plain.costUsd);
    calls.server.next({ text: 'a', tokens: { input: 1_000_000, output: 1_000_000 } });
    const { usage } = await calls.call({ model: 'a-model-that-nobody-sells' });
    expect(usage).toMatchObject({ costUsd: 0, costKnown: false, inputTokens: 1_000_000 });
  });

  test('refuses an effort that the provider does not know', async () => {
    const unknown = await calls.call({ settings: { reasoningEffort: 'enormous' } });
    expect(unknown).toMatchObject({ error: { code: 'model_settings_invalid' }, retryAfterMs: null });
  });
});

// The others send inputs as objects, not as text.
describe.each(WIRES.filter((wire) => wire.startsWith('openai')))('%s, in text', (wire) => {
  const calls = new ModelCalls(wire);

  test('an input that is no JSON comes as its text', async () => {
    calls.server.next({ toolCalls: [{ name: 'search', input: '{"q": "a' }] });
    expect(await calls.call({ tools: [TOOL] })).toMatchObject({ toolCalls: [{ name: 'search', input: '{"q": "a' }] });
    calls.server.next({ toolCalls: [{ name: 'search', input: '' }] });
    expect(await calls.call({ tools: [TOOL] })).toMatchObject({ toolCalls: [{ name: 'search', input: {} }] });
    calls.server.next({ toolCalls: [{ name: 'search', input: '['.repeat(5_000) + ']'.repeat(5_000) }] });
    expect(await calls.call({ tools: [TOOL] })).toMatchObject({ kind: 'completed' });
  });
});

describe('Claude', () => {
  const calls = new ModelCalls('anthropic');
  const messages: ConversationMessage[] = [
    { role: 'user', text: 'Hi' },
    { role: 'assistant', text: '', toolCalls: [{ callId: 'c', name: 'search', input: {} }] },
    { role: 'tool', callId: 'c', name: 'search', failed: false, output: 'found' },
  ];

  test.each([
    ['claude-sonnet-4-5', false],
    ['claude-opus-4-1-20250805', false],
    ['claude-3-7-sonnet-latest', false],
    ['claude-opus-4-6', true],
    ['claude-sonnet-5', true],
  ])('%s thinks after tool results: %s', async (model, thinks) => {
    const settings = { reasoningEffort: 'high' };
    await calls.call({ model, settings, messages, tools: [TOOL] });
    expect('thinking' in Object(calls.server.newest.body)).toBe(thinks);
    await calls.call({ model, settings });
    expect('thinking' in Object(calls.server.newest.body)).toBe(true);
  });
});

describe('a server of the tenant’s own', () => {
  const calls = new ModelCalls('openai-compatible');

  test('usage that is not reported, or is nonsense, is not believed', async () => {
    calls.server.next({ text: 'a', silentUsage: true });
    expect((await calls.call()).usage).toMatchObject({ tokensReported: false, inputTokens: 0, costKnown: false });
    calls.server.next({ text: 'a', tokens: { input: -5, output: 1.5 } });
    expect((await calls.call()).usage).toMatchObject({ tokensReported: false, inputTokens: 0, outputTokens: 0 });
  });

  test('its prices are not known, unless the catalogue knows who is at the address', async () => {
    calls.server.next({ text: 'a', tokens: { input: 1_000_000, output: 1 } });
    expect((await calls.call({ model: 'gpt-4o' })).usage).toMatchObject({
      ...{ costUsd: 0, costKnown: false, tokensReported: true, inputTokens: 1_000_000 },
    });
  });

  test('it knows its own words for an effort', async () => {
    await calls.call({ settings: { reasoningEffort: 'enormous' } });
    expect(calls.server.newest.body).toMatchObject({ reasoning_effort: 'enormous' });
  });
});

describe.each(WIRES)('%s, files of a message', (wire) => {
  const calls = new ModelCalls(wire);
  const known: Readonly<Record<string, ModelFile>> = {
    text: of('a.csv', 'text/csv; charset=utf-8', 'Öl;1'),
    image: of('i.png', 'image/png', PNG),
    pdf: of('p.pdf', 'application/pdf', '%PDF-1.7'),
    binary: of('b.bin', 'application/octet-stream', 'abc'),
    huge: { ...of('h.txt', 'text/plain', ''), size: 30_000_000, read: null },
  };
  const file: ModelRequest['file'] = async ({ artifactId }) => await Promise.resolve(known[artifactId] ?? null);
  const message = (names: readonly string[], text = 'Look.'): ConversationMessage => ({
    role: 'user',
    text,
    files: names.map((artifactId) => ({ artifactId, version: 1 })),
  });

  test('text and images are sent, of what the model cannot read it is told', async () => {
    calls.server.next({ text: 'seen' });
    const messages = [message(['text', 'image', 'pdf', 'binary', 'huge', 'gone'])];
    expect(await calls.call({ messages, file })).toMatchObject({ kind: 'completed', text: 'seen' });
    const body = JSON.stringify(calls.server.newest.body);
    expect(body).toContain('Look.');
    expect(body).toContain('Öl;1');
    expect(body).toContain(Buffer.from(PNG).toString('base64'));
    expect(body.includes(Buffer.from('%PDF-1.7').toString('base64'))).toBe(wire !== 'openai-compatible');
    for (const name of ['b.bin', 'h.txt']) expect(body).toMatch(new RegExp(`The file ${name} [^"]*cannot be shown`));
    expect(body).toContain('has been deleted');
    expect(body).not.toContain(Buffer.from('abc').toString('base64'));
  });

  test('a message of nothing but a file, and one after it', async () => {
    calls.server.next({ text: 'seen' });
    const messages = [message(['text'], ''), { role: 'user', text: 'And?' } as const];
    expect(await calls.call({ messages, file })).toMatchObject({ kind: 'completed' });
    const body = JSON.stringify(calls.server.newest.body);
    expect(body).toContain('Öl;1');
    expect(body).not.toContain('(no text)');
  });

  test('files of a long conversation are told of when they are more than a request carries', async () => {
    calls.server.next({ text: 'seen' });
    let read = 0;
    const big: ModelFile = {
      name: 'big.txt',
      contentType: 'text/plain',
      size: 15_000_000,
      sha256: 'a',
      read: async () => {
        read += 1;
        return await bytes('small after all');
      },
    };
    const messages = [message(['x'], 'older'), message(['x'], 'newer')];
    const outcome = await calls.call({ messages, file: async () => await Promise.resolve(big) });
    expect(outcome).toMatchObject({ kind: 'completed' });
    expect(read).toBe(1);
    expect(JSON.stringify(calls.server.newest.body)).toMatch(/older.*cannot be shown.*newer/s);
  });
});

function of(name: string, contentType: string, content: string | Buffer): ModelFile {
  const data = Buffer.from(content);
  return { name, contentType, size: data.length, sha256: name, read: async () => await bytes(data) };
}

async function bytes(words: string | Buffer): Promise<Uint8Array> {
  return await Promise.resolve(Buffer.from(words));
}

import { expect, test } from 'vitest';
import { fixtureModel } from './fixture.ts';
import type { ModelFile, ModelRequest } from './port.ts';

const request = (text: string, more: Partial<ModelRequest> = {}): ModelRequest => ({
  callId: 'mc_01arz3ndektsv4rrffq69g5fav',
  tenant: 'tn_1',
  conversationId: 'conversation',
  model: 'any',
  settings: {},
  instructions: 'Be brief.',
  messages: [{ role: 'user', text }],
  file: async () => await Promise.resolve(null),
  tools: [],
  outputSchema: null,
  toolChoice: 'auto',
  answered: 0,
  ...more,
});

const never = new AbortController().signal;

test('echoes text, and text that looks like JSON but is not a script', async () => {
  for (const text of ['hi', '{"fixture":', '{"fixture":[{"txt":"x"}]}', '{"other":1}']) {
    expect(await fixtureModel.call(request(text), never)).toMatchObject({
      kind: 'completed',
      text: `echo: ${text}`,
      toolCalls: [],
    });
  }
});

test('a message of nothing but files: their text, or what they are', async () => {
  const files = ['text', 'image', 'folder', 'gone'].map((artifactId) => ({ artifactId, version: 1 }));
  const known: Readonly<Record<string, ModelFile>> = {
    text: {
      name: 'a.txt',
      contentType: 'text/plain',
      size: 4,
      sha256: 'a',
      read: async () => await Promise.resolve(Buffer.from('Öl')),
    },
    image: {
      name: 'i.png',
      contentType: 'image/png',
      size: 3,
      sha256: 'b',
      read: async () => await Promise.resolve(Buffer.alloc(3)),
    },
    folder: { name: 'out', contentType: 'text/x-folder', size: 9, sha256: 'c', read: null },
  };
  const file: ModelRequest['file'] = async ({ artifactId }) => await Promise.resolve(known[artifactId] ?? null);
  const said = async (text: string) =>
    await fixtureModel.call(request('', { messages: [{ role: 'user', text, files }], file }), never);
  const text = 'echo: Öl\n[i.png, image/png, 3 bytes]\n[out, text/x-folder, 9 bytes]\n[a deleted file]';
  expect(await said('')).toMatchObject({ text });
  expect(await said('words')).toMatchObject({ text: 'echo: words' });
});

test('plays a step per answered call and echoes the tool result past the last one', async () => {
  const text = JSON.stringify({
    fixture: [
      {
        text: 'looking',
        toolCalls: [
          { name: 'a', input: { q: 1 } },
          { name: 'b', input: null },
        ],
      },
      { text: 'done', usage: { inputTokens: 7, outputTokens: 2 } },
    ],
  });
  const first = await fixtureModel.call(request(text), never);
  expect(first).toMatchObject({ text: 'looking', toolCalls: [{ name: 'a', input: { q: 1 } }, { name: 'b' }] });
  expect(await fixtureModel.call(request(text, { answered: 1 }), never)).toMatchObject({
    text: 'done',
    usage: { inputTokens: 7, outputTokens: 2, totalTokens: 9, tokensReported: true, costUsd: 0, costKnown: true },
  });
  const tool = (output: unknown) => ({ role: 'tool', callId: 'c', name: 'a', failed: false, output }) as const;
  const past = (output: unknown) =>
    fixtureModel.call(request(text, { answered: 2, messages: [{ role: 'user', text }, tool(output)] }), never);
  expect(await past('raw')).toMatchObject({ text: 'echo: raw' });
  expect(await past({ n: 1 })).toMatchObject({ text: 'echo: {"n":1}' });
});

test('errors are terminal unless they say otherwise', async () => {
  const text = JSON.stringify({
    fixture: [{ error: { code: 'x', message: 'm' } }, { error: { code: 'y', message: 'm', retryable: true } }],
  });
  expect(await fixtureModel.call(request(text), never)).toMatchObject({
    kind: 'failed',
    error: { code: 'x' },
    retryAfterMs: null,
  });
  expect(await fixtureModel.call(request(text, { answered: 1 }), never)).toMatchObject({
    kind: 'failed',
    error: { code: 'y' },
    retryAfterMs: 0,
  });
});

test('an abort ends a delayed call at once', async () => {
  const abort = new AbortController();
  const call = fixtureModel.call(
    request(JSON.stringify({ fixture: [{ text: 'late', delayMs: 3_600_000 }] })),
    abort.signal,
  );
  abort.abort();
  expect(await call).toMatchObject({ kind: 'failed', error: { code: 'cancelled' } });
});

test('a text at a rate is written word by word, and all of it', async () => {
  // As many blanks as a pattern that repeats would look at again from each of them.
  for (const text of ['', ' ', 'one', ' one  two\nthree ', ' '.repeat(400_000)]) {
    const pieces: string[] = [];
    const asked = request(JSON.stringify({ fixture: [{ text, tokensPerSecond: 100_000 }] }));
    const outcome = await fixtureModel.call(asked, never, (delta) =>
      pieces.push(delta.kind === 'text' ? delta.text : ''),
    );
    expect(outcome).toMatchObject({ text });
    expect(pieces.join('')).toBe(text);
  }
});

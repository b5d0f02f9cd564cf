import { describe, expect, test } from 'vitest';
import type { ConversationMessage } from '#src/domain/turn/conversation.ts';
import type { ModelFile, ModelRequest } from '#src/drivers/model/port.ts';
import { ModelCalls, TOOL } from '../support/model-calls.ts';
import { WIRES } from '../support/model-wire.ts';
import type { Wire } from '../support/model-wire.ts';

const PNG = Buffer.from('89504e470d0a1a0a0000000d49484452', 'hex');
const PDF = Buffer.from('%PDF-1.7 of a tool');
const KNOWN: Readonly<Record<string, ModelFile>> = {
  image: of('shot-1', 'image/jpg', PNG),
  pdf: of('paper', 'application/pdf', PDF),
  text: of('a.csv', 'text/csv', Buffer.from('Öl;1')),
  long: of('long.txt', 'text/plain', Buffer.from('x'.repeat(40_000))),
  sound: of('s.wav', 'audio/wav', Buffer.from('RIFFabcdWAVEfmt ')),
  lie: of('lie.png', 'image/png', Buffer.from('<html>no image</html>')),
  large: { ...of('large.png', 'image/png', PNG), size: 4_000_000 },
};

function of(name: string, contentType: string, bytes: Buffer): ModelFile {
  return { name, contentType, size: bytes.length, sha256: name, read: async () => await Promise.resolve(bytes) };
}

const file: ModelRequest['file'] = async ({ artifactId }) => await Promise.resolve(KNOWN[artifactId] ?? null);

/** A step that has called two tools; the first result has files. */
function messages(files: readonly string[], output: unknown = { page: 1 }): readonly ConversationMessage[] {
  const calls = ['a', 'b'].map((callId) => ({ callId, name: 'search', input: {} }));
  const refs = files.map((artifactId) => ({ artifactId, version: 1 }));
  const result = { role: 'tool', name: 'search', failed: false } as const;
  return [
    { role: 'user', text: 'Look.' },
    { role: 'assistant', text: '', toolCalls: calls },
    { ...result, callId: 'a', output, files: refs },
    { ...result, callId: 'b', output: 'plain' },
  ];
}

const base64 = (bytes: Buffer): string => bytes.toString('base64');
const IMAGE = base64(PNG);

/** What the two results are on each wire. */
const GOLDEN: Readonly<Record<Wire, unknown>> = {
  anthropic: [
    {
      type: 'tool_result',
      content: [
        { type: 'text', text: '{"page":1}\n\nFile a.csv (text/csv, 5 bytes):\nÖl;1' },
        { type: 'image', source: { type: 'base64', media_type: 'image/png', data: IMAGE } },
        { type: 'document', source: { type: 'base64', media_type: 'application/pdf', data: base64(PDF) } },
      ],
    },
    { type: 'tool_result', content: 'plain' },
  ],
  openai: [
    {
      type: 'function_call_output',
      output: [
        { type: 'input_text', text: '{"page":1}\n\nFile a.csv (text/csv, 5 bytes):\nÖl;1' },
        { type: 'input_image', image_url: `data:image/png;base64,${IMAGE}` },
        { type: 'input_file', filename: 'paper.pdf', file_data: `data:application/pdf;base64,${base64(PDF)}` },
      ],
    },
    { type: 'function_call_output', output: 'plain' },
  ],
  // Gemini before 3: files stand beside the one response of their call.
  google: [
    {
      functionResponse: {
        name: 'search',
        response: { content: '{"page":1}\n\nFile a.csv (text/csv, 5 bytes):\nÖl;1' },
      },
    },
    { inlineData: { mimeType: 'image/png', data: IMAGE } },
    { text: expect.any(String) },
    { inlineData: { mimeType: 'application/pdf', data: base64(PDF) } },
    { text: expect.any(String) },
    { functionResponse: { name: 'search', response: { content: 'plain' } } },
  ],
  'openai-compatible': [
    {
      role: 'tool',
      content:
        '{"page":1}\n\n(The file shot-1 (image/jpg, 16 bytes) is part of this result, but cannot be shown to you.)\n\n' +
        '(The file paper (application/pdf, 18 bytes) is part of this result, but cannot be shown to you.)\n\n' +
        'File a.csv (text/csv, 5 bytes):\nÖl;1',
    },
    { role: 'tool', content: 'plain' },
  ],
};

/** The newest two results of a request, in the provider's words. */
function resultsIn(wire: Wire, body: unknown): unknown {
  const { messages: said, input, contents } = Object(body);
  if (wire === 'anthropic') return said.at(-1).content;
  if (wire === 'openai') return input.slice(-2);
  return wire === 'google' ? contents.at(-1).parts : said.slice(-2);
}

describe.each(WIRES)('%s, files of a tool’s result', (wire) => {
  const calls = new ModelCalls(wire);

  test('images, PDFs and text are sent in the result itself, as far as the provider takes them', async () => {
    calls.server.next({ text: 'seen' });
    const asked = { messages: messages(['image', 'pdf', 'text']), tools: [TOOL], file };
    expect(await calls.call(asked)).toMatchObject({ kind: 'completed', text: 'seen' });
    expect(resultsIn(wire, calls.server.newest.body)).toMatchObject(Object(GOLDEN[wire]));
  });

  test('what it cannot take, or is not what it is said to be, is told of', async () => {
    const asked = { messages: messages(['sound', 'lie', 'gone', 'long'], ''), tools: [TOOL], file };
    expect(await calls.call(asked)).toMatchObject({ kind: 'completed' });
    const body = JSON.stringify(resultsIn(wire, calls.server.newest.body));
    for (const name of ['s.wav', 'lie.png'])
      expect(body).toMatch(new RegExp(`The file ${name} [^"]*result, but cannot be shown`));
    expect(body).toContain('has been deleted');
    expect(body).toContain('The rest of the file is cut.');
    expect(body.length).toBeLessThan(35_000);
    expect(body).not.toMatch(/base64|inlineData/);
  });

  test('an image that Claude would refuse the request for goes to the others only', async () => {
    const asked = { messages: messages(['large']), tools: [TOOL], file };
    expect(await calls.call(asked)).toMatchObject({ kind: 'completed' });
    const isSent = JSON.stringify(calls.server.newest.body).includes(IMAGE);
    expect(isSent).toBe(wire === 'openai' || wire === 'google');
  });

  test('a request carries a number of them; the oldest are left out in blocks, so that steps begin alike', async () => {
    const shown: number[] = [];
    for (const count of [64, 65, 80, 96, 97]) {
      const asked = { messages: messages(Array.from({ length: count }, () => 'image')), tools: [TOOL], file };
      await calls.call(asked);
      const body = JSON.stringify(calls.server.newest.body);
      shown.push(body.split(IMAGE).length - 1);
    }
    expect(shown).toEqual(wire === 'openai-compatible' ? [0, 0, 0, 0, 0] : [64, 33, 48, 64, 33]);
  });
});

describe('Gemini 3', () => {
  const calls = new ModelCalls('google');

  test('gets them inside of the response', async () => {
    await calls.call({ model: 'gemini-3-pro-preview', messages: messages(['image']), tools: [TOOL], file });
    const [first] = Object(resultsIn('google', calls.server.newest.body));
    const parts = [{ inlineData: { mimeType: 'image/png', data: IMAGE } }];
    expect(first).toMatchObject({ functionResponse: { parts } });
  });
});

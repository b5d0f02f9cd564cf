import { gunzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { McpOutcome, McpProgress, McpQuestion, McpServer } from '#src/drivers/mcp/port.ts';
import { EverythingServer, ModernServer } from '../support/mcp-servers.ts';
import { serverAt, TestMcp, textOf } from '../support/mcp.ts';
import { until } from '../support/wait-until.ts';

function contentOf(outcome: McpOutcome) {
  if (outcome.kind !== 'result') throw new Error(`no result: ${JSON.stringify(outcome)}`);
  expect(outcome.isError).toBe(false);
  return outcome.content;
}

describe('the reference server of the older revisions', () => {
  let everything: EverythingServer;
  let mcp: TestMcp;
  let server: McpServer;

  beforeAll(async () => {
    everything = await EverythingServer.start();
    mcp = new TestMcp();
    server = serverAt(everything.url, { name: 'every' });
  });

  afterAll(async () => {
    await mcp[Symbol.asyncDispose]();
    await everything[Symbol.asyncDispose]();
  });

  const text = async (tool: string, input: object = {}): Promise<string> => {
    const outcome = await mcp.call(server, { tool, input: { ...input } });
    contentOf(outcome);
    return textOf(outcome);
  };

  test('lists what this Host can call, each tool with its hints', async () => {
    const listing = await mcp.list(server);
    if (listing.kind !== 'tools') throw new Error(JSON.stringify(listing));
    expect(listing.revision).toBe('2025-11-25');
    expect(listing.tools.map(({ tool }) => tool)).toEqual([
      ...['echo', 'get-annotated-message', 'get-env', 'get-resource-links', 'get-resource-reference'],
      ...['get-structured-content', 'get-sum', 'get-tiny-image', 'gzip-file-as-resource'],
      ...['toggle-simulated-logging', 'toggle-subscriber-updates', 'trigger-elicitation-request'],
      ...['trigger-long-running-operation', 'trigger-url-elicitation'],
    ]);
    expect(listing.refused).toEqual([
      { tool: 'simulate-research-query', reason: expect.stringContaining('as a task') as string },
    ]);
    const hints = Object.fromEntries(listing.tools.map((tool) => [tool.tool, tool]));
    expect(hints['echo']).toMatchObject({ name: 'every_echo', readOnly: true, destructive: false });
    expect(hints['gzip-file-as-resource']).toMatchObject({ readOnly: false, idempotent: true, destructive: false });
    expect(hints['get-structured-content']?.outputSchema).toMatchObject({ type: 'object' });
  });

  test('answers with text', async () => {
    expect(await text('echo', { message: 'hello' })).toBe('Echo: hello');
    expect(await text('get-sum', { a: 2, b: 3 })).toContain('is 5');
    expect(await text('get-env')).toContain('PORT');
    expect(await text('get-annotated-message', { messageType: 'error', includeImage: true })).toContain('[media]');
  });

  test('answers with images, files and links', async () => {
    const image = contentOf(await mcp.call(server, { tool: 'get-tiny-image' })).find(({ type }) => type === 'media');
    expect(image).toMatchObject({ contentType: 'image/png' });
    expect(
      Buffer.from(image?.type === 'media' ? image.bytes : [])
        .subarray(1, 4)
        .toString(),
    ).toBe('PNG');
    const reference = { resourceType: 'Text', resourceId: 1 };
    const [, file] = contentOf(await mcp.call(server, { tool: 'get-resource-reference', input: reference }));
    expect(file).toMatchObject({ type: 'resource', uri: 'demo://resource/dynamic/text/1', contentType: 'text/plain' });
    const zipped = { name: 'x.gz', data: 'data:text/plain,some text', outputType: 'resource' };
    const [gzip] = contentOf(await mcp.call(server, { tool: 'gzip-file-as-resource', input: zipped }));
    expect(gunzipSync(gzip?.type === 'resource' ? gzip.bytes : Buffer.of()).toString()).toBe('some text');
    const links = contentOf(await mcp.call(server, { tool: 'get-resource-links', input: { count: 3 } }));
    expect(links.filter(({ type }) => type === 'link')).toHaveLength(3);
  });

  test('answers with structured content', async () => {
    const outcome = await mcp.call(server, { tool: 'get-structured-content', input: { location: 'Chicago' } });
    expect(outcome).toMatchObject({ kind: 'result', structured: { temperature: 36, humidity: 82 } });
  });

  test('keeps its state for one session of the Host', async () => {
    expect(await text('toggle-simulated-logging')).toContain('Started');
    expect(await text('toggle-simulated-logging')).toContain('Stopped');
    expect(await text('toggle-subscriber-updates')).toContain('Started');
    const other = await mcp.call(serverAt(everything.url, { name: 'every' }), { tool: 'toggle-subscriber-updates' });
    expect(textOf(other)).toContain('Started');
    expect(await text('toggle-subscriber-updates')).toContain('Stopped');
  });

  test('tells its progress', async () => {
    const told: McpProgress[] = [];
    const input = { duration: 1, steps: 4 };
    const tool = 'trigger-long-running-operation';
    contentOf(await mcp.call(server, { tool, input }, { onProgress: (progress) => told.push(progress) }));
    expect(told[0]).toMatchObject({ progress: 1, total: 4 });
    expect(told.length).toBeLessThanOrEqual(4);
  });

  test('is told that a call is no longer wanted', async () => {
    const caller = new AbortController();
    const calling = mcp.call(
      server,
      { tool: 'trigger-long-running-operation', input: { duration: 600, steps: 1_200 } },
      { signal: caller.signal, onProgress: () => caller.abort(new Error('not wanted')) },
    );
    await expect(calling).rejects.toThrow('not wanted');
  });

  test('answers what it cannot do', async () => {
    const wrong = await mcp.call(server, { tool: 'get-sum', input: { a: 'one' } });
    expect(wrong).toMatchObject({ kind: 'result', isError: true });
    expect(textOf(wrong)).toContain('Invalid');
    const unknown = await mcp.call(server, { tool: 'no-such-tool' });
    expect(unknown).toMatchObject({ kind: 'failed', code: 'changed', mayHaveHappened: false });
  });

  test('asks within the call, if somebody answers there', async () => {
    const asked: McpQuestion[] = [];
    const outcome = await mcp.call(
      server,
      { tool: 'trigger-elicitation-request' },
      {
        onQuestion: async (question) => {
          asked.push(question);
          return await Promise.resolve({ action: 'accept', content: { name: 'Ann' } });
        },
      },
    );
    expect(asked).toMatchObject([{ mode: 'form', schema: { type: 'object', required: ['name'] } }]);
    contentOf(outcome);
    expect(textOf(outcome)).toContain('Name: Ann');
  });

  test('gets no answer to a question otherwise, and the result says so', async () => {
    const outcome = await mcp.call(server, { tool: 'trigger-elicitation-request' });
    expect(outcome).toMatchObject({ kind: 'result', isError: true });
    expect(textOf(outcome)).toContain('the question was cancelled');
    expect(textOf(outcome)).toContain('User cancelled');
  });

  test('sends a person to an address first; the call is made after that', async () => {
    const call = {
      tool: 'trigger-url-elicitation',
      input: { url: 'https://sign.example/in', errorPath: true, elicitationId: 'one' },
    };
    const asked = await mcp.call(server, call);
    if (asked.kind !== 'input_required') throw new Error(JSON.stringify(asked));
    expect(asked.question).toEqual({
      mode: 'url',
      message: expect.any(String) as string,
      url: expect.stringMatching(/^https:/) as string,
    });
    const declined = await mcp.call(server, { ...call, resume: { state: asked.state, answer: { action: 'decline' } } });
    expect(declined).toMatchObject({ kind: 'failed', code: 'refused', mayHaveHappened: false });
    const done = await mcp.call(
      server,
      { ...call, resume: { state: asked.state, answer: { action: 'accept' } } },
      { onQuestion: async () => await Promise.resolve({ action: 'accept' }) },
    );
    contentOf(done);
    expect(textOf(done)).toContain('https://sign.example/in');
  });

  test('is called by many at once', async () => {
    const messages = Array.from({ length: 40 }, (_, i) => `message ${i}`);
    const answers = await Promise.all(messages.map(async (message) => await text('echo', { message })));
    expect(answers).toEqual(messages.map((message) => `Echo: ${message}`));
  });
});

test('a server of an older revision that has lost its sessions gets a new one', async () => {
  await using mcp = new TestMcp();
  await using first = await EverythingServer.start();
  const server = serverAt(first.url);
  const call = { tool: 'echo', input: { message: 'x' } };
  expect(textOf(await mcp.call(server, call))).toBe('Echo: x');
  await first.restart();
  expect(textOf(await mcp.call(server, call))).toBe('Echo: x');
});

describe('a server of revision 2026-07-28', () => {
  let modern: ModernServer;
  let server: McpServer;

  beforeAll(async () => {
    modern = await ModernServer.start();
    server = serverAt(modern.url, { name: 'new' });
  });

  afterAll(async () => await modern[Symbol.asyncDispose]());

  test('is listed and called', async () => {
    await using mcp = new TestMcp();
    const listing = await mcp.list(server);
    expect(listing).toMatchObject({ kind: 'tools', revision: '2026-07-28', refusedCount: 0 });
    const sum = await mcp.call(server, { tool: 'add', input: { a: 2, b: 3 } });
    expect(sum).toMatchObject({ kind: 'result', structured: { sum: 5 }, isError: false });
  });

  test('asks a question that another node answers after both were restarted', async () => {
    const call = { tool: 'book', input: { room: 'blue' } };
    let asked: McpOutcome;
    {
      await using mcp = new TestMcp();
      asked = await mcp.call(server, call);
    }
    expect(asked).toMatchObject({
      kind: 'input_required',
      question: { mode: 'form', message: 'Book blue?', schema: { required: ['nights'] } },
    });
    if (asked.kind !== 'input_required') return;
    expect(modern.done).not.toContain('book blue accept');
    await using restarted = await ModernServer.start();
    await using mcp = new TestMcp();
    const answer = { action: 'accept', content: { nights: 3 } } as const;
    const there = { ...server, url: restarted.url };
    const done = await mcp.call(there, { ...call, resume: { state: asked.state, answer } });
    expect(JSON.parse(textOf(done))).toEqual({ ...answer, state: 'room:blue' });
    expect(restarted.done).toEqual(['book blue accept']);
  });

  test('hears that a person declines', async () => {
    await using mcp = new TestMcp();
    const call = { tool: 'book', input: { room: 'red' } };
    const asked = await mcp.call(server, call);
    if (asked.kind !== 'input_required') throw new Error(JSON.stringify(asked));
    const declined = await mcp.call(server, { ...call, resume: { state: asked.state, answer: { action: 'decline' } } });
    expect(JSON.parse(textOf(declined))).toMatchObject({ action: 'decline' });
  });

  test('asks several questions, which come one by one', async () => {
    await using mcp = new TestMcp();
    const first = await mcp.call(server, { tool: 'two' });
    if (first.kind !== 'input_required') throw new Error(JSON.stringify(first));
    expect(first.question.message).toBe('first?');
    const second = await mcp.call(server, {
      tool: 'two',
      resume: { state: first.state, answer: { action: 'decline' } },
    });
    if (second.kind !== 'input_required') throw new Error(JSON.stringify(second));
    expect(second.question.message).toBe('second?');
    const answer = { action: 'accept', content: {} } as const;
    const done = await mcp.call(server, { tool: 'two', resume: { state: second.state, answer } });
    expect(textOf(done)).toBe('decline accept');
  });

  test('is asked only what its own question allows', async () => {
    await using mcp = new TestMcp();
    const asked = await mcp.call(server, { tool: 'two' });
    if (asked.kind !== 'input_required') throw new Error(JSON.stringify(asked));
    const answer = { action: 'accept' } as const;
    for (const resume of [
      { state: asked.state.slice(1), answer },
      { state: '{}', answer },
      { state: 'x'.repeat(1_000_000), answer },
    ]) {
      expect(await mcp.call(server, { tool: 'two', resume })).toMatchObject({ kind: 'failed', code: 'invalid_state' });
    }
    const elsewhere = await mcp.call(server, {
      tool: 'book',
      input: { room: 'x' },
      resume: { state: asked.state, answer },
    });
    expect(elsewhere).toMatchObject({ kind: 'failed', code: 'invalid_state', mayHaveHappened: false });
  });

  test('sees that a call is no longer wanted, or late', async () => {
    await using mcp = new TestMcp();
    const caller = new AbortController();
    const before = modern.cancelled;
    const calling = mcp.call(server, { tool: 'wait' }, { signal: caller.signal });
    await until('the call to arrive', () => Promise.resolve(modern.waiting > before));
    caller.abort(new Error('not wanted'));
    await expect(calling).rejects.toThrow('not wanted');
    await until('the server to hear of it', () => Promise.resolve(modern.cancelled > before));
    const late = await mcp.call(server, { tool: 'wait', deadline: Date.now() + 1_000 });
    expect(late).toMatchObject({ kind: 'failed', code: 'timeout' });
    await until('the server to hear of that too', () => Promise.resolve(modern.cancelled === modern.waiting));
  });
});

import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { ConversationMessage } from '#src/domain/turn/conversation.ts';
import { modelClient } from '#src/drivers/model/client.ts';
import type { ModelFile, ModelRequest } from '#src/drivers/model/port.ts';
import { egressPolicy } from '#src/lib/egress.ts';
import { KEY, ModelCalls, NEVER, TOOL } from '../support/model-calls.ts';

const MIB = 1_048_576;
const DAY_MS = 86_400_000;
const LARGE = Buffer.from(`%PDF-1.7\n${'%'.repeat(MIB)}`);
const PNG = Buffer.concat([Buffer.from('89504e470d0a1a0a0000000d49484452', 'hex'), Buffer.alloc(MIB)]);
const UPLOADING = { files: 'upload' } as const;

const reads: string[] = [];

function of(name: string, contentType: string, data: Buffer): ModelFile {
  const read = async (): Promise<Uint8Array> => {
    reads.push(name);
    return await Promise.resolve(data);
  };
  return { name, contentType, size: data.length, sha256: name, read };
}

const KNOWN: Readonly<Record<string, ModelFile>> = {
  scan: of('scan', 'application/pdf', LARGE),
  image: of('photo.png', 'image/jpg', PNG),
  small: of('small.pdf', 'application/pdf', LARGE.subarray(0, MIB)),
  forged: of('a"\r\nContent-Type: text/html\r\n\r\n--x.pdf', 'application/pdf', LARGE),
  lie: of('lie.pdf', 'application/pdf', Buffer.alloc(MIB + 1)),
};
const file: ModelRequest['file'] = async ({ artifactId }) => await Promise.resolve(KNOWN[artifactId] ?? null);

function asked(names: readonly string[], more: Partial<ModelRequest> = {}): Partial<ModelRequest> {
  const files = names.map((artifactId) => ({ artifactId, version: 1 }));
  return { messages: [{ role: 'user', text: 'Look.', files }], settings: UPLOADING, file, ...more };
}

const INLINE = LARGE.subarray(0, 30).toString('base64');

describe.each(['openai', 'google'] as const)('%s, files that it stores', (wire) => {
  const calls = new ModelCalls(wire);
  /** What each upload takes. */
  const perFile = wire === 'google' ? 2 : 1;
  const mark = (): (() => number) => {
    const before = calls.server.files.requests.length;
    return () => (calls.server.files.requests.length - before) / perFile;
  };
  const isInline = (): boolean => calls.server.newest.text.includes(INLINE);
  /** What a test stores is another's to store again: each has a tenant of its own. */
  let tenant = 0;
  const call = async (names: readonly string[], more: Partial<ModelRequest> = {}): Promise<void> => {
    const outcome = await calls.call(asked(names, { tenant: `tn_${tenant}`, ...more }));
    expect(outcome).toMatchObject({ kind: 'completed', text: 'pong' });
  };
  beforeEach(() => {
    tenant += 1;
    reads.length = 0;
  });
  afterEach(() => {
    calls.server.files.isClosed = false;
    calls.server.files.isForgetful = false;
  });

  test('a large one is stored once, and named by its id from then on, without being read', async () => {
    const uploads = mark();
    await call(['scan', 'image']);
    const { text } = calls.server.newest;
    await call(['scan', 'image']);
    expect(uploads()).toBe(2);
    expect(calls.server.newest.text).toBe(text);
    expect(isInline()).toBe(false);
    expect(reads).toEqual(['scan', 'photo.png']);
    expect(calls.server.requests.slice(-2).map(({ headers }) => headers['content-type'])).toEqual([
      'application/json',
      'application/json',
    ]);
  });

  test('a small one, one that is not what it is said to be, and all of whoever did not ask for it, are not', async () => {
    const uploads = mark();
    await call(['small', 'lie']);
    await call(['scan'], { settings: {} });
    expect(isInline()).toBe(true);
    await call(['scan'], { settings: { files: 'inline' } });
    expect(uploads()).toBe(0);
  });

  test('another tenant, and another key, have files of their own', async () => {
    const uploads = mark();
    await call(['scan']);
    await call(['scan'], { tenant: 'tn_other' });
    expect(uploads()).toBe(2);
    calls.server.takeKeys([KEY, 'sk-second']);
    const second = asked(['scan'], { tenant: `tn_${tenant}` });
    expect(await calls.call(second, calls.known('sk-second'))).toMatchObject({ kind: 'completed' });
    expect(uploads()).toBe(3);
  });

  test('is stored again before it ends', async () => {
    const uploads = mark();
    await call(['scan']);
    calls.nowMs += 2 * DAY_MS - 700_000;
    await call(['scan']);
    expect(uploads()).toBe(1);
    calls.nowMs += 200_000;
    await call(['scan']);
    expect(uploads()).toBe(2);
    expect(isInline()).toBe(false);
  });

  test('one that has gone is sent with the call, and is stored again for the next', async () => {
    await call(['scan']);
    calls.server.files.lose();
    const uploads = mark();
    const before = calls.server.requests.length;
    await call(['scan']);
    expect(isInline()).toBe(true);
    expect(calls.server.requests.length - before).toBe(2);
    expect(uploads()).toBe(0);
    await call(['scan']);
    expect(uploads()).toBe(1);
    expect(isInline()).toBe(false);
  });

  test('where ids are never taken, files are sent with the calls, and not stored for each of them', async () => {
    calls.server.files.isForgetful = true;
    const uploads = mark();
    const before = calls.server.requests.length;
    await call(['scan']);
    await call(['scan']);
    expect(uploads()).toBe(1);
    expect(calls.server.requests.length - before).toBe(3);
    expect(isInline()).toBe(true);
  });

  test('where uploads are refused, files are sent with the calls, and it is tried again after ten minutes', async () => {
    calls.server.files.isClosed = true;
    const before = calls.server.files.requests.length;
    // One that was refused is enough: the other one of the call is not tried.
    await call(['scan', 'image']);
    await call(['scan']);
    expect(isInline()).toBe(true);
    expect(calls.server.files.requests.length - before).toBe(1);
    calls.server.files.isClosed = false;
    calls.nowMs += 600_000;
    await call(['scan']);
    expect(isInline()).toBe(false);
  });

  test('a call that fails for another reason is repeated once, and its ids are kept', async () => {
    await call(['scan']);
    const uploads = mark();
    const before = calls.server.requests.length;
    const error = { status: 400, type: 'invalid_request_error', message: 'no such thing' };
    calls.server.next({ error }, { error });
    const outcome = await calls.call(asked(['scan'], { tenant: `tn_${tenant}` }));
    expect(outcome).toMatchObject({ kind: 'failed', error: { code: 'model_request_invalid' } });
    expect(calls.server.requests.length - before).toBe(2);
    await call(['scan']);
    expect(uploads()).toBe(0);
    expect(isInline()).toBe(false);
  });

  test('a call that is cancelled while a file is stored settles, and nothing is kept of it', async () => {
    const over = new AbortController();
    const request = calls.request(asked(['scan'], { tenant: `tn_${tenant}` }));
    const uploads = mark();
    const outcome = calls.driver.call(request, over.signal);
    over.abort(new Error('over'));
    expect(await outcome).toMatchObject({ kind: 'failed', error: { code: 'cancelled' } });
    expect(uploads()).toBeLessThanOrEqual(1);
    expect(await calls.driver.call(request, NEVER)).toMatchObject({ kind: 'completed' });
    expect(isInline()).toBe(false);
  });

  test('a name that would be more than a name in the form is not', async () => {
    await call(['image', 'forged']);
    const [usual, forged] = calls.server.files.requests
      .slice(-2 * perFile)
      .filter((_, n) => n % perFile === perFile - 1);
    expect(Object.keys(Object(forged?.body))).toEqual(Object.keys(Object(usual?.body)));
    expect(JSON.stringify(forged)).not.toContain('\\r\\n');
    expect(isInline()).toBe(false);
  });

  test('of a tool’s result, where the wire has a place for it', async () => {
    const uploads = mark();
    const messages: readonly ConversationMessage[] = [
      { role: 'user', text: 'Look.' },
      { role: 'assistant', text: '', toolCalls: [{ callId: 'a', name: 'search', input: {} }] },
      {
        ...{ role: 'tool', name: 'search', callId: 'a', failed: false, output: 'Here.' },
        files: [{ artifactId: 'scan', version: 1 }],
      },
    ];
    await call([], { messages, tools: [TOOL] });
    expect(uploads()).toBe(wire === 'openai' ? 1 : 0);
    expect(isInline()).toBe(wire === 'google');
  });
});

describe('a server that says where an upload goes', () => {
  const calls = new ModelCalls('google');
  const clients: ReturnType<typeof modelClient>[] = [];
  let hits = 0;
  const other = createServer((_request, response) => {
    hits += 1;
    response.writeHead(500).end();
  });
  beforeAll(async () => {
    other.listen(0, '127.0.0.2');
    await once(other, 'listening');
  });
  afterAll(async () => {
    await Promise.all(clients.map(async (client) => await client.close()));
    other.close();
  });

  test.each([
    ['127.0.0.1/32', 0],
    ['loopback', 1],
  ])('is followed to what the Host may call: with %s, %d times', async (allowed, times) => {
    calls.server.files.uploadsTo = `http://127.0.0.2:${(other.address() as AddressInfo).port}`;
    hits = 0;
    const client = modelClient({ policy: egressPolicy(allowed), silenceMs: 60_000 });
    clients.push(client);
    const outcome = await calls.with(client).call(calls.request(asked(['scan'])), NEVER);
    expect(outcome).toMatchObject({ kind: 'completed' });
    expect(calls.server.newest.text).toContain(INLINE);
    expect(hits).toBe(times);
  });
});

describe.each(['anthropic', 'openai-compatible'] as const)('%s', (wire) => {
  const calls = new ModelCalls(wire);

  test('is sent files with each call, whatever is asked for', async () => {
    expect(await calls.call(asked(['scan', 'image']))).toMatchObject({ kind: 'completed' });
    expect(calls.server.files.requests).toEqual([]);
    expect(calls.server.newest.text).toContain(PNG.subarray(0, 30).toString('base64'));
  });
});

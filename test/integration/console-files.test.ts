import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { gunzipSync } from 'node:zlib';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { openDoor } from '#src/console/server/door.ts';
import type { Door } from '#src/console/server/door.ts';

/** How the files of the console travel. */
const PAGE = Buffer.from(`<!doctype html>${'<p>again and again</p>'.repeat(200)}`);

let directory: string;
let door: Door;

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'agent-host-pages-'));
  await writeFile(join(directory, 'index.html'), PAGE);
  const authority = { kind: 'tenant', tenant: 'tn_1', key: 'key-of-the-console' } as const;
  door = await openDoor({ url: 'http://127.0.0.1:9', directory, port: 0, now: Date.now, authority });
});

afterAll(async () => {
  await door.close();
  await rm(directory, { recursive: true, force: true });
});

async function ask(headers: Record<string, string>, method = 'GET') {
  const sent = request({ host: '127.0.0.1', port: door.port, path: '/', method, headers });
  sent.end();
  const [answer] = await once(sent, 'response');
  return { headers: answer.headers, bytes: await buffer(answer) };
}

test('a page comes compressed to who takes that, also to two at once', async () => {
  const taken = { 'accept-encoding': 'br, gzip' };
  const [first, second] = await Promise.all([ask(taken), ask(taken)]);
  expect(gunzipSync(first.bytes)).toEqual(PAGE);
  expect(second.bytes).toEqual(first.bytes);
  expect(first.headers).toMatchObject({
    'content-encoding': 'gzip',
    'content-length': String(first.bytes.length),
    vary: 'accept-encoding',
  });
  const head = await ask(taken, 'HEAD');
  expect([head.headers['content-length'], head.bytes.length]).toEqual([first.headers['content-length'], 0]);
});

test.each([undefined, 'br', 'gzip;q=0', 'br, gzip; q=0.000', 'x-gzip'])(
  'a page comes as it is to a client that takes %s',
  async (encodings) => {
    const plain = await ask(encodings === undefined ? {} : { 'accept-encoding': encodings });
    expect(plain.headers['content-encoding']).toBeUndefined();
    expect(plain.bytes).toEqual(PAGE);
  },
);

test.each(['gzip', 'br;q=1.0, GZIP;q=0.5', 'deflate ,gzip ;q=1'])(
  'a page comes compressed to a client that takes %s',
  async (encodings) => {
    expect((await ask({ 'accept-encoding': encodings })).headers['content-encoding']).toBe('gzip');
  },
);

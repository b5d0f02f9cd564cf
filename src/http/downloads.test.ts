import { once } from 'node:events';
import { connect } from 'node:net';
import type { Socket } from 'node:net';
import { Readable } from 'node:stream';
import fastify from 'fastify';
import { afterEach, expect, test } from 'vitest';
import { until } from '../../test/support/wait-until.ts';
import { delay } from '../lib/backoff.ts';
import { sendBytes, sendMade } from './bytes.ts';
import { Downloads } from './downloads.ts';

const SILENCE_MS = 400;
const CHUNK = 65_536;
/** More than the kernel takes for a reader that reads nothing. */
const LARGE_BYTES = 33_554_432;
const READERS = 5;

let close = async (): Promise<void> => await Promise.resolve();

afterEach(async () => {
  await close();
});

/** By path, how the bytes of a file come: one after the other, after a silence of the store, or all in one. */
const SOURCES: Readonly<Record<string, () => AsyncIterable<Buffer>>> = {
  '/chunks': async function* () {
    for (let sent = 0; sent < LARGE_BYTES; sent += CHUNK) yield await Promise.resolve(Buffer.alloc(CHUNK));
  },
  '/late': async function* () {
    // The time that passes is what is tested.
    await delay(2 * SILENCE_MS);
    yield* SOURCES['/chunks']?.() ?? [];
  },
  '/one': async function* () {
    yield await Promise.resolve(Buffer.alloc(LARGE_BYTES));
  },
};

/** A server of one file of zeros; below `/made` without a length. */
async function serving({ silenceMs = SILENCE_MS, concurrent = 100 } = {}) {
  const downloads = new Downloads({ silenceMs, leastBytesPerSecond: CHUNK, concurrent });
  const bodies: Readable[] = [];
  const fileAt = (path: string) => {
    const open = async (): Promise<Readable> => {
      await Promise.resolve();
      const body = Readable.from(SOURCES[path]?.() ?? [], { objectMode: false });
      bodies.push(body);
      return body;
    };
    return { name: 'a', contentType: 'text/plain', open };
  };
  const app = fastify();
  const accepted: Socket[] = [];
  app.server.on('connection', (socket: Socket) => accepted.push(socket));
  for (const path of Object.keys(SOURCES)) {
    const fileOf = (of: string) => ({ ...fileAt(path), of, size: LARGE_BYTES, sha256: 'x' });
    app.get(path, async (request, reply) => await sendBytes(downloads, request, reply, fileOf('a')));
    app.get(`/other${path}`, async (request, reply) => await sendBytes(downloads, request, reply, fileOf('b')));
    app.get(`/made${path}`, async (request, reply) => await sendMade(downloads, request, reply, fileOf('a')));
  }
  const url = await app.listen({ host: '127.0.0.1', port: 0 });
  const sockets: Socket[] = [];
  const ask = async (path: string): Promise<void> => {
    const { hostname, port } = new URL(url);
    const socket = connect(Number(port), hostname);
    sockets.push(socket);
    socket.on('error', () => undefined);
    socket.write(`GET ${path} HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n`);
    await once(socket, 'readable');
    expect(String(socket.read())).toMatch(/^HTTP\/1.1 200 /);
  };
  close = async () => {
    for (const socket of sockets) socket.destroy();
    await app.close();
  };
  return { ask, accepted, bodies, sockets, url };
}

test.each(['/chunks', '/late', '/one', '/made/chunks'])(
  'readers of %s that take nothing lose their connection, however long the store was waited for',
  async (path) => {
    const { ask, accepted, bodies } = await serving();
    await Promise.all(Array.from({ length: READERS }, async () => await ask(path)));
    expect(bodies).toHaveLength(READERS);
    const isClosed = ({ destroyed }: Socket | Readable): boolean => destroyed;
    await until('they are closed, and what they read', () => [...accepted, ...bodies].every(isClosed), 30_000);
  },
);

test('requests behind another over one connection open nothing before it is their turn, and are answered in full', async () => {
  const { bodies, url } = await serving({ silenceMs: 30_000 });
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  const asked = (more: string): string => `GET /chunks HTTP/1.1\r\nhost: here\r\n${more}\r\n`;
  socket.write(asked('') + asked('') + asked('connection: close\r\n'));
  await once(socket, 'readable');
  // They have been received: an answer to a later request over another connection is there.
  await (await fetch(`${url}/none`)).text();
  expect(bodies).toHaveLength(1);
  let bytes = 0;
  for await (const chunk of socket) bytes += (chunk as Buffer).length;
  expect(bodies).toHaveLength(3);
  expect(bytes).toBeGreaterThanOrEqual(3 * LARGE_BYTES);
});

test('a node sends a bounded number of files at a time, of which one name has half; the others wait', async () => {
  const { ask, bodies, sockets, url } = await serving({ silenceMs: 30_000, concurrent: 4 });
  await Promise.all([ask('/chunks'), ask('/chunks')]);
  const third = ask('/chunks');
  const other = await (await fetch(`${url}/other/chunks`)).arrayBuffer();
  expect([bodies.length, other.byteLength]).toEqual([3, LARGE_BYTES]);
  sockets[0]?.destroy();
  await third;
  expect(bodies).toHaveLength(4);
});

test('a reader that leaves while it waits takes no place', async () => {
  const { ask, bodies, sockets, accepted } = await serving({ silenceMs: 30_000, concurrent: 2 });
  await ask('/chunks');
  void ask('/chunks').catch(() => undefined);
  await until('the second has come', () => accepted.length === 2);
  sockets[1]?.destroy();
  await until('it has left', () => accepted[1]?.destroyed === true);
  sockets[0]?.destroy();
  await ask('/chunks');
  expect(bodies).toHaveLength(2);
});

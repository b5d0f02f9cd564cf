import { once } from 'node:events';
import { connect } from 'node:net';
import type { Socket } from 'node:net';
import fastify from 'fastify';
import { afterEach, expect, test, vi } from 'vitest';
import type { Caller } from '../auth/caller.ts';
import type { TailHub } from '../streams/tail-hub.ts';
import { until } from '../../test/support/wait-until.ts';
import type { SseStream } from './sse-stream.ts';
import { EventStreams } from './sse.ts';
import type { StreamLimits } from './sse.ts';

const caller: Caller = {
  kind: 'application',
  tenantId: 'tn_1',
  principalId: 'key',
  subject: null,
  scopes: [],
  agents: null,
  sandboxes: null,
  credential: 'hash',
  expiresAt: null,
};

const feeds = { hub: { keptBytes: 0 } as TailHub, previews: { follow: () => () => undefined } };

const limitsOf = (changed: Partial<StreamLimits>): StreamLimits => ({
  ...{ bufferBytes: 1_000, totalBytes: 1_000_000_000, keepaliveMs: 60_000, perTenantMax: 10, clock: Date.now },
  ...changed,
});

let close = async (): Promise<void> => await Promise.resolve();

afterEach(async () => {
  vi.useRealTimers();
  await close();
  close = async () => await Promise.resolve();
});

test('a stream whose reader left while its session was looked up is never opened, and takes no place', async () => {
  const streams = new EventStreams(feeds, limitsOf({ perTenantMax: 1 }), () => 'stands');
  const left = Promise.withResolvers<null>();
  const app = fastify();
  app.get('/left', async (request, reply) => {
    socket.destroy();
    await once(reply.raw, 'close');
    streams.openWith(request, reply, caller, () => () => undefined);
    left.resolve(null);
  });
  app.get('/here', async (request, reply) => {
    streams.openWith(request, reply, caller, (stream) => {
      stream.send(': here\n\n');
      return () => undefined;
    });
  });
  const address = new URL(await app.listen({ host: '127.0.0.1', port: 0 }));
  const socket = connect(Number(address.port), address.hostname);
  socket.write('GET /left HTTP/1.1\r\nhost: here\r\n\r\n');
  await left.promise;
  expect(streams.size).toBe(0);
  const answer = await fetch(new URL('/here', address));
  expect([answer.status, streams.size]).toEqual([200, 1]);
  streams.stop();
  await answer.body?.cancel();
  await app.close();
});

const READERS = 3;
/** More than the kernel takes for a reader that reads nothing. */
const LARGE_BYTES = 16_777_216;

/** Streams whose readers take nothing of what they are sent, however long they are waited for. */
async function unread() {
  const state = { nowMs: 0, stands: true };
  const limits = limitsOf({ bufferBytes: 65_536, keepaliveMs: 100, clock: () => state.nowMs });
  const streams = new EventStreams(feeds, limits, () => (state.stands ? 'stands' : null));
  const app = fastify();
  const opened: SseStream[] = [];
  const accepted: Socket[] = [];
  app.server.on('connection', (socket: Socket) => accepted.push(socket));
  app.get('/', async (request, reply) => {
    await Promise.resolve();
    streams.openWith(request, reply, { ...caller, expiresAt: 1_000 }, (stream) => {
      opened.push(stream);
      stream.push('x'.repeat(LARGE_BYTES));
      return () => undefined;
    });
  });
  const { hostname, port } = new URL(await app.listen({ host: '127.0.0.1', port: 0 }));
  const sockets = Array.from({ length: READERS }, () => connect(Number(port), hostname));
  close = async () => {
    for (const socket of sockets) socket.destroy();
    streams.stop();
    await app.close();
  };
  for (const socket of sockets) {
    socket.on('error', () => undefined);
    socket.write('GET / HTTP/1.1\r\nhost: here\r\n\r\n');
    await once(socket, 'readable');
  }
  const waiting = (): number => accepted.reduce((sum, { writableLength }) => sum + writableLength, 0);
  // What is left of the texts is let go, and the kernel has taken what it takes.
  await until('the sockets are full', () => waiting() >= READERS * 60_000 && streams.heldBytes === waiting());
  return { streams, opened, state, waiting };
}

const ENDS = {
  'whose credential has expired': (_streams: EventStreams, state: { nowMs: number }) => void (state.nowMs = 1_000),
  'whose key is revoked': (streams: EventStreams, state: { stands: boolean }) => {
    state.stands = false;
    streams.recheck('tn_1');
  },
};

test.each(Object.entries(ENDS))(
  'a stream %s is closed though its reader takes nothing, and counts until then',
  async (_, end) => {
    const { streams, opened, state, waiting } = await unread();
    vi.useFakeTimers({ toFake: ['performance'] });
    end(streams, state);
    await until('they have ended', () => opened.every(({ ended }) => ended));
    expect(waiting()).toBeGreaterThan(READERS * 60_000);
    expect([streams.size, streams.heldBytes]).toEqual([READERS, waiting()]);
    vi.advanceTimersByTime(5_000);
    await until('they are closed', () => streams.size === 0);
    expect([streams.heldBytes, waiting()]).toEqual([0, 0]);
  },
);

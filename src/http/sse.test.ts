import { once } from 'node:events';
import { connect } from 'node:net';
import fastify from 'fastify';
import { expect, test } from 'vitest';
import type { Caller } from '../auth/caller.ts';
import type { TailHub } from '../streams/tail-hub.ts';
import { EventStreams } from './sse.ts';

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

test('a stream whose reader left while its session was looked up is never opened, and takes no place', async () => {
  const limits = { bufferBytes: 1_000, totalBytes: 1_000_000, keepaliveMs: 60_000, perTenantMax: 1, clock: Date.now };
  const streams = new EventStreams(
    { hub: { keptBytes: 0 } as TailHub, previews: { follow: () => () => undefined } },
    limits,
    () => 'stands',
  );
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

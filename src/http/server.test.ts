import { once } from 'node:events';
import { connect } from 'node:net';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { setTimeout as pause } from 'node:timers/promises';
import fastify from 'fastify';
import { expect, test } from 'vitest';
import { closeServer } from './server.ts';

const REQUEST = 'GET / HTTP/1.1\r\nhost: here\r\n\r\n';

test('a request that has arrived on an idle connection is answered, though the server closes before it was read', async () => {
  const app = fastify({ forceCloseConnections: 'idle', return503OnClosing: false });
  app.get('/', () => 'answered');
  await app.listen({ host: '127.0.0.1', port: 0 });
  const socket = connect((app.server.address() as AddressInfo).port, '127.0.0.1');
  socket.write(REQUEST);
  await once(socket, 'readable');
  socket.read();
  const rest = text(socket);
  // From a timer on, nothing is read before the close begins.
  await pause(1);
  socket.write(REQUEST);
  const blockedUntil = Date.now() + 20;
  while (Date.now() < blockedUntil);
  await closeServer(app);
  socket.end();
  expect(await rest).toMatch(/^HTTP\/1\.1 200 OK[^]*answered$/);
});

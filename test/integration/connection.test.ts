import { errors } from '@nats-io/transport-node';
import type { NatsConnection } from '@nats-io/transport-node';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { createServer } from 'node:net';
import type { Socket } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { closeNats, connectNats } from '#src/streams/jetstream/connection.ts';
import { newCommits, newRef } from '../support/commits.ts';
import { openLog } from '../support/jetstream.ts';
import { TestNats } from '../support/nats.ts';
import { TcpProxy } from '../support/tcp-proxy.ts';
import { until } from '../support/wait-until.ts';

const disposables = new AsyncDisposableStack();
let nats: TestNats;
let proxy: TcpProxy;

beforeAll(async () => {
  nats = disposables.use(await TestNats.start());
  proxy = disposables.use(await TcpProxy.start(nats.port));
});

afterAll(async () => {
  await disposables.disposeAsync();
});

/** How often the server has refused the connection so far. */
function refusals(connection: NatsConnection): () => number {
  let count = 0;
  const listen = async (): Promise<void> => {
    for await (const status of connection.status()) {
      if (status.type === 'error' && status.error instanceof errors.AuthorizationError) count++;
    }
  };
  void listen();
  return () => count;
}

/** Whether the server answers, within a second: what is asked while the connection is cut may never be answered. */
async function answers(connection: NatsConnection): Promise<boolean> {
  const flushed = connection.flush().then(
    () => true,
    () => false,
  );
  return await Promise.race([flushed, pause(1_000, false)]);
}

// What a nats-server says that has stood still, or has no time: it gives whoever connects two seconds.
test('a server that has no time for credentials refuses connections again and again: they are back with it', async () => {
  await using log = await openLog(nats.urlThrough(proxy.port));
  const [ref, [first, second]] = [newRef(), newCommits(2)];
  if (first === undefined || second === undefined) throw new Error('two commits');
  const before = await log.store.append(ref, 0, first);
  if (before.kind !== 'appended') throw new Error('nobody else writes');
  const connections = Object.values<NatsConnection>({ ...log.connections });
  const counts = connections.map(refusals);
  proxy.answerWith("-ERR 'Authentication Timeout'\r\n");
  proxy.cutAll();
  await until('each of them has been refused several times', () => counts.every((count) => count() > 2));
  proxy.pass();
  proxy.cutAll();
  await Promise.all(
    connections.map(async (connection) => await until('it is back', async () => await answers(connection))),
  );
  expect(await log.store.append(ref, before.position, second)).toMatchObject({ kind: 'appended' });
  expect(connections.map((connection) => connection.isClosed())).toEqual(connections.map(() => false));
});

/** A server that greets, answers pings until it is told to end, and has ended then as far as TCP lets one side. */
async function startHalfServer(): Promise<AsyncDisposable & { readonly port: number; readonly end: () => void }> {
  const peers = new Set<Socket>();
  const server = createServer({ allowHalfOpen: true }, (peer) => {
    peers.add(peer);
    peer.on('error', () => undefined);
    const info = {
      server_id: 'half',
      version: '2.12.0',
      proto: 1,
      headers: true,
      max_payload: 8_388_608,
      jetstream: true,
    };
    peer.write(`INFO ${JSON.stringify(info)}\r\n`);
    peer.on('data', (data) => void (data.includes('PING') && peer.write('PONG\r\n')));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  return {
    port: typeof address === 'object' && address !== null ? address.port : 0,
    end: () => {
      for (const peer of peers) peer.pause().end();
    },
    [Symbol.asyncDispose]: async () => {
      for (const peer of peers) peer.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** What ends a process, had nobody looked: errors that nothing has caught. */
function watchUncaught(): Disposable & { readonly errors: unknown[] } {
  const others = process.listeners('uncaughtException');
  const errors: unknown[] = [];
  process.removeAllListeners('uncaughtException');
  process.on('uncaughtException', (error) => errors.push(error));
  return {
    errors,
    [Symbol.dispose]: () => {
      process.removeAllListeners('uncaughtException');
      for (const other of others) process.on('uncaughtException', other);
    },
  };
}

test('connections whose server has ended its half may be closed while something is written to them', async () => {
  await using server = await startHalfServer();
  const sockets: Socket[] = [];
  const note = (message: unknown): void => void sockets.push((message as { socket: Socket }).socket);
  subscribe('net.client.socket', note);
  const connections = await connectNats(`nats://127.0.0.1:${server.port}`, 'test');
  unsubscribe('net.client.socket', note);
  const all = Object.values<NatsConnection>({ ...connections });
  expect(sockets).toHaveLength(all.length);
  // Too much to be taken: so their sockets stay, ended and not gone.
  const bytes = new Uint8Array(4_194_304);
  for (const connection of all) for (let n = 0; n < 8; n++) connection.publish('much', bytes);
  server.end();
  await until('the sockets are ended', () => sockets.every((socket) => socket.writableEnded && !socket.destroyed));
  using uncaught = watchUncaught();
  // Never answered: the client forgets it.
  for (const connection of all) void connection.flush().catch(() => undefined);
  await closeNats(connections);
  await until('the sockets are gone', () => sockets.every((socket) => socket.closed));
  await pause(0);
  expect(uncaught.errors).toEqual([]);
});

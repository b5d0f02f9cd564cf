import { errors } from '@nats-io/transport-node';
import type { NatsConnection } from '@nats-io/transport-node';
import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
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

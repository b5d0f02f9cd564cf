import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { jetstream, jetstreamManager } from '@nats-io/jetstream';
import { connect as connectNats } from '@nats-io/transport-node';
import { expect, test } from 'vitest';
import { NatsCluster } from '../support/cluster/nats-cluster.ts';
import type { ClusterServer } from '../support/cluster/nats-cluster.ts';
import { TcpProxy } from '../support/tcp-proxy.ts';
import { until } from '../support/wait-until.ts';

/** Faults that do nothing would show nothing: what the chaos counts on is tried here one by one. */

async function publishes(cluster: NatsCluster, server: ClusterServer): Promise<boolean> {
  const { username: user, password: pass } = new URL(cluster.urlThrough([server.port]));
  const connection = await connectNats({ servers: `127.0.0.1:${server.port}`, user, pass, reconnect: false });
  try {
    await jetstream(connection).publish('t.1', 'text', { timeout: 1_000, retries: 0 });
    return true;
  } catch {
    return false;
  } finally {
    await connection.close();
  }
}

test('a NATS server without its links cannot store, the others can, and it is back with them', async () => {
  await using cluster = await NatsCluster.start();
  const [first, second] = cluster.servers;
  if (first === undefined || second === undefined) throw new Error('there are no servers');
  const { username: user, password: pass } = new URL(cluster.urlThrough([first.port]));
  const connection = await connectNats({ servers: `127.0.0.1:${first.port}`, user, pass });
  const manager = await jetstreamManager(connection);
  // Servers that have just started do not know yet that all of them are there.
  await until(
    'the stream has a place at each server',
    async () =>
      await manager.streams.add({ name: 'T', subjects: ['t.>'], num_replicas: 3 }).then(
        () => true,
        () => false,
      ),
    60_000,
  );
  await connection.close();
  const stores = async (server: ClusterServer, wanted: boolean): Promise<boolean> => {
    const isSo = async (): Promise<boolean> => (await publishes(cluster, server)) === wanted;
    return await until(`${server.name} ${wanted ? 'stores' : 'stores nothing'}`, isSo, 60_000);
  };
  for (const how of ['cut', 'both ways', 'one way'] as const) {
    for (const link of cluster.linksOf(first)) {
      if (how === 'cut') link.cut();
      else link.hold(how);
    }
    const apart = [await stores(first, false), await stores(second, true)];
    for (const link of cluster.links) link.pass();
    expect({ how, apart, back: await stores(first, true) }).toEqual({ how, apart: [true, true], back: true });
  }
}, 300_000);

test('a connection is cut in the middle of what the server sends', async () => {
  const server = createServer((socket) => void socket.on('data', () => socket.write('0123456789'.repeat(10))));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  await using proxy = await TcpProxy.start(typeof address === 'object' && address !== null ? address.port : 0);
  const client = connect(proxy.port, '127.0.0.1');
  let heard = '';
  client.setEncoding('utf8').on('data', (text: string) => (heard += text));
  client.on('error', () => undefined);
  proxy.cutAfter(25);
  client.write('now');
  await once(client, 'close');
  expect(heard).toBe('0123456789012345678901234');
  const again = connect(proxy.port, '127.0.0.1');
  again.write('now');
  const [all] = (await once(again, 'data')) as [Buffer];
  expect(all.length).toBe(100);
  again.destroy();
  server.close();
});

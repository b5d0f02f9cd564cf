import { StoreCompression } from '@nats-io/jetstream';
import { expect, test } from 'vitest';
import { ensureTopology } from '#src/streams/jetstream/topology.ts';
import { appendAll, newCommits, newRef } from '../support/commits.ts';
import { useServers } from '../support/servers.ts';

const servers = useServers();

test('an installation of an older version is brought up to date, with what it holds', async () => {
  const { store, topology, connections } = servers.log;
  const { streams } = topology.manager;
  const names = ['EVT_0', 'KV_SNAPSHOT', 'KV_SECRETS', 'KV_DIRECTORY', 'KV_LEASE'];
  for (const name of names) await streams.update(name, { compression: StoreCompression.S2 });
  // A server never takes this back.
  await streams.update('EVT_0', { deny_delete: true });
  const ref = newRef();
  await appendAll(store, ref, newCommits(3));
  await ensureTopology(connections.appends, { shards: 1, replicas: 1 });
  for (const name of names) expect((await streams.info(name)).config.compression, name).toBe(StoreCompression.None);
  expect((await store.read(ref, { after: 0, limit: 10 })).commits.map(({ commit }) => commit.rev)).toEqual([1, 2, 3]);
});

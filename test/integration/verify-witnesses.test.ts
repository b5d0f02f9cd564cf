import { expect, test } from 'vitest';
import { EVENT_SCHEMAS } from '#src/app/event-schemas.ts';
import { missingOnes, snapshotWitnesses } from '#src/cli/verify.ts';
import { ChainVerifier } from '#src/streams/chain-verifier.ts';
import { JetStreamKeyValue } from '#src/streams/jetstream/key-value.ts';
import { sealedSnapshots } from '#src/streams/sealed-snapshots.ts';
import { AGGREGATE_KINDS } from '#src/streams/subjects.ts';
import { snapshotKey } from '#src/commands/repository.ts';
import { appendAll, newCommit, newRef } from '../support/commits.ts';
import { useServers } from '../support/servers.ts';

const servers = useServers({ postgres: true });

test('a tenant that is deleted while the log is read is not missed at the end, a commit that was cut off is', async () => {
  await using database = await servers.postgres.migrated();
  const { log } = servers;
  const { connections, topology, keyring, store } = log;
  const snapshots = new JetStreamKeyValue(connections.appends, { kv: topology.buckets.snapshots, name: 'SNAPSHOT' });
  const folds = sealedSnapshots(snapshots, keyring);
  const [deleted, cut] = [newRef(), newRef()];
  for (const ref of [deleted, cut]) {
    const [position] = await appendAll(store, ref, [newCommit(1)]);
    const key = snapshotKey(ref, { foldVersion: 1 });
    await folds.put(key, JSON.stringify({ position, hash: 'h' }));
  }
  const verifier = new ChainVerifier(EVENT_SCHEMAS);
  const witnesses = await snapshotWitnesses({ snapshots, folds });
  expect(witnesses).toHaveLength(2);
  for (const witness of witnesses) verifier.expect(witness);
  const missing = async (): Promise<string[]> => {
    const found = await missingOnes({ log, pool: await database.pool() }, { verifier });
    return found.map(({ subject, what }) => `${subject}: ${what}`);
  };
  expect(await missing()).toEqual([]);
  await keyring.destroy(deleted.tenant);
  await store.erase(deleted.tenant, AGGREGATE_KINDS);
  expect(await missing()).toEqual([]);
  await keyring.finish(deleted.tenant);
  expect(await missing()).toEqual([]);
  await store.erase(cut.tenant, AGGREGATE_KINDS);
  expect(await missing()).toEqual([expect.stringContaining('the newest commits are missing')]);
});

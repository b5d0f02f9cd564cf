import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { jetstreamManager } from '@nats-io/jetstream';
import { expect, test } from 'vitest';
import { closeNats, connectNats } from '#src/streams/jetstream/connection.ts';
import { ensureTopology } from '#src/streams/jetstream/topology.ts';
import { NatsCluster } from '../support/cluster/nats-cluster.ts';
import { TestNats } from '../support/nats.ts';
import { seededRandom } from '../support/random.ts';

const MAKER = fileURLToPath(new URL('../support/topology-maker.ts', import.meta.url));
const SHARDS = 8;
const NODES = 5;
/** Each shard, the work queue, its consumer and four buckets. */
const STEPS = SHARDS + 6;

interface Settings {
  readonly shards?: number | undefined;
  readonly replicas?: number;
}

/** The streams that a node finds when it has started. */
async function start(url: string, settings: Settings = {}): Promise<string[]> {
  const { shards, replicas } = { shards: SHARDS, replicas: 1, ...settings };
  const connections = await connectNats(url, 'first start');
  try {
    const { manager, shards: found } = await ensureTopology(connections.appends, { shards, replicas });
    const names: string[] = [];
    for await (const name of manager.streams.names()) names.push(name);
    expect(names.filter((name) => name.startsWith('EVT_'))).toHaveLength(found);
    return names.toSorted();
  } finally {
    await closeNats(connections);
  }
}

async function together(url: string, settings: readonly Settings[]) {
  return await Promise.allSettled(settings.map(async (own) => await start(url, own)));
}

function wholeInstallation(shards: number): string[] {
  const events = Array.from({ length: shards }, (_, shard) => `EVT_${shard}`);
  return [...events, 'WORK', 'KV_DIRECTORY', 'KV_LEASE', 'KV_SECRETS', 'KV_SNAPSHOT'].toSorted();
}

/** A node in a process of its own, killed at the n-th thing that it makes. */
async function killedAt(url: string, { step, replicas = 1 }: { step: number; replicas?: number }): Promise<string> {
  const args = [MAKER, url, String(SHARDS), String(replicas), `topology.made=kill@${step}`];
  return await new Promise((resolve) => {
    execFile(process.execPath, args, (error, _stdout, stderr) => {
      resolve(error === null ? 'ended' : (error.signal ?? stderr));
    });
  });
}

test('five nodes that start together on a new server make one installation', async () => {
  for (let round = 0; round < 3; round++) {
    await using nats = await TestNats.start();
    const found = await together(
      nats.url,
      Array.from({ length: NODES }, () => ({})),
    );
    expect(found).toEqual(found.map(() => ({ status: 'fulfilled', value: wholeInstallation(SHARDS) })));
  }
});

test('five nodes that start together on three new servers make one installation', { timeout: 360_000 }, async () => {
  await using cluster = await NatsCluster.start();
  const settings = Array.from({ length: NODES }, () => ({ replicas: 3 }));
  const found = await together(cluster.urlThrough(), settings);
  expect(found).toEqual(found.map(() => ({ status: 'fulfilled', value: wholeInstallation(SHARDS) })));
  for (const name of wholeInstallation(SHARDS)) expect(await cluster.replicasOf(name), name).toBe(3);
});

test('whatever was made before a kill -9, the next start makes the rest', { timeout: 360_000 }, async () => {
  const random = seededRandom('first start');
  const steps = [1, 3, SHARDS, SHARDS + 1, SHARDS + 2, random.int(1, STEPS)];
  const lanes = await Promise.allSettled(
    steps.map(async (step) => {
      await using nats = await TestNats.start();
      expect({ step, end: await killedAt(nats.url, { step }) }).toEqual({ step, end: 'SIGKILL' });
      expect({ step, found: await start(nats.url) }).toEqual({ step, found: wholeInstallation(SHARDS) });
    }),
  );
  // Only now: the other lanes have servers of their own to end.
  for (const lane of lanes) if (lane.status === 'rejected') throw lane.reason;
});

test('nodes that start together while others are killed make one installation', { timeout: 360_000 }, async () => {
  await using cluster = await NatsCluster.start();
  const random = seededRandom('first start');
  const url = cluster.urlThrough();
  const killed = [random.int(1, SHARDS), random.int(1, SHARDS)];
  const ends = killed.map(async (step) => await killedAt(url, { step, replicas: 3 }));
  const found = await together(url, [{ replicas: 3 }, { replicas: 3 }, { replicas: 3 }]);
  await Promise.all(ends);
  expect(found).toEqual(found.map(() => ({ status: 'fulfilled', value: wholeInstallation(SHARDS) })));
});

test('of nodes that disagree, those with the number that came first start, the others are told it', async () => {
  await using nats = await TestNats.start();
  const numbers = seededRandom('first start').int(0, 1) === 0 ? [8, 3, 8, 3, 8] : [3, 8, 3, 8, 3];
  const wanted = numbers.map((shards) => ({ shards }));
  const found = await together(nats.url, wanted);
  const started = wanted.filter((_, n) => found[n]?.status === 'fulfilled');
  const [{ shards } = { shards: 0 }] = started;
  expect(started).toEqual(wanted.filter((own) => own.shards === shards));
  expect(await start(nats.url, { shards })).toEqual(wholeInstallation(shards));
  const advice = found.flatMap((outcome) => (outcome.status === 'rejected' ? [String(outcome.reason)] : []));
  expect(advice.length).toBeGreaterThan(0);
  for (const line of advice) expect(line).toMatch(new RegExp(`has ${shards} log shards.*set it to ${shards}\\.$`));
});

test('a first start that was cut short has the number that it was begun with', async () => {
  await using nats = await TestNats.start();
  await killedAt(nats.url, { step: 3 });
  await expect(start(nats.url, { shards: 3 })).rejects.toThrow(/has 8 log shards.*set it to 8\.$/);
  expect(await start(nats.url, { shards: undefined })).toEqual(wholeInstallation(SHARDS));
  expect(await start(nats.url)).toEqual(wholeInstallation(SHARDS));
});

test('nodes that say nothing of a number make four, and start on an installation as it is', async () => {
  await using nats = await TestNats.start();
  const silent = Array.from({ length: NODES }, () => ({ shards: undefined }));
  const found = await together(nats.url, silent);
  expect(found).toEqual(found.map(() => ({ status: 'fulfilled', value: wholeInstallation(4) })));
  // As every installation of 0.12 and before that was not told otherwise.
  await using old = await TestNats.start();
  await start(old.url, { shards: 1 });
  expect(await start(old.url, { shards: undefined })).toEqual(wholeInstallation(1));
});

test('streams of something else are no installation', async () => {
  await using nats = await TestNats.start();
  const connections = await connectNats(nats.url, 'another');
  const manager = await jetstreamManager(connections.appends);
  await manager.streams.add({ name: 'OTHER', subjects: ['evt.7.>'] });
  await closeNats(connections);
  await expect(start(nats.url, { shards: 1 })).rejects.toThrow(/a stream of something else on the subjects of the log/);
});

test.each([1, 2, 3, 33, 63, 64])('an installation of %i shards says so by its first stream', async (shards) => {
  await using nats = await TestNats.start();
  await start(nats.url, { shards });
  const other = shards === 64 ? 32 : shards + 1;
  await expect(start(nats.url, { shards: other })).rejects.toThrow(new RegExp(`has ${shards} log shards`));
});

test('a shard that an installation has lost is not made anew, empty', async () => {
  await using nats = await TestNats.start();
  await start(nats.url);
  const connections = await connectNats(nats.url, 'loss');
  const manager = await jetstreamManager(connections.appends);
  for (const name of ['EVT_5', 'EVT_0']) {
    await manager.streams.delete(name);
    await expect(start(nats.url)).rejects.toThrow(new RegExp(`lost the log shard ${name}`));
    expect(await manager.streams.names().next()).not.toContain(name);
  }
  await closeNats(connections);
});

import { setTimeout as pause } from 'node:timers/promises';
import type { ConsumerInfo, JetStreamManager } from '@nats-io/jetstream';
import { Kvm } from '@nats-io/kv';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openLog as openHostLog } from '#src/app/log.ts';
import { Metrics } from '#src/app/metrics/metrics.ts';
import { onFaultPoint } from '#src/lib/fault-points.ts';
import { JetStreamKeyValue } from '#src/streams/jetstream/key-value.ts';
import { LEASES } from '#src/streams/jetstream/topology.ts';
import type { KeyValue, KeyValueChange } from '#src/streams/key-value.ts';
import { keyValueConformance, newKey, told, watching } from '../conformance/key-value.ts';
import type { KeyValueFixture } from '../conformance/key-value.ts';
import { NatsCluster } from '../support/cluster/nats-cluster.ts';
import { TEST_HOST_KEY } from '../support/host-keys.ts';
import { openLog } from '../support/jetstream.ts';
import type { TestLog } from '../support/jetstream.ts';
import { capturedLog } from '../support/logger.ts';
import { TestNats } from '../support/nats.ts';
import { TcpProxy } from '../support/tcp-proxy.ts';
import { until } from '../support/wait-until.ts';

/** Long enough for a client to connect again and ask. */
const STANDS_STILL_MS = 2_000;
const disposables = new AsyncDisposableStack();
let nats: TestNats;
let nearby: TestLog;
let fixture: KeyValueFixture;
let directory: KeyValue;

const leasesOf = (log: TestLog): KeyValue =>
  new JetStreamKeyValue(log.connections.appends, { kv: log.topology.buckets.leases, ...LEASES });

beforeAll(async () => {
  nats = disposables.use(await TestNats.start());
  const log = disposables.use(await openLog(nats.url));
  nearby = log;
  directory = new JetStreamKeyValue(log.connections.appends, { kv: log.topology.buckets.directory, name: 'DIRECTORY' });
  const rival = leasesOf(disposables.use(await openLog(nats.url)));
  fixture = {
    ...{ leases: leasesOf(log), rival, directory },
    [Symbol.asyncDispose]: async () => await Promise.resolve(),
  };
});

afterAll(async () => {
  await disposables.disposeAsync();
});

keyValueConformance('on JetStream', async () => await Promise.resolve(fixture));

test('what was removed from a bucket whose markers expire leaves nothing behind, and may come again', async () => {
  const [markerMs, name] = [1_000, 'MARKERS'];
  const { connections, topology } = nearby;
  const kv = await new Kvm(connections.appends).create(name, { markerTTL: markerMs });
  const bucket = new JetStreamKeyValue(connections.appends, { kv, name, markerMs });
  const changes = await watching(bucket, 'worker');
  for (const key of ['worker.1', 'worker.2', 'worker.3']) {
    await bucket.swap(key, 'here', { expected: 0, ttlMs: 60_000 });
    await bucket.remove(key);
  }
  // While the marker is still there, too.
  const again = await bucket.swap('worker.3', 'again', { expected: 0 });
  expect(again).not.toBeNull();
  const left = async (): Promise<string[]> =>
    Object.keys((await topology.manager.streams.info(`KV_${name}`, { subjects_filter: '>' })).state.subjects ?? {});
  await until('the markers are gone', async () => (await left()).length === 1, 20_000);
  expect(await left()).toEqual([`$KV.${name}.worker.3`]);
  expect(await bucket.swap('worker.1', 'again', { expected: 0 })).not.toBeNull();
  await until('all is heard', () => changes.map(told).at(-1) === 'worker.1=again');
  expect(new Set(changes.map(told))).toEqual(
    new Set(
      ['1', '2', '3'].flatMap((n) => [`worker.${n}=here`, `-worker.${n}`]).concat('worker.3=again', 'worker.1=again'),
    ),
  );
});

test('a lease that a node gives up leaves a marker for a minute', async () => {
  const { logger } = capturedLog();
  const log = await openHostLog({
    ...{ url: nats.url, name: 'host', shards: undefined, replicas: 1, isLive: false },
    ...{ hostKey: TEST_HOST_KEY, metrics: new Metrics(), logger },
  });
  try {
    await log.leases.put('node.gone', 'here');
    await log.leases.remove('node.gone');
  } finally {
    await log.close();
  }
  const { streams } = nearby.topology.manager;
  const marker = await streams.getMessage('KV_LEASE', { last_by_subj: '$KV.LEASE.node.gone' });
  expect(marker?.header.get('Nats-TTL')).toBe('60s');
});

test.each(['all', 'the last'])(
  'a watch begins although %s of its first entries went before they were delivered',
  async (which) => {
    const prefix = newKey('gone').replace('.', '-');
    for (const n of [1, 2, 3]) await directory.put(`${prefix}.${n}.a`, String(n));
    const calm = onFaultPoint('watch.counted', async () => {
      await directory.erase(which === 'all' ? prefix : `${prefix}.3`);
    });
    const stop = new AbortController();
    try {
      const changes = await watching(directory, prefix, stop.signal);
      expect(changes.map(told)).toEqual(which === 'all' ? [] : [`${prefix}.1.a=1`, `${prefix}.2.a=2`]);
      await directory.put(`${prefix}.4.a`, '4');
      await until('what comes later is heard', () => changes.map(told).includes(`${prefix}.4.a=4`));
    } finally {
      calm();
      stop.abort();
    }
  },
);

test('a watch says which change could not be taken, also of those that were there, and hears of the others', async () => {
  await using own = await TestNats.start();
  await using log = await openLog(own.url);
  const untaken: string[] = [];
  const bucket = new JetStreamKeyValue(log.connections.appends, {
    kv: log.topology.buckets.directory,
    name: 'DIRECTORY',
    onUntaken: (key, error) => void untaken.push(`${key}: ${String(error)}`),
  });
  for (const [n, value] of ['{}', 'not JSON', '[]'].entries()) await bucket.put(`untaken.${n}`, value);
  const stop = new AbortController();
  const taken: string[] = [];
  await bucket.watch(
    'untaken',
    (change) => {
      if (change.kind === 'put') JSON.parse(change.entry.value);
      taken.push(told(change));
    },
    stop.signal,
  );
  expect(taken).toEqual(['untaken.0={}', 'untaken.2=[]']);
  for (const [n, value] of ['no more', '3'].entries()) await bucket.put(`untaken.later.${n}`, value);
  await until('what comes later is heard', () => taken.includes('untaken.later.1=3'));
  stop.abort();
  expect(untaken).toEqual([
    expect.stringMatching(/^untaken\.1: SyntaxError/),
    expect.stringMatching(/^untaken\.later\.0: SyntaxError/),
  ]);
});

test('a watch goes on after the server was killed, within a second of its return', { timeout: 180_000 }, async () => {
  const changes = await watching(directory, 'revoked');
  const tookMs = [];
  for (const round of ['a', 'b', 'c']) {
    await directory.put('revoked.1', round);
    await until('the first has come', () => changes.map(told).includes(`revoked.1=${round}`));
    await nats.kill();
    await expect(directory.get('revoked.1')).rejects.toMatchObject({ dependency: 'streams' });
    await nats.restart();
    await until('the server is back', async () => await directory.put('revoked.2', round).catch(() => undefined));
    const began = performance.now();
    await until('the second has come', () => changes.map(told).includes(`revoked.2=${round}`));
    tookMs.push(performance.now() - began);
    expect((await directory.get('revoked.1'))?.value).toBe(round);
  }
  // The middle one of three: in one the machine may have stood still.
  expect(tookMs.toSorted((a, b) => a - b)[1]).toBeLessThan(1_500);
});

/** The consumers of a bucket, as its server has them. */
async function consumersOf(manager: JetStreamManager, bucket: string): Promise<readonly ConsumerInfo[]> {
  const consumers: ConsumerInfo[] = [];
  for await (const consumer of manager.consumers.list(`KV_${bucket}`)) consumers.push(consumer);
  return consumers;
}

test('a watch has nothing on the disk of the server, and its end leaves nothing behind', async () => {
  const log = disposables.use(await openLog(nats.url));
  const { manager } = log.topology;
  const before = await consumersOf(manager, 'LEASE');
  const stop = new AbortController();
  const changes = await watching(leasesOf(log), 'short', stop.signal);
  const known = new Set(before.map(({ name }) => name));
  const own = (await consumersOf(manager, 'LEASE')).filter(({ name }) => !known.has(name));
  expect(own.map(({ config }) => config.mem_storage)).toEqual([true]);
  stop.abort();
  await until('its consumer is gone', async () =>
    (await consumersOf(manager, 'LEASE')).every(({ name }) => known.has(name)),
  );
  expect(changes).toEqual([]);
});

describe('a watch whose connection goes away', () => {
  const directoryOf = ({ connections, topology }: TestLog): KeyValue =>
    new JetStreamKeyValue(connections.appends, { kv: topology.buckets.directory, name: 'DIRECTORY' });

  /** Its four connections are back: one that was closed right after a cut was once seen to throw of a write after the end. */
  async function isBack({ connections: { appends, reads, live, consumers } }: TestLog): Promise<void> {
    for (const connection of [appends, reads, live, consumers]) {
      const answers = async () =>
        await connection.flush().then(
          () => true,
          () => false,
        );
      await until('the connection is back', answers);
    }
  }

  test('hears once of each change that came meanwhile, in their order', async () => {
    await using proxy = await TcpProxy.start(nats.port);
    await using log = await openLog(nats.urlThrough(proxy.port));
    const remote = directoryOf(log);
    await directory.put('away.1', 'before');
    const changes = await watching(remote, 'away');
    const rounds = ['a', 'b', 'c'];
    for (const [n, round] of rounds.entries()) {
      proxy.goAway();
      await directory.put('away.2', `first ${round}`);
      await directory.put('away.1', round);
      await directory.remove('away.2');
      proxy.pass();
      await until('what came last is heard', () => changes.length >= 1 + 2 * (n + 1));
    }
    await directory.put('away.1', 'after');
    await until('it is heard', () => changes.map(told).at(-1) === 'away.1=after');
    // Of two values of one key in between, a bucket keeps the newest.
    const newest = rounds.flatMap((round) => [`away.1=${round}`, '-away.2']);
    expect(changes.map(told)).toEqual(['away.1=before', ...newest, 'away.1=after']);
    await isBack(log);
  });

  test('hears that an entry has expired, also when nothing tells of it any more', async () => {
    await using proxy = await TcpProxy.start(nats.port);
    await using log = await openLog(nats.urlThrough(proxy.port));
    const [seconds, name] = [1_000, 'SHORT'];
    const kv = await new Kvm(log.connections.appends).create(name, { markerTTL: seconds });
    const remote = new JetStreamKeyValue(log.connections.appends, { kv, name });
    const own = new JetStreamKeyValue(nearby.connections.appends, {
      kv: await new Kvm(nearby.connections.appends).open(name),
      name,
    });
    for (const key of ['a.gone', 'a.gone-and-back']) await remote.swap(key, 'short', { expected: 0, ttlMs: seconds });
    await remote.put('a.stays', 'long');
    const changes = await watching(remote, 'a');
    expect(changes.map(told).toSorted()).toEqual(['a.gone-and-back=short', 'a.gone=short', 'a.stays=long']);
    proxy.goAway();
    const { manager } = nearby.topology;
    const subjects = async () =>
      Object.keys((await manager.streams.info(`KV_${name}`, { subjects_filter: '>' })).state.subjects ?? {});
    await until('their markers are gone, too', async () => (await subjects()).length === 1);
    await own.put('a.gone-and-back', 'new');
    proxy.pass();
    await until('it is heard', () => changes.map(told).includes('-a.gone'));
    await until('what came is heard', () => changes.map(told).includes('a.gone-and-back=new'));
    await own.put('a.stays', 'later');
    await until('what comes later, too', () => changes.map(told).at(-1) === 'a.stays=later');
    expect(changes).toHaveLength(6);
    await isBack(log);
  });

  test('is silent: its consumer is made again, although the connection was never away', async () => {
    await using log = await openLog(nats.url);
    const remote = directoryOf(log);
    const changes = await watching(remote, 'silent');
    for (const { name } of await consumersOf(log.topology.manager, 'DIRECTORY'))
      await log.topology.manager.consumers.delete('KV_DIRECTORY', name);
    await remote.put('silent.1', 'heard');
    await until('it is heard', () => changes.map(told).includes('silent.1=heard'), 15_000);
    await remote.put('silent.2', 'again');
    await until('what comes later, too', () => changes.map(told).at(-1) === 'silent.2=again');
    expect(changes).toHaveLength(2);
  });

  test('again and again while others write hears of everything once', async () => {
    await using proxy = await TcpProxy.start(nats.port);
    await using log = await openLog(nats.urlThrough(proxy.port));
    const changes = await watching(directoryOf(log), 'crowded');
    const written: string[] = [];
    let isOver = false;
    const write = async (): Promise<void> => {
      for (let n = 0; !isOver; n++) {
        await directory.put(`crowded.${n}`, 'x');
        written.push(`crowded.${n}=x`);
      }
    };
    const writing = write();
    try {
      for (let cut = 0; cut < 60; cut++) {
        proxy.cutAll();
        const before = changes.length;
        await until('it hears again', () => changes.length > before);
      }
    } finally {
      isOver = true;
      await writing;
    }
    await until('it has heard of all', () => changes.length >= written.length);
    expect(changes.map(told)).toEqual(written);
    await isBack(log);
  });

  test('again while it is being continued does not wait for what is never answered', async () => {
    await using own = await TestNats.start();
    await using proxy = await TcpProxy.start(own.port);
    await using log = await openLog(own.urlThrough(proxy.port));
    const remote = directoryOf(log);
    const changes = await watching(remote, 'flapping');
    proxy.holdRequestsWith('CONSUMER.CREATE');
    // Without it the server would still deliver to the consumer that there was.
    await own.kill();
    await own.restart();
    await pause(STANDS_STILL_MS);
    await using direct = await openLog(own.url);
    await directoryOf(direct).put('flapping.1', 'heard');
    expect(changes).toEqual([]);
    proxy.cutAll();
    proxy.pass();
    const began = performance.now();
    await until('it is heard', () => changes.length > 0);
    // The client waits for five seconds for an answer.
    expect(performance.now() - began).toBeLessThan(2_500);
    await directoryOf(direct).put('flapping.1', 'again');
    await until('what comes later, too', () => changes.length > 1);
    expect(changes.map(told)).toEqual(['flapping.1=heard', 'flapping.1=again']);
    await isBack(log);
  });

  test('hears of a stream that was made again meanwhile, whose numbers begin at 1', async () => {
    await using own = await TestNats.start();
    await using proxy = await TcpProxy.start(own.port);
    await using log = await openLog(own.urlThrough(proxy.port));
    const remote = directoryOf(log);
    for (const n of [1, 2, 3, 4, 5]) await remote.put(`made.${n}`, 'old');
    const changes = await watching(remote, 'made');
    expect(changes).toHaveLength(5);
    proxy.goAway();
    await using direct = await openLog(own.url);
    await direct.topology.manager.streams.delete('KV_DIRECTORY');
    await using made = await openLog(own.url);
    await directoryOf(made).put('made.1', 'new');
    proxy.pass();
    await until('the new one is heard', () => changes.map(told).includes('made.1=new'));
    await directoryOf(made).put('made.2', 'newer');
    await until('what comes later, too', () => changes.map(told).includes('made.2=newer'));
    const gone = [3, 4, 5].map((n) => `-made.${n}`);
    await until('what the new one does not have', () => gone.every((one) => changes.map(told).includes(one)));
    // The second was missing, too, for a moment.
    const since = changes.map(told).slice(5);
    expect(since.filter((one) => one !== '-made.2').toSorted()).toEqual([...gone, 'made.1=new', 'made.2=newer']);
    await isBack(log);
  });

  test('says why it cannot be continued', async () => {
    await using own = await TestNats.start();
    await using proxy = await TcpProxy.start(own.port);
    await using log = await openLog(own.urlThrough(proxy.port));
    const said: unknown[] = [];
    const { directory: kv } = log.topology.buckets;
    const remote = new JetStreamKeyValue(log.connections.appends, {
      kv,
      name: 'DIRECTORY',
      onContinued: (error) => void said.push(error),
    });
    await watching(remote, 'refused');
    proxy.cutAll();
    await until('it is continued', () => said.includes(null));
    await own.forbid('$JS.API.CONSUMER.CREATE.KV_DIRECTORY.>');
    proxy.cutAll();
    const why = await until('it says so', () => said.find((error) => error !== null));
    expect(why).toBeInstanceOf(Error);
    await isBack(log);
  });
});

test(
  'in a cluster a watch goes on when the server of its consumer was away and its own was not',
  { timeout: 180_000 },
  async () => {
    await using cluster = await NatsCluster.start();
    const [own] = cluster.servers;
    await using log = await openLog(cluster.urlThrough([own?.port ?? 0]), { replicas: 3 });
    const leases = leasesOf(log);
    const changes: KeyValueChange[] = [];
    // The cluster chooses where each of them is.
    const names = Array.from({ length: 6 }, (_, n) => `far-${n}`);
    for (const name of names)
      await leases.watch(name, (change) => void changes.push(change), new AbortController().signal);
    const leaders = (await consumersOf(log.topology.manager, 'LEASE')).map(({ cluster: where }) => where?.leader);
    const far = cluster.servers.find(({ name }) => name !== own?.name && leaders.includes(name));
    expect(leaders).toContain(far?.name);
    await far?.kill();
    const isHeard = async (value: string): Promise<void> => {
      for (const name of names) {
        const put = async () => (await leases.put(`${name}.1`, value).catch(() => null)) !== null;
        await until('a write is taken', put);
      }
      // Far sooner than the client would find out by itself: after a minute of silence.
      const heard = () => names.every((name) => changes.map(told).includes(`${name}.1=${value}`));
      await until('all of them have heard', heard, 20_000);
    };
    await isHeard('while it is away');
    await far?.start();
    await isHeard('with it again');
  },
);

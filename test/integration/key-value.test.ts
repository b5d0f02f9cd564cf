import { afterAll, beforeAll, expect, test } from 'vitest';
import { onFaultPoint } from '#src/lib/fault-points.ts';
import { JetStreamKeyValue } from '#src/streams/jetstream/key-value.ts';
import type { KeyValue } from '#src/streams/key-value.ts';
import { keyValueConformance, newKey, told, watching } from '../conformance/key-value.ts';
import type { KeyValueFixture } from '../conformance/key-value.ts';
import { openLog } from '../support/jetstream.ts';
import type { TestLog } from '../support/jetstream.ts';
import { TestNats } from '../support/nats.ts';
import { until } from '../support/wait-until.ts';

const disposables = new AsyncDisposableStack();
let nats: TestNats;
let fixture: KeyValueFixture;
let directory: KeyValue;

const leasesOf = (log: TestLog): KeyValue =>
  new JetStreamKeyValue(log.connections.appends, { kv: log.topology.buckets.leases, name: 'LEASE' });

beforeAll(async () => {
  nats = disposables.use(await TestNats.start());
  const log = disposables.use(await openLog(nats.url));
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

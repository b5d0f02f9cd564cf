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

test('a watch goes on after the server was killed, within a second of its return', async () => {
  const changes = await watching(directory, 'revoked');
  await directory.put('revoked.1', 'a');
  await until('the first has come', () => changes.length === 1);
  await nats.kill();
  await expect(directory.get('revoked.1')).rejects.toMatchObject({ dependency: 'streams' });
  await nats.restart();
  await until('the server is back', async () => await directory.put('revoked.2', 'b').catch(() => undefined), 15_000);
  const began = performance.now();
  await until('the second has come', () => changes.some((change) => told(change) === 'revoked.2=b'), 20_000);
  expect(performance.now() - began).toBeLessThan(1_500);
  expect((await directory.get('revoked.1'))?.value).toBe('a');
});

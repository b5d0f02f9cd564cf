import { glob, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { KeyObject } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { SealedSecrets } from '#src/drivers/secrets/sealed-secrets.ts';
import { newId } from '#src/lib/ids.ts';
import { closeNats, connectNats } from '#src/streams/jetstream/connection.ts';
import { ensureTopology } from '#src/streams/jetstream/topology.ts';
import { JetStreamKeyValue } from '#src/streams/jetstream/key-value.ts';
import type { KeyValue } from '#src/streams/key-value.ts';
import { WrongHostKeyError } from '#src/streams/host-key-check.ts';
import { Keyring } from '#src/streams/keyring.ts';
import { SealBrokenError, TenantErasedError } from '#src/streams/sealed-bytes.ts';
import { newHostKey, TEST_HOST_KEY } from '../support/host-keys.ts';
import { openLog } from '../support/jetstream.ts';
import { capturedLog } from '../support/logger.ts';
import type { LogLine } from '../support/logger.ts';
import { TestNats } from '../support/nats.ts';
import { overriding } from '../support/overriding.ts';
import { until } from '../support/wait-until.ts';

const disposables = new AsyncDisposableStack();
let nats: TestNats;

beforeAll(async () => {
  nats = disposables.use(await TestNats.start());
});

afterAll(async () => {
  await disposables.disposeAsync();
});

interface TestNode {
  readonly bucket: KeyValue;
  readonly keyring: Keyring;
  readonly secrets: SealedSecrets;
  readonly lines: readonly LogLine[];
}

async function bucketOf(): Promise<KeyValue> {
  return disposables.use(await openLog(nats.url)).secrets;
}

/** A process with its own connections; `started: false`: it is not told what others write, as if the news were late. */
async function node(options: { hostKey?: KeyObject; bucket?: KeyValue; started?: boolean } = {}): Promise<TestNode> {
  const { logger, lines } = capturedLog();
  const bucket = options.bucket ?? (await bucketOf());
  const keyring = new Keyring({ bucket, hostKey: options.hostKey ?? TEST_HOST_KEY, logger });
  disposables.defer(() => keyring.stop());
  if (options.started !== false) await keyring.start();
  return { bucket, keyring, secrets: new SealedSecrets(keyring, bucket), lines };
}

/** Which files of the server hold a text. */
async function filesWith(text: string): Promise<string[]> {
  const found: string[] = [];
  for await (const name of glob('jetstream/**', { cwd: nats.directory })) {
    const content = await readFile(join(nats.directory, name), 'latin1').catch(() => '');
    if (content.includes(text)) found.push(name);
  }
  return found;
}

/** A tenant whose data key has been made. */
async function newTenant(): Promise<string> {
  const { keyring } = await node();
  const tenant = newId('tn');
  await keyring.create(tenant);
  return tenant;
}

const valueOf = async (bucket: KeyValue, key: string): Promise<string> => (await bucket.get(key))?.value ?? '';
const secretEntry = (tenant: string, name: string): string =>
  `secret.${Buffer.from(tenant).toString('base64url')}.${Buffer.from(name).toString('base64url')}`;

describe('secrets', () => {
  test('come back on every node, by tenant and name, and go', async () => {
    const [here, there] = [await node(), await node()];
    const [one, other] = [await newTenant(), await newTenant()];
    await here.secrets.put(one, 'vault/a.b c', 'ä secret');
    await here.secrets.put(one, 'vault', 'another');
    await here.secrets.put(other, 'vault', 'of another tenant');
    expect(await there.secrets.get(one, 'vault/a.b c')).toBe('ä secret');
    expect(await there.secrets.get(one, 'vault')).toBe('another');
    expect(await there.secrets.get(other, 'vault')).toBe('of another tenant');
    expect(await there.secrets.get(other, 'vault/a.b c')).toBeNull();
    await there.secrets.put(one, 'vault', 'replaced');
    expect(await here.secrets.get(one, 'vault')).toBe('replaced');
    await here.secrets.remove(one, 'vault');
    await here.secrets.remove(one, 'vault');
    expect(await there.secrets.get(one, 'vault')).toBeNull();
    expect(await there.secrets.get(one, 'vault/a.b c')).toBe('ä secret');
    await here.secrets.put(one, 'empty', '');
    expect(await there.secrets.get(one, 'empty')).toBe('');
  });

  test('lie sealed, and what was removed is overwritten', async () => {
    const { secrets, bucket } = await node();
    const tenant = await newTenant();
    await secrets.put(tenant, 'name', 'planted-secret-text');
    expect(await filesWith('planted-secret-text')).toEqual([]);
    const sealed = await valueOf(bucket, secretEntry(tenant, 'name'));
    expect(await filesWith(sealed)).not.toEqual([]);
    await secrets.remove(tenant, 'name');
    expect(await filesWith(sealed)).toEqual([]);
  });

  test('that were changed, or moved to another tenant or name, do not open', async () => {
    const { secrets, bucket } = await node();
    const [one, other] = [await newTenant(), await newTenant()];
    await secrets.put(one, 'name', 'a secret');
    await secrets.put(other, 'name', 'another');
    const sealed = await valueOf(bucket, secretEntry(one, 'name'));
    const places: [string, string][] = [
      [one, 'other name'],
      [other, 'name'],
      [newId('tn'), 'name'],
    ];
    for (const [tenant, name] of places) {
      await bucket.put(secretEntry(tenant, name), sealed);
      await expect(secrets.get(tenant, name), `${tenant} ${name}`).rejects.toThrow(SealBrokenError);
    }
    const bytes = Buffer.from(sealed, 'base64');
    // Mark, key id, nonce, tag, ciphertext.
    for (const at of [0, 1, 8, 9, 20, 21, 36, 37, bytes.length - 1]) {
      const changed = Buffer.from(bytes);
      changed.writeUInt8(changed.readUInt8(at) ^ 1, at);
      await bucket.put(secretEntry(one, 'name'), changed.toString('base64'));
      await expect(secrets.get(one, 'name'), `byte ${at}`).rejects.toThrow(SealBrokenError);
    }
    for (const broken of ['', 'no base64 at all', bytes.subarray(0, 20).toString('base64')]) {
      await bucket.put(secretEntry(one, 'name'), broken);
      await expect(secrets.get(one, 'name'), broken).rejects.toThrow(SealBrokenError);
    }
    await bucket.put(secretEntry(one, 'name'), sealed);
    expect(await secrets.get(one, 'name')).toBe('a secret');
  });

  test('have bounds', async () => {
    const { secrets } = await node();
    const tenant = await newTenant();
    await expect(secrets.put(tenant, '', 'x')).rejects.toThrow(RangeError);
    await expect(secrets.put(tenant, 'n'.repeat(501), 'x')).rejects.toThrow(RangeError);
    await expect(secrets.put(tenant, 'name', 'x'.repeat(65_537))).rejects.toThrow(RangeError);
    await secrets.put(tenant, 'n'.repeat(500), 'x'.repeat(65_536));
    expect(await secrets.get(tenant, 'n'.repeat(500))).toHaveLength(65_536);
  });
});

describe('the Host key', () => {
  test('of an installation is the only one that starts it', async () => {
    await node();
    await expect(node({ hostKey: newHostKey() })).rejects.toThrow(WrongHostKeyError);
    const { secrets } = await node();
    await secrets.put(await newTenant(), 'still', 'works');
  });

  test('is settled by the first of many that start at once', async () => {
    await using own = await TestNats.start();
    const connections = await connectNats(own.url, 'test');
    disposables.defer(async () => await closeNats(connections));
    const { buckets } = await ensureTopology(connections.appends, { shards: 1, replicas: 1 });
    const bucket = new JetStreamKeyValue(connections.appends, { kv: buckets.secrets, name: 'SECRETS' });
    const keys = Array.from({ length: 8 }, (_, n) => (n % 2 === 0 ? TEST_HOST_KEY : newHostKey()));
    const started = await Promise.allSettled(keys.map(async (hostKey) => await node({ hostKey, bucket })));
    const winners = new Set(keys.filter((_, n) => started[n]?.status === 'fulfilled'));
    expect(winners.size).toBe(1);
    const refusals = started.flatMap((one) => (one.status === 'rejected' ? [one.reason as unknown] : []));
    expect(refusals.length).toBeGreaterThanOrEqual(4);
    for (const refusal of refusals) expect(refusal).toBeInstanceOf(WrongHostKeyError);
  });
});

describe('data keys', () => {
  test('are made once, however many nodes want one at the same time', async () => {
    const nodes = await Promise.all(Array.from({ length: 6 }, async () => await node()));
    for (let round = 0; round < 10; round++) {
      const tenant = newId('tn');
      const keys = await Promise.all([
        ...nodes.map(async ({ keyring }) => {
          await keyring.create(tenant);
          return await keyring.obtain(tenant);
        }),
      ]);
      expect(new Set(keys.map(({ id }) => id)).size).toBe(1);
      expect(new Set(keys.map(({ key }) => key.export().toString('hex'))).size).toBe(1);
    }
  });

  test('of other nodes are at hand without asking, and asked for when the news is late', async () => {
    const [here, there, deaf] = [await node(), await node(), await node({ started: false })];
    const tenant = newId('tn');
    await here.keyring.create(tenant);
    const sealed = here.keyring.seal(tenant, 'place', Buffer.from('text')) ?? Buffer.alloc(0);
    await until('the other node has heard of it', () => there.keyring.knows(sealed));
    expect(there.keyring.open(tenant, 'place', sealed).toString()).toBe('text');
    expect(() => deaf.keyring.open(tenant, 'place', sealed)).toThrow(SealBrokenError);
    await deaf.keyring.fetch(tenant, sealed);
    expect(deaf.keyring.open(tenant, 'place', sealed).toString()).toBe('text');
    const late = await node();
    expect(late.keyring.open(tenant, 'place', sealed).toString()).toBe('text');
  });

  test('lie wrapped; one that was tampered with or moved is an alarm, not a new key', async () => {
    const { keyring, bucket } = await node();
    const [one, other] = [await newTenant(), newId('tn')];
    const key = await keyring.obtain(one);
    const entry = await valueOf(bucket, `key.${one}`);
    expect(Buffer.from((JSON.parse(entry) as { wrapped: string }).wrapped, 'base64').includes(key.key.export())).toBe(
      false,
    );
    await bucket.put(`key.${other}`, entry);
    const late = await node();
    await expect(late.keyring.obtain(other)).rejects.toThrow(SealBrokenError);
    expect(JSON.stringify(late.lines)).toContain('ALARM');
    expect(await valueOf(bucket, `key.${other}`)).toBe(entry);
    await bucket.remove(`key.${other}`);
  });

  test('a key that is missing is broken, not erased; nothing is opened with a new one', async () => {
    const [here, there] = [await node(), await node({ started: false })];
    const tenant = await newTenant();
    const sealed = await here.keyring.sealText(tenant, 'place', 'text');
    await here.bucket.shred(`key.${tenant}`);
    await expect(there.keyring.openText(tenant, 'place', sealed)).rejects.toThrow(SealBrokenError);
    await expect(there.keyring.obtain(tenant)).rejects.toThrow(SealBrokenError);
    expect(await here.bucket.get(`key.${tenant}`)).toBeNull();
  });
});

describe('a destroyed key', () => {
  test('is overwritten on disk, over a crash of the server too, and known as erased on every node', async () => {
    const [here, there] = [await node(), await node()];
    const tenant = await newTenant();
    const sealed = await here.keyring.sealText(tenant, 'place', 'text');
    const bytes = Buffer.from(sealed, 'base64');
    await here.secrets.put(tenant, 'name', 'secret');
    const entry = await valueOf(here.bucket, `key.${tenant}`);
    const { wrapped } = JSON.parse(entry) as { wrapped: string };
    expect(await filesWith(wrapped)).not.toEqual([]);
    const heard: string[] = [];
    there.keyring.onErased((of) => heard.push(of));
    await here.keyring.destroy(tenant);
    await here.keyring.destroy(tenant);
    expect(await filesWith(wrapped)).toEqual([]);
    await until('the other node has heard of it', () => heard.includes(tenant));
    for (const { keyring, secrets } of [here, there, await node()]) {
      expect(keyring.open(tenant, 'place', bytes)).toBe('erased');
      expect(await keyring.openText(tenant, 'place', sealed)).toBeNull();
      expect(await secrets.get(tenant, 'name')).toBeNull();
      await expect(keyring.obtain(tenant)).rejects.toThrow(TenantErasedError);
      await expect(keyring.create(tenant)).rejects.toThrow(TenantErasedError);
      expect(keyring.unfinished).toContain(tenant);
    }
    await nats.kill();
    expect(await filesWith(wrapped)).toEqual([]);
    await nats.restart();
    await until('the server is back', async () => await here.bucket.put('back', '1').catch(() => undefined));
    expect(await filesWith(wrapped)).toEqual([]);
  });

  test('is followed by another one only for a new tenant of the same id, once the deletion is done', async () => {
    const [here, there, deaf] = [await node(), await node(), await node({ started: false })];
    const tenant = await newTenant();
    const sealed = await deaf.keyring.sealText(tenant, 'place', 'text');
    await here.keyring.destroy(tenant);
    await here.keyring.finish(tenant);
    expect(here.keyring.unfinished).not.toContain(tenant);
    await expect(here.keyring.obtain(tenant)).rejects.toThrow(TenantErasedError);
    // One that still has the old key in memory does not take it for that of the new tenant.
    await deaf.keyring.create(tenant);
    const again = await deaf.keyring.sealText(tenant, 'place', 'again');
    expect(await there.keyring.openText(tenant, 'place', again)).toBe('again');
    expect(await there.keyring.openText(tenant, 'place', sealed)).toBeNull();
    await there.keyring.destroy(tenant);
    expect(await there.keyring.openText(tenant, 'place', again)).toBeNull();
    expect(await there.keyring.openText(tenant, 'place', sealed)).toBeNull();
  });

  test.each(['swap', 'shred'] as const)(
    'that was half destroyed (%s failed) is destroyed by the next try',
    async (step) => {
      const bucket = await bucketOf();
      const away = async (): Promise<never> => await Promise.reject(new Error('away'));
      const failing = await node({ bucket: overriding(bucket, { [step]: away }), started: false });
      const { keyring } = await node();
      const tenant = await newTenant();
      const sealed = await keyring.sealText(tenant, 'place', 'text');
      const { wrapped } = JSON.parse(await valueOf(bucket, `key.${tenant}`)) as { wrapped: string };
      await expect(failing.keyring.destroy(tenant)).rejects.toThrow('away');
      expect(await filesWith(wrapped)).not.toEqual([]);
      await keyring.destroy(tenant);
      expect(await filesWith(wrapped)).toEqual([]);
      expect(await keyring.openText(tenant, 'place', sealed)).toBeNull();
      expect(await (await node()).keyring.openText(tenant, 'place', sealed)).toBeNull();
    },
  );

  test('of a tenant that never had one is a tombstone', async () => {
    const { keyring } = await node();
    const tenant = newId('tn');
    await keyring.destroy(tenant);
    await expect(keyring.obtain(tenant)).rejects.toThrow(TenantErasedError);
    await keyring.finish(tenant);
    await keyring.create(tenant);
    expect((await keyring.obtain(tenant)).id).toMatch(/^[0-9a-f]{16}$/);
  });
});

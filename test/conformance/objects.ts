import { randomBytes } from 'node:crypto';
import type { Readable } from 'node:stream';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { beforeAll, describe, expect, test } from 'vitest';
import type { ObjectAddress, ObjectStore, StoredObject } from '#src/drivers/objects/port.ts';
import { newId } from '#src/lib/ids.ts';

/** A full collection, now. */
function collect(): void {
  setFlagsFromString('--expose-gc');
  runInNewContext('gc()');
}

export async function* chunks(...parts: readonly Uint8Array[]): AsyncIterable<Uint8Array> {
  for (const part of parts) yield await Promise.resolve(part);
}

export async function bytesOf(stream: Readable | null): Promise<Buffer | null> {
  if (stream === null) return null;
  const parts: Buffer[] = [];
  for await (const part of stream) parts.push(Buffer.from(part));
  return Buffer.concat(parts);
}

export async function listed(store: ObjectStore, of: string): Promise<StoredObject[]> {
  const found: StoredObject[] = [];
  for await (const page of store.list()) found.push(...page.filter((object) => object.tenant === of));
  return found.toSorted((a, b) => (`${a.owner}/${a.name}` < `${b.owner}/${b.name}` ? -1 : 1));
}

/**
 * What every store of objects does, whatever it keeps them in.
 * @param inMemory the bytes themselves are in the memory of this process
 */
export function objectSuite(open: () => Promise<ObjectStore>, { inMemory = false } = {}): void {
  let store: ObjectStore;
  beforeAll(async () => {
    store = await open();
  });

  const address = (over: Partial<ObjectAddress> = {}): ObjectAddress => ({
    tenant: newId('tn'),
    owner: 'af_1',
    name: 'up_1',
    ...over,
  });

  test('it says that it works', async () => {
    expect(await store.check()).toBeUndefined();
  });

  test.each([0, 1, 65_536, 5 * 1_048_576, 5 * 1_048_576 + 1, 12 * 1_048_576])(
    'what was put is what is read, %i bytes',
    async (size) => {
      const at = address();
      const bytes = randomBytes(size);
      const parts = Array.from({ length: Math.ceil(size / 300_000) }, (_, i) =>
        bytes.subarray(i * 300_000, (i + 1) * 300_000),
      );
      expect(await store.put(at, chunks(...parts))).toBe(size);
      const read = await bytesOf(await store.open(at));
      expect(read?.equals(bytes)).toBe(true);
      const [entry] = await listed(store, at.tenant);
      expect(entry).toMatchObject({ ...at, bytes: size });
      expect(Math.abs((entry?.modifiedAtMs ?? 0) - Date.now())).toBeLessThan(60_000);
      await store.eraseTenant(at.tenant);
    },
  );

  test('ranges, both ends included', async () => {
    const at = address();
    await store.put(at, chunks(Buffer.from('0123'), Buffer.from('456789')));
    for (const [first, last] of [
      [0, 0],
      [0, 9],
      [9, 9],
      [3, 4],
      [4, 7],
    ] as const) {
      const read = await bytesOf(await store.open(at, { first, last }));
      expect(read?.toString()).toBe('0123456789'.slice(first, last + 1));
    }
  });

  test('an object that is put again replaces the one before', async () => {
    const at = address();
    await store.put(at, chunks(Buffer.from('one')));
    await store.put(at, chunks(Buffer.from('another')));
    expect((await bytesOf(await store.open(at)))?.toString()).toBe('another');
    expect(await listed(store, at.tenant)).toHaveLength(1);
  });

  test('what is not there is null to read and no error to remove', async () => {
    const at = address();
    expect(await store.open(at)).toBeNull();
    expect(await store.open(at, { first: 0, last: 1 })).toBeNull();
    await store.remove(at);
    await store.removeOwner(at.tenant, at.owner);
    await store.eraseTenant(at.tenant);
    expect(await listed(store, at.tenant)).toEqual([]);
  });

  test('removing takes one object, one owner, or one tenant, and nothing beside it', async () => {
    const [one, other] = [newId('tn'), newId('tn')];
    // Names of which one is the beginning of another.
    const all = [one, other].flatMap((of) =>
      ['af_1', 'af_11', 'af_2'].flatMap((owner) => ['a', 'ab'].map((name) => ({ tenant: of, owner, name }))),
    );
    for (const at of all) await store.put(at, chunks(Buffer.from('x')));
    const left = async (of: string): Promise<string[]> =>
      (await listed(store, of)).map(({ owner, name }) => `${owner}/${name}`);
    await store.remove({ tenant: one, owner: 'af_1', name: 'a' });
    expect(await left(one)).toEqual(['af_1/ab', 'af_11/a', 'af_11/ab', 'af_2/a', 'af_2/ab']);
    await store.removeOwner(one, 'af_1');
    expect(await left(one)).toEqual(['af_11/a', 'af_11/ab', 'af_2/a', 'af_2/ab']);
    await store.eraseTenant(one);
    expect(await left(one)).toEqual([]);
    expect(await left(other)).toHaveLength(6);
    await store.eraseTenant(other);
  });

  describe('a write that does not end', () => {
    const cases = [0, 100, 6 * 1_048_576];

    test.each(cases)('a source that fails after %i bytes leaves nothing, and its error is thrown', async (size) => {
      const at = address();
      const failure = new Error('the sender went away');
      async function* broken(): AsyncIterable<Uint8Array> {
        if (size > 0) yield await Promise.resolve(randomBytes(size));
        throw failure;
      }
      await expect(store.put(at, broken())).rejects.toBe(failure);
      expect(await store.open(at)).toBeNull();
      expect(await listed(store, at.tenant)).toEqual([]);
    });

    test.each(cases)('a signal after %i bytes leaves nothing', async (size) => {
      const at = address();
      const controller = new AbortController();
      async function* ended(): AsyncIterable<Uint8Array> {
        yield await Promise.resolve(randomBytes(size));
        controller.abort(new Error('enough'));
        yield randomBytes(10);
      }
      await expect(store.put(at, ended(), { signal: controller.signal })).rejects.toThrow('enough');
      expect(await store.open(at)).toBeNull();
      expect(await listed(store, at.tenant)).toEqual([]);
    });

    test('it leaves what was there before', async () => {
      const at = address();
      await store.put(at, chunks(Buffer.from('before')));
      async function* broken(): AsyncIterable<Uint8Array> {
        yield await Promise.resolve(randomBytes(7 * 1_048_576));
        throw new Error('broken');
      }
      await expect(store.put(at, broken())).rejects.toThrow('broken');
      expect((await bytesOf(await store.open(at)))?.toString()).toBe('before');
    });
  });

  test('a source is read no faster than it can be written', async () => {
    const at = address();
    let taken = 0;
    let written = 0;
    let peak = 0;
    // Each chunk is memory of its own. What has been sent and not been collected yet is nobody's any more.
    const held = (): number => {
      collect();
      return process.memoryUsage().arrayBuffers;
    };
    const before = held();
    async function* counted(): AsyncIterable<Uint8Array> {
      for (; taken < 64; taken += 1) {
        yield await Promise.resolve(randomBytes(1_048_576));
        written += 1;
        if (written % 4 === 0) peak = Math.max(peak, held() - before);
      }
    }
    expect(await store.put(at, counted())).toBe(64 * 1_048_576);
    expect([taken, written]).toEqual([64, 64]);
    // S3 holds the parts that are under way, of 5 MiB each; 8 and 13 MiB were seen.
    expect(peak, 'bytes in memory').toBeLessThan((inMemory ? 64 + 24 : 24) * 1_048_576);
    await store.eraseTenant(at.tenant);
  });

  test('addresses that could mean another place are refused', async () => {
    for (const bad of ['', '.', '..', 'a/b', '/a', 'a\\b', 'a\0', 'ä', 'x'.repeat(129)]) {
      await expect(store.open(address({ name: bad }))).rejects.toThrow('malformed');
      await expect(store.put(address({ owner: bad }), chunks())).rejects.toThrow('malformed');
      await expect(store.eraseTenant(bad)).rejects.toThrow('malformed');
    }
  });

  test('many at the same time', async () => {
    const of = newId('tn');
    const bodies = Array.from({ length: 40 }, (_, i) => ({ name: `up_${i}`, bytes: randomBytes(1_000 * i) }));
    await Promise.all(
      bodies.map(async ({ name, bytes }) => await store.put({ tenant: of, owner: 'af_1', name }, chunks(bytes))),
    );
    for (const { name, bytes } of bodies) {
      expect((await bytesOf(await store.open({ tenant: of, owner: 'af_1', name })))?.equals(bytes)).toBe(true);
    }
    await store.eraseTenant(of);
  });
}

import dns from 'node:dns';
import { once } from 'node:events';
import { chmod, mkdir, mkdtemp, readdir, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  AbortMultipartUploadCommand,
  CreateMultipartUploadCommand,
  ListMultipartUploadsCommand,
  PutObjectCommand,
  S3Client,
} from '@aws-sdk/client-s3';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { directoryObjects } from '#src/drivers/objects/directory.ts';
import { MemoryObjects } from '#src/drivers/objects/memory.ts';
import { s3Objects } from '#src/drivers/objects/s3.ts';
import { systemClock } from '#src/lib/clock.ts';
import { delay } from '#src/lib/backoff.ts';
import { newId } from '#src/lib/ids.ts';
import { bytesOf, chunks, listed, objectSuite } from '../conformance/objects.ts';
import { TestS3 } from '../support/s3.ts';
import { TcpProxy } from '../support/tcp-proxy.ts';
import { until } from '../support/wait-until.ts';

describe('memory', () => {
  objectSuite(async () => await Promise.resolve(new MemoryObjects(systemClock)), { inMemory: true });
});

/** More than what sockets, pipes and streams between a store and its reader hold. */
const LARGE_BYTES = 33_554_432;
const AT = { tenant: 'tn_1', owner: 'af_1', name: 'up_1' };

describe('a directory', () => {
  let root = '';
  beforeAll(async () => {
    root = await mkdtemp(join(tmpdir(), 'agent-host-objects-'));
  });
  afterAll(async () => await rm(root, { recursive: true, force: true }));

  objectSuite(async () => await directoryObjects(root));

  test('is closed to other accounts of the machine, also one that was open to them', async () => {
    const modeOf = async (path: string): Promise<number> => (await stat(path)).mode & 0o777;
    const made = join(root, 'made/by/us');
    await directoryObjects(made);
    expect(await modeOf(made)).toBe(0o700);
    const open = join(root, 'open');
    await mkdir(open);
    await chmod(open, 0o775);
    const store = await directoryObjects(open);
    expect(await modeOf(open)).toBe(0o770);
    await store.put(AT, chunks(Buffer.from('x')));
    for (const path of ['tn_1', 'tn_1/af_1', '.unfinished']) expect(await modeOf(join(open, path)), path).toBe(0o700);
    expect(await modeOf(join(open, 'tn_1/af_1/up_1'))).toBe(0o600);
  });

  test('what an interrupted write has left goes when it is old, and with its tenant', async () => {
    const store = await directoryObjects(root);
    const unfinished = join(root, '.unfinished');
    for (const name of ['tn_9.old', 'tn_9.young', 'tn_8.young']) await writeFile(join(unfinished, name), 'half');
    await utimes(join(unfinished, 'tn_9.old'), 1, 1);
    expect(await store.removeUnfinished(Date.now() - 60_000)).toBe(1);
    expect((await readdir(unfinished)).toSorted()).toEqual(['tn_8.young', 'tn_9.young']);
    await store.eraseTenant('tn_9');
    expect(await readdir(unfinished)).toEqual(['tn_8.young']);
  });

  test('a disk that does not take the bytes is the store being unavailable', async () => {
    const store = await directoryObjects(join(root, 'broken'));
    await rm(join(root, 'broken', '.unfinished'), { recursive: true });
    await expect(store.put(AT, chunks(Buffer.from('x')))).rejects.toMatchObject({ dependency: 'objects' });
    expect(await store.open(AT)).toBeNull();
    await rm(join(root, 'broken'), { recursive: true });
    await expect(store.check()).rejects.toMatchObject({ dependency: 'objects' });
  });
});

describe('S3', () => {
  let server: TestS3;
  beforeAll(async () => {
    server = await TestS3.start();
  });
  afterAll(async () => await server[Symbol.asyncDispose]());

  objectSuite(async () => await Promise.resolve(s3Objects(server.options())));

  test('the name of the bucket in front of the host', async () => {
    const { endpoint, ...options } = server.options();
    // Every name below localhost is this machine (RFC 6761), which not every resolver knows.
    const { lookup } = dns;
    const resolving = vi
      .spyOn(dns, 'lookup')
      .mockImplementation(((name: string, ...rest: never[]) =>
        Reflect.apply(lookup, dns, [name.endsWith('.localhost') ? 'localhost' : name, ...rest])) as never);
    const store = s3Objects({ ...options, endpoint: endpoint.replace('127.0.0.1', 'localhost'), pathStyle: false });
    await store.put(AT, chunks(Buffer.from('virtual')));
    expect((await bytesOf(await s3Objects(server.options()).open(AT)))?.toString()).toBe('virtual');
    expect(resolving.mock.calls.map(([name]) => name)).toContain('agent-host-objects.localhost');
    resolving.mockRestore();
    store.close();
  });

  test('writes share a bounded memory, and one tenant leaves some of it to others', async () => {
    const WRITE = 10 * 1_048_576;
    const store = s3Objects({ ...server.options(), bufferBytesMax: 4 * WRITE });
    const started: string[] = [];
    const gone = new AbortController();
    async function* slow(name: string): AsyncIterable<Uint8Array> {
      started.push(name);
      yield Buffer.from('x');
      await once(gone.signal, 'abort');
    }
    const [greedy, other] = [newId('tn'), newId('tn')];
    const writes = Array.from(
      { length: 8 },
      async (_, n) =>
        await store.put({ tenant: greedy, owner: 'af_1', name: `up_${n}` }, slow(`greedy ${n}`), {
          signal: gone.signal,
        }),
    ).map(async (write) => await write.catch((error: unknown) => error));
    await until('its share is taken', () => started.length === 2);
    // Another tenant's writes go through beside it, one after the other and two at a time.
    for (let n = 0; n < 4; n++) {
      const at = { tenant: other, owner: 'af_2', name: `up_${n}` };
      expect(await store.put(at, chunks(Buffer.alloc(100_000)))).toBe(100_000);
      expect(await store.put(at, chunks(Buffer.alloc(100)), { declaredBytes: 100 })).toBe(100);
    }
    expect(started).toEqual(['greedy 0', 'greedy 1']);
    gone.abort(new Error('given up'));
    for (const outcome of await Promise.all(writes)) expect(outcome).toMatchObject({ message: 'given up' });
    // What was held is free again, and what only waited never began.
    expect(started).toHaveLength(2);
    expect(await store.put({ tenant: greedy, owner: 'af_1', name: 'up_9' }, chunks(Buffer.from('y')))).toBe(1);
    store.close();
  });

  test('readers that take nothing of what they opened keep no other request from the store', async () => {
    const store = s3Objects(server.options());
    const at = { ...AT, name: 'up_unread' };
    await store.put(at, chunks(Buffer.alloc(1_048_576)));
    // As many as the driver has connections for.
    const bodies = await Promise.all(Array.from({ length: 256 }, async () => await store.open(at)));
    const other = { ...AT, name: 'up_beside' };
    const outcomes = await Promise.allSettled([
      store.check(),
      store.put(other, chunks(Buffer.from('x'))),
      store.remove({ ...AT, name: 'up_absent' }),
      listed(store, AT.tenant),
    ]);
    expect(outcomes.filter(({ status }) => status === 'rejected')).toEqual([]);
    for (const body of bodies) body?.destroy();
    store.close();
  });

  test('a bucket that is not there, and a server that is not there', async () => {
    const options = server.options();
    const wrong = [
      { ...options, bucket: 'absent-bucket' },
      { ...options, endpoint: 'http://127.0.0.1:1' },
    ];
    for (const one of wrong) {
      const store = s3Objects(one);
      await expect(store.check(), JSON.stringify(one)).rejects.toMatchObject({ dependency: 'objects' });
      await expect(store.put(AT, chunks(Buffer.from('x')))).rejects.toMatchObject({ dependency: 'objects' });
    }
  });

  test('parts that an interrupted write has left go when they are old, and with their tenant', async () => {
    const { bucket: Bucket, endpoint, region, credentials } = server.options();
    const client = new S3Client({ endpoint, region, credentials, forcePathStyle: true });
    const store = s3Objects(server.options());
    const [one, other] = [newId('tn'), newId('tn')];
    for (const tenant of [one, other]) {
      await client.send(new CreateMultipartUploadCommand({ Bucket, Key: `${tenant}/af_1/up_1` }));
    }
    const left = async (): Promise<number> =>
      (await client.send(new ListMultipartUploadsCommand({ Bucket }))).Uploads?.length ?? 0;
    const before = await left();
    await store.eraseTenant(one);
    expect(await left()).toBe(before - 1);
    expect(await store.removeUnfinished(Date.parse('2000-01-01'))).toBe(0);
    expect(await store.removeUnfinished(Date.now() + 86_400_000)).toBe(before - 1);
    expect(await left()).toBe(0);
    client.destroy();
  });

  test('what others keep in the same bucket is neither told of nor touched', async () => {
    const { bucket: Bucket, endpoint, region, credentials } = server.options();
    const client = new S3Client({ endpoint, region, credentials, forcePathStyle: true });
    const store = s3Objects(server.options());
    const at = { ...AT, tenant: newId('tn') };
    const keys = [
      'logs/af_x/2024.gz',
      'logs/af_x/2024',
      'tn_1/af_x/up_1',
      `${at.tenant}/af_x/2024.gz`,
      `${at.tenant}/af_x/a/b`,
      `x/${at.tenant}/af_1/up_1`,
    ];
    for (const Key of keys) {
      await client.send(new PutObjectCommand({ Bucket, Key, Body: 'x' }));
      await client.send(new CreateMultipartUploadCommand({ Bucket, Key }));
    }
    await store.put(at, chunks(Buffer.from('ours')));
    await client.send(new CreateMultipartUploadCommand({ Bucket, Key: `${at.tenant}/af_1/up_2` }));
    const seen = await Promise.all(['logs', 'tn_1', 'x'].map(async (of) => await listed(store, of)));
    expect(seen).toEqual([[], [], []]);
    expect(await listed(store, at.tenant)).toMatchObject([at]);
    expect(await store.removeUnfinished(Date.now() + 86_400_000)).toBe(1);
    const { Uploads = [] } = await client.send(new ListMultipartUploadsCommand({ Bucket }));
    expect(new Set(Uploads.map(({ Key }) => Key))).toEqual(new Set(keys));
    for (const { Key, UploadId } of Uploads)
      await client.send(new AbortMultipartUploadCommand({ Bucket, Key, UploadId }));
    client.destroy();
    store.close();
  });

  test('the network goes in the middle of a write, and comes back', async () => {
    await using proxy = await TcpProxy.start(server.port);
    const store = s3Objects(server.options(proxy.port));
    const at = { ...AT, name: 'up_cut' };
    async function* cut(): AsyncIterable<Uint8Array> {
      for (let i = 0; i < 24; i += 1) {
        if (i === 12) proxy.goAway();
        yield await Promise.resolve(Buffer.alloc(1_048_576, i));
      }
    }
    await expect(store.put(at, cut())).rejects.toMatchObject({ dependency: 'objects' });
    proxy.pass();
    expect(await store.open(at)).toBeNull();
    expect(await store.put(at, chunks(Buffer.from('again')))).toBe(5);
    expect((await bytesOf(await store.open(at)))?.toString()).toBe('again');
    store.close();
  });

  describe('and the network stands still', () => {
    const SILENCE_MS = 2_000;
    /** Three tries, and what the library waits between them. */
    const BOUND_MS = 20_000;
    const unavailable = { dependency: 'objects' };
    const begun = () => {
      const startedMs = performance.now();
      return { inTime: () => expect(performance.now() - startedMs).toBeLessThan(BOUND_MS) };
    };

    test('every request ends as the store being unavailable, and the next ones go through', async () => {
      await using proxy = await TcpProxy.start(server.port);
      const store = s3Objects({ ...server.options(proxy.port), silenceMs: SILENCE_MS });
      const at = { ...AT, name: 'up_silent' };
      // What is held back may arrive later.
      const other = { ...AT, name: 'up_other' };
      await store.put(at, chunks(Buffer.from('before')));
      proxy.hold();
      const { inTime } = begun();
      await Promise.all([
        expect(store.check()).rejects.toMatchObject(unavailable),
        expect(store.put(other, chunks(Buffer.from('x')))).rejects.toMatchObject(unavailable),
        expect(store.open(at)).rejects.toMatchObject(unavailable),
        expect(store.remove(other)).rejects.toMatchObject(unavailable),
        expect(listed(store, at.tenant)).rejects.toMatchObject(unavailable),
      ]);
      inTime();
      proxy.pass();
      expect((await bytesOf(await store.open(at)))?.toString()).toBe('before');
      store.close();
    });

    test('in the middle of a body, its reader is told so', async () => {
      await using proxy = await TcpProxy.start(server.port);
      const store = s3Objects({ ...server.options(proxy.port), silenceMs: SILENCE_MS });
      const at = { ...AT, name: 'up_half' };
      await s3Objects(server.options()).put(at, chunks(Buffer.alloc(LARGE_BYTES)));
      const body = await store.open(at);
      proxy.hold(['replies']);
      const { inTime } = begun();
      await expect(bytesOf(body)).rejects.toMatchObject(unavailable);
      inTime();
      proxy.pass();
      store.close();
    });

    test('a reader that takes longer than that for what it has loses nothing', async () => {
      const store = s3Objects({ ...server.options(), silenceMs: SILENCE_MS });
      const at = { ...AT, name: 'up_slow' };
      await s3Objects(server.options()).put(at, chunks(Buffer.alloc(LARGE_BYTES, 7)));
      const body = await store.open(at);
      let bytes = 0;
      for await (const chunk of body ?? []) {
        // The time that passes is what is tested.
        if (bytes === 0) await delay(3 * SILENCE_MS);
        bytes += Buffer.from(chunk as Uint8Array).length;
      }
      expect(bytes).toBe(LARGE_BYTES);
      store.close();
    });
  });
});

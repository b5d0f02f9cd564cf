import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { connect } from 'node:net';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { ready } from '#src/http/wire/schemas.ts';
import { newSession, newTenant, refused } from '../conformance/http/target.ts';
import type { HttpTarget } from '../conformance/http/target.ts';
import { ArtifactClient } from '../support/artifacts.ts';
import { AdminClient, send } from '../support/client.ts';
import type { Answer } from '../support/client.ts';
import { startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { seededRandom } from '../support/random.ts';
import { TestS3 } from '../support/s3.ts';
import { TcpProxy } from '../support/tcp-proxy.ts';
import { until } from '../support/wait-until.ts';

const MIB = 1_048_576;
const SETTLED_MS = 30_000;
const BROKEN = 'HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\nconnection: close\r\n\r\n';

describe('the object store goes away', () => {
  let s3: TestS3;
  let proxy: TcpProxy;
  let host: Host;
  let target: HttpTarget;

  beforeAll(async () => {
    s3 = await TestS3.start();
    proxy = await TcpProxy.start(s3.port);
    host = await startHost({ env: { ...s3.environment(proxy.port), AGENT_HOST_OPERATION_SECONDS: '1' } });
    target = { adminKey: host.adminKey, nodes: [host, host] };
  });

  afterAll(async () => {
    await host[Symbol.asyncDispose]();
    await proxy[Symbol.asyncDispose]();
    await s3[Symbol.asyncDispose]();
  });

  afterEach(() => proxy.pass());

  const readiness = async (): Promise<{ status: number; objects: { ok: boolean; detail?: string | undefined } }> => {
    const { status, json } = await send(host.url, { path: '/ready' });
    return { status, objects: ready.parse(json).checks.objects };
  };

  /** Neither seen, nor counted, nor in the way: what was reserved can be had again. */
  async function nothingHappened(files: ArtifactClient, session: string): Promise<void> {
    expect(await files.list()).toEqual([]);
    expect(await files.told(session)).toEqual([]);
    await until(
      'the whole total can be had again',
      async () => (await files.send({ name: 'whole' }, Buffer.alloc(12 * MIB))).status === 201,
      SETTLED_MS,
    );
    expect((await files.use()).usedBytes).toBe(12 * MIB);
  }

  test('before an upload: 503, which names the part that is away, and readiness says so', async () => {
    const files = new ArtifactClient(await newTenant(target));
    const session = await newSession(files.tenant);
    await files.limit({ totalBytes: 12 * MIB });
    expect(await readiness()).toEqual({ status: 200, objects: { ok: true } });
    proxy.goAway();
    const answer = await files.send({ name: 'a', sessionId: session }, Buffer.alloc(MIB));
    expect(refused(answer, 503, 'unavailable').details).toEqual({ dependency: 'objects' });
    // The store is asked once a second, whoever asks.
    const away = await until('readiness says so', async () => {
      const found = await readiness();
      return found.status === 503 && found;
    });
    expect(away.objects.ok).toBe(false);
    expect(away.objects.detail).not.toMatch(/127\.0\.0\.1|test-secret|agent-host-objects/);
    proxy.pass();
    await until('the Host is ready again', async () => (await readiness()).status === 200, SETTLED_MS);
    await nothingHappened(files, session);
  });

  test.each([
    ['it is gone', () => proxy.goAway()],
    ['it answers 500', () => proxy.answerWith(BROKEN)],
  ])('in the middle of an upload of several parts %s', async (_, fail) => {
    const files = new ArtifactClient(await newTenant(target));
    const session = await newSession(files.tenant);
    await files.limit({ totalBytes: 12 * MIB });
    const { port, hostname } = new URL(host.url);
    const socket = connect({ host: hostname, port: Number(port) });
    const head = Object.entries(files.tenant.headers).map(([name, value]) => `${name}: ${value}`);
    const line = `POST /v1/artifacts?name=a&sessionId=${session} HTTP/1.1`;
    socket.write([line, 'host: a', `content-length: ${12 * MIB}`, ...head].join('\r\n').concat('\r\n\r\n'));
    let text = '';
    socket.setEncoding('utf8').on('data', (part: string) => (text += part));
    socket.on('error', () => undefined);
    socket.write(randomBytes(6 * MIB));
    await until(
      'the first part is on its way to the store',
      () => socket.bytesWritten > 6 * MIB && socket.writableLength === 0,
    );
    fail();
    socket.write(randomBytes(6 * MIB));
    await until('the Host has answered', () => text.includes('\r\n\r\n'), SETTLED_MS);
    proxy.pass();
    socket.destroy();
    expect(text).toMatch(/^HTTP\/1.1 503 /);
    expect(text).toContain('"dependency":"objects"');
    await nothingHappened(files, session);
  });

  test('in the middle of a download: the reader sees that it is cut, and may go on from there', async () => {
    const files = new ArtifactClient(await newTenant(target));
    const bytes = randomBytes(8 * MIB);
    const { artifact } = await files.upload({ name: 'a' }, bytes);
    proxy.dropReplies(2 * MIB);
    const read = files.content(artifact.artifactId).then(
      () => 'whole',
      (error: Error) => error.message,
    );
    await until('some of the bytes are lost', () => proxy.repliesLost > 0, SETTLED_MS);
    proxy.cutAll();
    proxy.pass();
    expect(await read).toMatch(/aborted|hang up|ECONNRESET/);
    const rest = await files.content(artifact.artifactId, 1, { range: `bytes=${MIB}-` });
    expect(rest.bytes.equals(bytes.subarray(MIB))).toBe(true);
  });

  test('slow, it makes an upload slow and nothing else', async () => {
    const files = new ArtifactClient(await newTenant(target));
    proxy.delayBy(150);
    const bytes = randomBytes(11 * MIB);
    // Longer than an operation that is not heard of is left alone: renewing it keeps it.
    const { artifact } = await files.upload({ name: 'slow' }, [bytes.subarray(0, 6 * MIB), bytes.subarray(6 * MIB)]);
    proxy.pass();
    expect((await files.content(artifact.artifactId)).bytes.equals(bytes)).toBe(true);
    expect((await files.use()).usedBytes).toBe(bytes.length);
  });

  test('a deletion is one all the same, and its bytes go when the store is back', async () => {
    const files = new ArtifactClient(await newTenant(target));
    const { artifact } = await files.upload({ name: 'a' }, Buffer.alloc(1_000));
    proxy.goAway();
    expect((await files.remove(artifact.artifactId)).status).toBe(200);
    refused(await files.content(artifact.artifactId), 404, 'not_found');
    proxy.pass();
    await until('the bytes are given back', async () => (await files.use()).usedBytes === 0, SETTLED_MS);
  });
});

describe('the sender goes away', () => {
  let host: Host;
  let files: ArtifactClient;

  beforeAll(async () => {
    host = await startHost({ env: { AGENT_HOST_OPERATION_SECONDS: '1', AGENT_HOST_UPLOAD_SILENCE_SECONDS: '2' } });
    files = new ArtifactClient(await new AdminClient(host).createTenant());
    await files.tenant.saveAgent();
  });

  afterAll(async () => await host[Symbol.asyncDispose]());

  /** Opens an upload by hand and writes the beginning of its body. */
  async function begun(size: number, written: number, chunked: boolean) {
    const { port, hostname } = new URL(host.url);
    const socket = connect({ host: hostname, port: Number(port) });
    await once(socket, 'connect');
    let answer = '';
    socket.setEncoding('utf8').on('data', (part: string) => (answer += part));
    socket.on('error', () => undefined);
    const length = chunked ? 'transfer-encoding: chunked' : `content-length: ${size}`;
    const head = Object.entries(files.tenant.headers).map(([name, value]) => `${name}: ${value}`);
    socket.write(['POST /v1/artifacts?name=cut HTTP/1.1', 'host: a', length, ...head].join('\r\n').concat('\r\n\r\n'));
    const body = Buffer.alloc(written);
    if (chunked && written > 0) socket.write(`${written.toString(16)}\r\n`);
    socket.write(body);
    if (chunked && written > 0) socket.write('\r\n');
    return { socket, answered: () => answer };
  }

  test('at random places, with and without a length: nothing is left behind', async () => {
    const random = seededRandom('cut uploads');
    const size = 2 * MIB;
    await files.limit({ totalBytes: size });
    for (let round = 0; round < 12; round += 1) {
      const { socket } = await begun(size, random.int(0, size - 1), round % 2 === 0);
      await until('what was written has left', () => socket.writableLength === 0);
      if (round % 3 === 0) socket.end();
      else socket.destroy();
      await once(socket, 'close');
    }
    await until(
      'the whole total can be had again',
      async () => (await files.send({ name: 'whole' }, Buffer.alloc(size))).status === 201,
      SETTLED_MS,
    );
    expect((await files.list()).map(({ name }) => name)).toEqual(['whole']);
    expect((await files.use()).usedBytes).toBe(size);
    await files.remove((await files.list())[0]?.artifactId ?? '');
    await files.limit({ totalBytes: 100 * MIB });
  });

  test('or stands still: it is told so, and its bytes are free again', async () => {
    const { socket, answered } = await begun(2 * MIB, MIB, false);
    await until('the silence has been noticed', () => answered().includes('\r\n\r\n'), SETTLED_MS);
    expect(answered()).toMatch(/^HTTP\/1.1 400 /);
    socket.destroy();
    expect(await files.list()).toEqual([]);
  });

  test('or drips: it is given up as one that stands still, however long it could go on', async () => {
    const { socket, answered } = await begun(2 * MIB, 0, false);
    const drip = setInterval(() => socket.write('x'), 200);
    try {
      await until('the dripping has been noticed', () => answered().includes('\r\n\r\n'), SETTLED_MS);
    } finally {
      clearInterval(drip);
    }
    expect(answered()).toMatch(/^HTTP\/1.1 400 /);
    socket.destroy();
    expect(await files.list()).toEqual([]);
  });

  test("one person's connections keep nobody else from uploading", async () => {
    const sockets: Awaited<ReturnType<typeof begun>>[] = [];
    const greedy = new ArtifactClient(await new AdminClient(host).createTenant());
    const own = files;
    try {
      files = greedy;
      // All at once: those that wait for the others have their silence ended meanwhile.
      sockets.push(...(await Promise.all(Array.from({ length: 300 }, async () => await begun(2 * MIB, 1, false)))));
      // The first of them fall silent before the last are there; their places are taken by others.
      const refusals = (): number => sockets.filter(({ answered }) => answered().includes('of this tenant')).length;
      await until('those beyond its share are refused', () => refusals() >= 150, SETTLED_MS);
    } finally {
      files = own;
    }
    const answer = await files.send({ name: 'polite' }, Buffer.alloc(1_000));
    expect(answer.status, answer.text).toBe(201);
    for (const { socket } of sockets) socket.destroy();
    await files.remove((await files.list())[0]?.artifactId ?? '');
  });

  test('the tenant goes in the middle of an upload: it ends, and nothing comes back', async () => {
    const doomed = new ArtifactClient(await new AdminClient(host).createTenant());
    const own = files;
    files = doomed;
    const { socket, answered } = await begun(4 * MIB, MIB, false).finally(() => (files = own));
    const path = `/v1/admin/tenants/${doomed.tenant.tenantId}`;
    const deleting = new AdminClient(host).request({ method: 'DELETE', path, timeoutMs: 40_000 });
    await until('the upload has been ended', () => answered().includes('\r\n\r\n') || socket.destroyed, SETTLED_MS);
    expect(answered()).toMatch(/^HTTP\/1.1 401 /);
    expect(answered()).toContain('"credential_invalid"');
    expect((await deleting).status).toBe(200);
    socket.destroy();
    const again = await new AdminClient(host).createTenant({ tenantId: doomed.tenant.tenantId });
    const files2 = new ArtifactClient(again);
    expect([await files2.list(), (await files2.use()).usedBytes]).toEqual([[], 0]);
  });

  test('what it sends after a refusal is not read for ever', async () => {
    await files.limit({ fileBytes: 1_000 });
    const { socket, answered } = await begun(1_000_000_000, 0, false);
    await until('it is refused', () => answered().includes('\r\n\r\n'));
    expect(answered()).toMatch(/^HTTP\/1.1 413 /);
    const more = setInterval(() => socket.write(Buffer.alloc(MIB)), 5);
    await until('the connection is closed', () => socket.destroyed);
    clearInterval(more);
    expect(socket.bytesWritten).toBeLessThan(500_000_000);
    const limits: Answer = await files.tenant.request({ path: '/v1/tenant/artifacts' });
    expect(z.object({ usedBytes: z.int() }).parse(limits.json).usedBytes).toBe(0);
  });
});

test('readers that take nothing of a file lose their connection, with a credential and with a link', async () => {
  await using host = await startHost({ env: { AGENT_HOST_UPLOAD_SILENCE_SECONDS: '5' } });
  const files = new ArtifactClient(await new AdminClient(host).createTenant());
  await files.tenant.saveAgent();
  const bytes = randomBytes(32 * MIB);
  const { artifactId } = (await files.upload({ name: 'large' }, bytes)).artifact;
  const link = (await files.link(artifactId)).path;
  const paths = [`/v1/artifacts/${artifactId}/versions/1/content`, `/v1/artifacts/${artifactId}/versions/1/zip`, link];
  const head = Object.entries(files.tenant.headers).map(([name, value]) => `${name}: ${value}`);
  const { port, hostname } = new URL(host.url);
  const sockets = Array.from({ length: 30 }, (_, n) => {
    const path = paths[n % paths.length] ?? '';
    const socket = connect({ host: hostname, port: Number(port) });
    socket.on('error', () => undefined);
    const headers = path === link ? [] : head;
    socket.write([`GET ${path} HTTP/1.1`, 'host: a', ...headers].join('\r\n').concat('\r\n\r\n'));
    return socket;
  });
  await Promise.all(sockets.map(async (socket) => await once(socket, 'readable')));
  // An empty line before a next request means nothing; where there is no connection any more, it is refused.
  const isClosed = (socket: (typeof sockets)[number]): boolean => {
    if (!socket.destroyed) socket.write('\r\n');
    return socket.destroyed;
  };
  await until('they are closed', () => sockets.filter(isClosed).length === sockets.length, SETTLED_MS);
  expect((await files.content(artifactId)).bytes.equals(bytes)).toBe(true);
});

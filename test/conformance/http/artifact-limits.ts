import { connect } from 'node:net';
import { describe, expect, test } from 'vitest';
import * as schemas from '#src/http/wire/schemas.ts';
import { ArtifactClient } from '../../support/artifacts.ts';
import { until } from '../../support/wait-until.ts';
import { adminOf, newSession, newTenant, refused, shaped } from './target.ts';
import type { HttpTarget } from './target.ts';

const MIB = 1_048_576;

/** Nothing is stored past a file's limit or a tenant's total, and what is stored is counted exactly. */
export function artifactLimitSuite(target: () => HttpTarget): void {
  const client = async (): Promise<ArtifactClient> => new ArtifactClient(await newTenant(target()));

  test('the defaults, and limits of its own, one by one', async () => {
    const files = await client();
    const defaults = { fileBytes: 100 * MIB, totalBytes: 10_240 * MIB };
    expect(await files.use()).toEqual({ limits: defaults, usedBytes: 0 });
    expect(await files.limit({ fileBytes: 10 })).toEqual({ limits: { ...defaults, fileBytes: 10 }, usedBytes: 0 });
    const both = { limits: { fileBytes: 10, totalBytes: 20 }, usedBytes: 0 };
    expect(await files.limit({ totalBytes: 20 })).toEqual(both);
    expect(await files.limit({})).toEqual(both);
    expect(await new ArtifactClient(files.tenant.at(target().nodes[1])).use()).toEqual(both);
  });

  describe.each([
    ['with a length', (size: number) => Buffer.alloc(size)],
    ['in chunks', (size: number) => [Buffer.alloc(Math.floor(size / 2)), Buffer.alloc(Math.ceil(size / 2))]],
  ])('a file %s', (_, bodyOf) => {
    test('past its limit is refused, at it is taken', async () => {
      const files = await client();
      const session = await newSession(files.tenant);
      await files.limit({ fileBytes: 1_000 });
      const query = { name: 'a', sessionId: session };
      for (const size of [1_001, 100_000, 3 * MIB]) {
        const { details } = refused(await files.send(query, bodyOf(size)), 413, 'limit_exceeded');
        expect(details).toEqual({ limit: 'file', limitBytes: 1_000 });
      }
      expect([await files.list(), await files.told(session), (await files.use()).usedBytes]).toEqual([[], [], 0]);
      const { artifact } = await files.upload(query, bodyOf(1_000));
      refused(await files.sendVersion(artifact.artifactId, [bodyOf(1_001)].flat()), 413, 'limit_exceeded');
      expect((await files.get(artifact.artifactId)).latestVersion).toBe(1);
      expect((await files.use()).usedBytes).toBe(1_000);
    });

    test('past the total is refused, up to the last byte of it is taken', async () => {
      const files = await client();
      await files.limit({ totalBytes: 2_500_000 });
      const { artifact } = await files.upload({ name: 'a' }, bodyOf(1_500_000));
      const { details } = refused(await files.send({ name: 'b' }, bodyOf(1_000_001)), 413, 'limit_exceeded');
      expect(details).toEqual({ limit: 'total', limitBytes: 2_500_000 });
      expect(await files.list()).toHaveLength(1);
      await files.upload({ name: 'c' }, bodyOf(1_000_000));
      expect((await files.use()).usedBytes).toBe(2_500_000);
      refused(await files.send({ name: 'd' }, bodyOf(1)), 413, 'limit_exceeded');
      await files.upload({ name: 'nothing' }, bodyOf(0));
      await files.remove(artifact.artifactId);
      expect((await files.use()).usedBytes).toBe(1_000_000);
      await files.upload({ name: 'd' }, bodyOf(1_500_000));
      await until('the Host and the tenant are told the same', async () => {
        const path = `/v1/admin/tenants/${files.tenant.tenantId}`;
        const inspected = shaped(await adminOf(target(), 1).request({ path }), 200, schemas.tenantInspected);
        const status = shaped(await files.tenant.request({ path: '/v1/tenant' }), 200, schemas.tenantStatus);
        expect(status.limits.totalBytes).toBe(2_500_000);
        return inspected.counts.artifactBytes === 2_500_000 && status.counts.artifactBytes === 2_500_000;
      });
    });
  });

  test('a length past the limit is refused before anything of the body is read', async () => {
    const files = await client();
    await files.limit({ fileBytes: 1_000 });
    const { hostname, port } = new URL(target().nodes[0].url);
    const answer = await new Promise<string>((resolve, reject) => {
      const socket = connect({ host: hostname, port: Number(port) });
      let text = '';
      const head = Object.entries(files.tenant.headers).map(([name, value]) => `${name}: ${value}`);
      const lines = ['POST /v1/artifacts?name=a HTTP/1.1', 'host: a', 'content-length: 1000000', ...head];
      // Not one byte of the body is sent: only the length can be what is refused.
      socket.write(`${lines.join('\r\n')}\r\n\r\n`);
      socket.setEncoding('utf8').on('data', (part: string) => {
        text += part;
        if (text.includes('\r\n\r\n')) socket.destroy();
      });
      socket.on('error', reject);
      socket.on('close', () => resolve(text));
      socket.setTimeout(10_000, () => socket.destroy(new Error('no answer')));
    });
    expect(answer).toMatch(/^HTTP\/1.1 413 /);
  });

  test('a total under what is stored keeps what is there and takes no more', async () => {
    const files = await client();
    const { artifact } = await files.upload({ name: 'a' }, Buffer.alloc(100));
    expect(await files.limit({ totalBytes: 50 })).toMatchObject({ usedBytes: 100 });
    refused(await files.send({ name: 'b' }, Buffer.alloc(1)), 413, 'limit_exceeded');
    expect((await files.content(artifact.artifactId)).bytes).toHaveLength(100);
  });

  test('40 uploads at the same time, over two nodes, fill the total and never pass it', async () => {
    const files = await client();
    const there = new ArtifactClient(files.tenant.at(target().nodes[1]));
    const size = 100_000;
    await files.limit({ totalBytes: 10 * size + 50 });
    const answers = await Promise.all(
      Array.from({ length: 40 }, async (_, i) => {
        const body = i % 4 < 2 ? Buffer.alloc(size) : [Buffer.alloc(size / 2), Buffer.alloc(size / 2)];
        return await (i % 2 === 0 ? files : there).send({ name: `n${i}` }, body);
      }),
    );
    const taken = answers.filter(({ status }) => status === 201).length;
    for (const answer of answers) if (answer.status !== 201) refused(answer, 413, 'limit_exceeded');
    const { usedBytes } = await files.use();
    expect(usedBytes).toBe(taken * size);
    expect(usedBytes).toBeLessThanOrEqual(10 * size + 50);
    expect(await files.list()).toHaveLength(taken);
    // All have settled: what is left can be had, to the last byte, and not one more.
    for (let i = taken; i < 10; i += 1) await there.upload({ name: `m${i}` }, Buffer.alloc(size));
    await files.upload({ name: 'rest' }, [Buffer.alloc(50)]);
    refused(await files.send({ name: 'more' }, Buffer.alloc(1)), 413, 'limit_exceeded');
    expect((await there.use()).usedBytes).toBe(10 * size + 50);
  });
}

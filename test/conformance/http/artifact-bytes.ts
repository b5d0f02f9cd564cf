import { beforeAll, describe, expect, test } from 'vitest';
import * as wire from '#src/http/wire/artifacts.ts';
import { ArtifactClient, sha256 } from '../../support/artifacts.ts';
import { send } from '../../support/client.ts';
import type { Answer } from '../../support/client.ts';
import { until } from '../../support/wait-until.ts';
import { newTenant, refused, shaped } from './target.ts';
import type { HttpTarget } from './target.ts';

const BYTES = Buffer.from('0123456789');
const TAG = `"${sha256(BYTES)}"`;

/** How bytes are answered: ranges, entity tags, HEAD, and links without a credential. */
export function artifactBytesSuite(target: () => HttpTarget): void {
  let files: ArtifactClient;
  let id = '';
  let empty = '';
  let places: readonly string[] = [];

  beforeAll(async () => {
    files = new ArtifactClient(await newTenant(target()));
    id = (await files.upload({ name: 'digits' }, BYTES, { 'content-type': 'text/html' })).artifact.artifactId;
    empty = (await files.upload({ name: 'empty' }, Buffer.alloc(0))).artifact.artifactId;
    const base = `/v1/artifacts/${id}/versions/latest`;
    places = [`${base}/content`, `${base}/files/digits`, (await files.link(id)).path];
  });

  /** With the credential where one is needed, and the same method and headers. */
  const at = async (path: string, headers: Record<string, string> = {}, method = 'GET'): Promise<Answer> =>
    path.startsWith('/v1/artifact-links')
      ? await send(target().nodes[1].url, { method, path, headers })
      : await files.tenant.request({ method, path, headers });

  test('whole, safe, and the same for HEAD but for the body', async () => {
    for (const place of places) {
      const get = await at(place);
      expect([get.status, get.text]).toEqual([200, '0123456789']);
      expect(get.headers).toMatchObject({
        'content-type': 'text/html',
        'content-length': '10',
        'accept-ranges': 'bytes',
        'x-content-type-options': 'nosniff',
        'content-disposition': 'attachment; filename=digits',
        etag: TAG,
      });
      expect(get.headers['content-security-policy']).toContain('sandbox');
      const head = await at(place, {}, 'HEAD');
      const { date: _date, 'x-request-id': _id, ...same } = get.headers;
      expect([head.status, head.text]).toEqual([200, '']);
      expect(head.headers).toMatchObject(same);
    }
  });

  test.each([
    ['bytes=0-0', 206, '0', '0-0'],
    ['bytes=0-', 206, '0123456789', '0-9'],
    ['bytes=3-5', 206, '345', '3-5'],
    ['bytes=8-100', 206, '89', '8-9'],
    ['bytes=9-', 206, '9', '9-9'],
    ['bytes=-1', 206, '9', '9-9'],
    ['bytes=-4', 206, '6789', '6-9'],
    ['bytes=-100', 206, '0123456789', '0-9'],
    // What is no range, or several, is answered with the whole.
    ['bytes=5-3', 200, '0123456789', ''],
    ['bytes=-', 200, '0123456789', ''],
    ['bytes=a-b', 200, '0123456789', ''],
    ['items=0-1', 200, '0123456789', ''],
    ['bytes=0-1,3-4', 200, '0123456789', ''],
    ['bytes=0x1-2', 200, '0123456789', ''],
  ])('Range: %s', async (range, status, body, part) => {
    for (const place of places) {
      const answer = await at(place, { range });
      expect([answer.status, answer.text, answer.headers['content-range']]).toEqual([
        status,
        body,
        part === '' ? undefined : `bytes ${part}/10`,
      ]);
      expect(answer.headers['content-length']).toBe(String(body.length));
      const head = await at(place, { range }, 'HEAD');
      expect([head.status, head.headers['content-range']]).toEqual([status, answer.headers['content-range']]);
    }
  });

  test('a range outside of the content', async () => {
    for (const place of places) {
      for (const range of ['bytes=10-', 'bytes=10-11', 'bytes=999999999999-', 'bytes=-0']) {
        const answer = await at(place, { range });
        refused(answer, 416, 'range_not_satisfiable');
        expect(answer.headers['content-range']).toBe('bytes */10');
      }
    }
    for (const range of ['bytes=0-', 'bytes=0-0', 'bytes=-1']) {
      refused(await files.content(empty, 1, { range }), 416, 'range_not_satisfiable');
    }
    expect((await files.content(empty)).headers['content-length']).toBe('0');
  });

  test('what the reader has already is not sent again', async () => {
    for (const place of places) {
      for (const tags of [TAG, `W/${TAG}`, `"other", ${TAG}`, '*']) {
        const answer = await at(place, { 'if-none-match': tags, range: 'bytes=0-1' });
        expect([answer.status, answer.text, answer.headers.etag]).toEqual([304, '', TAG]);
        expect(answer.headers['cache-control']).toBe('private, no-cache');
      }
      expect((await at(place, { 'if-none-match': '"other"' })).status).toBe(200);
      expect((await at(place, { 'if-range': TAG, range: 'bytes=0-1' })).text).toBe('01');
      for (const other of ['"other"', `W/${TAG}`, 'Fri, 20 Nov 2026 13:04:39 GMT']) {
        expect((await at(place, { 'if-range': other, range: 'bytes=0-1' })).status).toBe(200);
      }
    }
  });

  describe('a link', () => {
    test('opens one version for whoever has it, for a time', async () => {
      await files.sendVersion(id, Buffer.from('newer'));
      const first = await files.link(id, { version: 1 });
      const latest = await files.link(id, { expiresIn: 900 });
      expect(Math.abs(Date.parse(latest.expiresAt) - Date.now() - 900_000)).toBeLessThan(10_000);
      expect(Math.abs(Date.parse(first.expiresAt) - Date.now() - 300_000)).toBeLessThan(10_000);
      expect((await at(first.path)).text).toBe('0123456789');
      expect((await at(latest.path)).text).toBe('newer');
      refused(await at(first.path, { origin: 'https://page.example' }), 403, 'origin_rejected');
      const { path } = await files.link(id, { expiresIn: 1 });
      const expired = await until('the link has expired', async () => {
        const answer = await at(path);
        return answer.status === 200 ? undefined : answer;
      });
      refused(expired, 401, 'token_expired');
    });

    test('that was changed or made up is none', async () => {
      const { path } = await files.link(id, { version: 1 });
      const [body = '', mac = ''] = path.slice(path.lastIndexOf('/') + 1).split('.');
      const { t, a, v, e } = JSON.parse(Buffer.from(body, 'base64url').toString());
      const over = (change: object): string =>
        Buffer.from(JSON.stringify({ t, a, v, e, ...change })).toString('base64url');
      const made = [
        `${over({ e: e + 1 })}.${mac}`,
        `${over({ v: 2 })}.${mac}`,
        `${body}.${mac.replace(/.$/, (c: string) => (c === '0' ? '1' : '0'))}`,
        `${body}.${'0'.repeat(64)}`,
        ...[body, `${body}.`, `.${mac}`, `${body}.${mac}.`, 'x', '%00', 'a'.repeat(5_000)],
      ];
      for (const token of made) {
        const { message } = refused(await at(`/v1/artifact-links/${token}`), 404, 'not_found');
        expect(message, token).toBe('No such link.');
      }
    });

    test('is refused for a version that is not there, and for too long a time', async () => {
      const post = async (body: unknown): Promise<Answer> =>
        await files.tenant.request({ method: 'POST', path: `/v1/artifacts/${id}/links`, body });
      refused(await post({ version: 99 }), 404, 'not_found');
      refused(await post({ expiresIn: 901 }), 400, 'invalid_request');
      expect(shaped(await post({}), 201, wire.link).path).toMatch(/^\/v1\/artifact-links\//);
    });
  });
}

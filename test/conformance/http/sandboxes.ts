import { createHash } from 'node:crypto';
import { beforeAll, describe, expect, test } from 'vitest';
import * as artifacts from '#src/http/wire/artifacts.ts';
import * as boxes from '#src/http/wire/sandboxes.ts';
import * as wire from '#src/http/wire/schemas.ts';
import { send } from '../../support/client.ts';
import type { Answer, TenantClient } from '../../support/client.ts';
import { SseReader } from '../../support/sse.ts';
import { ALL_SCOPES, claims, registration, SigningKey } from '../../support/tokens.ts';
import { until } from '../../support/wait-until.ts';
import { adminOf, fresh, newTenant, refused, shaped } from './target.ts';
import type { HttpTarget } from './target.ts';

/** Sandboxes as their routes make, show, list and delete them, at two nodes. */
export function sandboxSuite(target: () => HttpTarget): void {
  let tenant: TenantClient;
  let there: TenantClient;

  beforeAll(async () => {
    tenant = await newTenant(target());
    there = tenant.at(target().nodes[1]);
  });

  const at = (id: string, rest = ''): string => `/v1/sandboxes/${encodeURIComponent(id)}${rest}`;
  const put = async (id: string, body: unknown = {}, of = tenant): Promise<Answer> =>
    await of.request({ method: 'PUT', path: at(id), body });
  const get = async (id: string, rest = '', of = there): Promise<Answer> => await of.request({ path: at(id, rest) });
  const post = async (id: string, rest: string): Promise<Answer> =>
    await there.request({ method: 'POST', path: at(id, rest), body: {} });
  const remove = async (id: string, rest = ''): Promise<Answer> =>
    await there.request({ method: 'DELETE', path: at(id, rest) });
  const write = async (id: string, path: string, body: Buffer): Promise<Answer> =>
    await tenant.request({ method: 'PUT', path: at(id, `/files/${path}`), body });

  describe('one sandbox', () => {
    test('is made once, keeps what it was made with, and its labels may change', async () => {
      const id = fresh('box/with');
      const made = shaped(await put(id, { labels: { a: '1' }, spec: { python: true } }), 200, boxes.sandbox);
      expect(made).toMatchObject({ id, kind: 'virtual', state: 'ready', labels: { a: '1' }, sessions: [] });
      expect(shaped(await get(id), 200, boxes.sandbox)).toEqual(made);
      expect(shaped(await put(id, {}, there), 200, boxes.sandbox)).toEqual(made);
      refused(await put(id, { spec: {} }), 409, 'conflict');
      const labelled = shaped(await put(id, { labels: { b: '2' } }, there), 200, boxes.sandbox);
      expect(labelled).toMatchObject({ labels: { b: '2' }, spec: { python: true } });
    });

    test('of a kind that this Host does not run is unavailable; a virtual one has nothing to stop', async () => {
      refused(await put(fresh('pod'), { kind: 'pod' }), 409, 'sandbox_unavailable');
      const id = fresh('box');
      await put(id);
      refused(await post(id, '/stop'), 400, 'invalid_request');
      const shown = shaped(await tenant.request({ path: '/v1/tenant/sandbox' }), 200, boxes.tenantSandbox);
      expect(shown).toMatchObject({ pod: { available: false }, limits: { sandboxes: 100 } });
      expect(shown.pod.reason).toBeTruthy();
    });

    test('that is deleted is not there, and its id is free', async () => {
      const id = fresh('box');
      await put(id, { labels: { first: 'yes' } });
      await write(id, 'a.txt', Buffer.from('a'));
      expect(shaped(await remove(id), 200, boxes.sandboxDeleted)).toEqual({ id, deleted: true });
      for (const answer of [await get(id), await remove(id), await post(id, '/reset'), await get(id, '/tree')]) {
        refused(answer, 404, 'not_found');
      }
      const again = shaped(await put(id), 200, boxes.sandbox);
      expect(again).toMatchObject({ labels: {}, files: { count: 0, bytes: 0 } });
    });
  });

  describe('the files of a sandbox', () => {
    test('are written, shown, read in part, and deleted, at any node', async () => {
      const id = fresh('box');
      await put(id);
      const bytes = Buffer.from('0123456789\n');
      const sha256 = createHash('sha256').update(bytes).digest('hex');
      const written = shaped(await write(id, 'deep%2Fin/it.txt', bytes), 200, boxes.fileWritten);
      expect(written).toEqual({ path: 'deep/in/it.txt', size: 11, sha256 });
      await write(id, 'b.bin', Buffer.alloc(0));
      const { files } = shaped(await get(id, '/tree'), 200, boxes.tree);
      expect(files.map(({ path }) => path)).toEqual(['b.bin', 'deep/in/it.txt']);
      const { files: below } = shaped(await get(id, '/tree?path=deep'), 200, boxes.tree);
      expect(below).toEqual([{ path: 'deep/in/it.txt', size: 11, sha256, contentType: 'text/plain' }]);
      const whole = await get(id, '/files/deep%2Fin%2Fit.txt');
      expect([whole.status, whole.text, whole.headers['etag']]).toEqual([200, '0123456789\n', `"${sha256}"`]);
      const part = await there.request({ path: at(id, '/files/deep/in/it.txt'), headers: { range: 'bytes=2-4' } });
      expect([part.status, part.text]).toEqual([206, '234']);
      expect(shaped(await get(id), 200, boxes.sandbox).files).toEqual({ count: 2, bytes: 11 });
      shaped(await remove(id, '/files/deep%2Fin%2Fit.txt'), 200, boxes.fileDeleted);
      refused(await get(id, '/files/deep%2Fin%2Fit.txt'), 404, 'not_found');
      const typed = { 'content-type': 'application/json' };
      const reset = { method: 'POST', path: at(id, '/reset'), headers: typed };
      shaped(await there.request(reset), 200, boxes.sandbox);
      expect(shaped(await get(id, '/tree'), 200, boxes.tree).files).toEqual([]);
    });

    test('that are too large, or whose paths clash, are refused, and nothing changes', async () => {
      const id = fresh('box');
      await put(id);
      await write(id, 'a.txt', Buffer.from('a'));
      refused(await write(id, 'A.txt', Buffer.from('b')), 400, 'invalid_request');
      refused(await write(id, 'a.txt%2Fb', Buffer.from('b')), 400, 'invalid_request');
      refused(await write(id, 'large', Buffer.alloc(10_485_761)), 413, 'limit_exceeded');
      expect(shaped(await get(id), 200, boxes.sandbox).files).toEqual({ count: 1, bytes: 1 });
    });

    test('of writers at the same time are all there', async () => {
      const id = fresh('box');
      await put(id);
      const names = Array.from({ length: 12 }, (_, n) => `f${n}`);
      const path = (name: string) => at(id, `/files/${name}`);
      const all = names.map(async (name, n) => {
        const of = n % 2 === 0 ? tenant : there;
        return await of.request({ method: 'PUT', path: path(name), body: Buffer.from(name) });
      });
      for (const answer of await Promise.all(all)) shaped(answer, 200, boxes.fileWritten);
      const { files } = shaped(await get(id, '/tree'), 200, boxes.tree);
      expect(files.map((file) => file.path)).toEqual(names.toSorted());
    });

    test('begin with those of an artifact, and are those again after a reset', async () => {
      const upload = { method: 'POST', path: '/v1/artifacts?name=seed.txt', body: Buffer.from('seed') };
      const { artifactId } = shaped(await tenant.request(upload), 201, artifacts.uploaded).artifact;
      const id = fresh('box');
      shaped(await put(id, { spec: { source: { artifactId } } }), 200, boxes.sandbox);
      await remove(id, '/files/seed.txt');
      refused(await get(id, '/files/seed.txt'), 404, 'not_found');
      await post(id, '/reset');
      expect((await get(id, '/files/seed.txt')).text).toBe('seed');
      refused(await put(fresh('box'), { spec: { source: { artifactId: 'af_none' } } }), 404, 'not_found');
    });
  });

  describe('the list', () => {
    test('is filtered by label and state, and cut into pages, newest first', async () => {
      const own = await newTenant(target());
      const ids: string[] = [];
      for (let n = 0; n < 5; n++) {
        ids.unshift(fresh('box'));
        shaped(await put(ids[0] ?? '', { labels: { n: String(n % 2), all: 'x' } }, own), 200, boxes.sandbox);
      }
      const list = async (query: string) =>
        shaped(await own.request({ path: `/v1/sandboxes${query}` }), 200, boxes.sandboxList);
      const named = async (query: string) => (await list(query)).sandboxes.map(({ id }) => id);
      expect(await named('')).toEqual(ids);
      expect(await named('?label=n%3D1')).toEqual([ids[1], ids[3]]);
      expect(await named('?label=n%3D1&label=all%3Dy')).toEqual([]);
      expect(await named('?state=ready&label=n%3D0')).toEqual([ids[0], ids[2], ids[4]]);
      expect(await named('?state=stopped')).toEqual([]);
      const first = await list('?limit=3');
      expect(await named(`?limit=3&cursor=${first.nextCursor}`)).toEqual(ids.slice(3));
      refused(
        await own.request({ path: `/v1/sandboxes?limit=3&state=ready&cursor=${first.nextCursor}` }),
        400,
        'cursor_invalid',
      );
    });

    test('has at most a hundred, of sessions too, and a place is free again at once', async () => {
      const own = await newTenant(target());
      const many = Array.from({ length: 99 }, () => fresh('box'));
      for (const answer of await Promise.all(many.map(async (id) => await put(id, {}, own)))) {
        shaped(answer, 200, boxes.sandbox);
      }
      const body = { agentId: 'agent', sandbox: { kind: 'virtual' } };
      const open = async (id: string) => await own.request({ method: 'PUT', path: `/v1/sessions/${id}`, body });
      const { sandboxId } = shaped(await open('last'), 200, wire.session);
      expect(sandboxId).toMatch(/^sb_/);
      const refusal = refused(await put(fresh('box'), {}, own), 409, 'limit_exceeded');
      expect(refusal.details).toEqual({ limit: 'sandboxes' });
      refused(await open('more'), 409, 'limit_exceeded');
      shaped(await own.request({ method: 'DELETE', path: '/v1/sessions/last' }), 200, wire.deleted);
      refused(await get(sandboxId ?? '', '', own), 404, 'not_found');
      shaped(await open('more'), 200, wire.session);
      const counted = await adminOf(target()).request({ path: `/v1/admin/tenants/${own.tenantId}` });
      expect(shaped(counted, 200, wire.tenantInspected).counts.sandboxes).toBe(100);
    });
  });

  describe('sessions', () => {
    const open = async (id: string, body: object, of = tenant) =>
      await of.request({ method: 'PUT', path: `/v1/sessions/${id}`, body: { agentId: 'agent', ...body } });

    test('get what they, or their agents, say', async () => {
      await tenant.saveAgent('boxed', { sandbox: { kind: 'virtual', spec: { python: true } }, sandboxTools: true });
      const id = fresh('s');
      const { sandboxId } = shaped(await open(id, { agentId: 'boxed' }), 200, wire.session);
      const box = shaped(await get(sandboxId ?? ''), 200, boxes.sandbox);
      expect(box).toMatchObject({ spec: { python: true }, sessions: [{ id, activeTurnId: null }] });
      expect(shaped(await open(id, { agentId: 'boxed' }), 200, wire.session).sandboxId).toBe(sandboxId);
      const none = shaped(await open(fresh('s'), { agentId: 'boxed', sandbox: false }), 200, wire.session);
      expect(none.sandboxId).toBeNull();
      expect(shaped(await open(fresh('s'), {}), 200, wire.session).sandboxId).toBeNull();
      refused(await open(fresh('s'), { sandbox: { kind: 'pod' } }), 409, 'sandbox_unavailable');
    });

    test('share one that is there, which forgets them when they are deleted', async () => {
      const id = fresh('box');
      await put(id);
      const [a, b] = [fresh('s'), fresh('s')];
      for (const session of [a, b]) {
        const opened = shaped(await open(session, { sandbox: { id } }), 200, wire.session);
        expect(opened.sandboxId).toBe(id);
      }
      const sessions = async () => shaped(await get(id), 200, boxes.sandbox).sessions.map((one) => one.id);
      expect(await sessions()).toEqual([a, b]);
      await tenant.request({ method: 'DELETE', path: `/v1/sessions/${a}` });
      expect(await sessions()).toEqual([b]);
      refused(await open(fresh('s'), { sandbox: { id: 'none' } }), 404, 'not_found');
    });
  });

  describe('people', () => {
    const as = (subject: string, scopes = ALL_SCOPES.join(' ')) => ({ 'svc-subject': subject, 'svc-scopes': scopes });
    const asked = async (headers: Record<string, string>, method: string, path: string, body?: unknown) =>
      await there.request({ method, path, headers, ...(body === undefined ? {} : { body }) });

    test('reach their own only, with the scope that a route needs', async () => {
      const id = fresh('box');
      shaped(await asked(as('ann'), 'PUT', at(id), {}), 200, boxes.sandbox);
      expect(shaped(await asked(as('ann', 'sessions:own'), 'GET', at(id)), 200, boxes.sandbox).subject).toBe('ann');
      refused(await asked(as('ann', 'sessions:own'), 'DELETE', at(id)), 403, 'scope_required');
      for (const [method, path, body] of [
        ['GET', at(id)],
        ['PUT', at(id), {}],
        ['DELETE', at(id)],
        ['GET', at(id, '/tree')],
        ['PUT', '/v1/sessions/bens', { agentId: 'agent', sandbox: { id } }],
      ] as const) {
        refused(await asked(as('ben'), method, path, body), 404, 'not_found');
      }
      const listed = await asked(as('ben'), 'GET', '/v1/sandboxes');
      expect(shaped(listed, 200, boxes.sandboxList).sandboxes).toEqual([]);
    });

    test("that of a person's session is the person's; one of nobody is reached by who has it in a grant", async () => {
      const session = fresh('s');
      const body = { agentId: 'agent', sandbox: { kind: 'virtual' } };
      const path = `/v1/sessions/${session}`;
      const { sandboxId } = shaped(await asked(as('ann'), 'PUT', path, body), 200, wire.session);
      refused(await asked(as('ben'), 'GET', at(sandboxId ?? '')), 404, 'not_found');
      const shared = fresh('box');
      await put(shared);
      const signing = new SigningKey('k1');
      const issuer = registration([signing], { sandboxesClaim: 'boxes' });
      await tenant.request({ method: 'PUT', path: '/v1/tenant/issuers/people', body: issuer });
      const token = (granted: unknown) => ({
        authorization: `Bearer ${signing.token(claims({ scope: ALL_SCOPES.join(' '), boxes: granted }))}`,
        'svc-tenant': tenant.tenantId,
        'svc-protocol': '8',
      });
      const url = target().nodes[0].url;
      const asks = async (granted: unknown, id: string) => await send(url, { path: at(id), headers: token(granted) });
      await until('the issuer is known', async () => (await asks([shared], shared)).status === 200);
      refused(await asks(['other'], fresh('absent')), 404, 'not_found');
      refused(await asks(['other'], shared), 404, 'not_found');
      shaped(await asks([], sandboxId ?? ''), 200, boxes.sandbox);
      const listed = await send(url, { path: '/v1/sandboxes', headers: token([]) });
      expect(shaped(listed, 200, boxes.sandboxList).sandboxes.map(({ id }) => id)).toEqual([sandboxId]);
      const attach = { method: 'PUT', path: `/v1/sessions/${fresh('s')}`, body: { ...body, sandbox: { id: shared } } };
      refused(await send(url, { ...attach, headers: token(['other']) }), 403, 'not_granted');
      const attached = shaped(await send(url, { ...attach, headers: token([shared]) }), 200, wire.session);
      expect(attached.sandboxId).toBe(shared);
    });
  });

  test('the stream of a sandbox has its states, goes on where it stopped, and ends with it', async () => {
    const id = fresh('box');
    await put(id);
    const { url } = target().nodes[1];
    const open = async (lastEventId?: string) =>
      await SseReader.open(url, at(id, '/events'), {
        headers: tenant.headers,
        ...(lastEventId === undefined ? {} : { lastEventId }),
      });
    const stream = await open();
    const created = await stream.find((frame) => frame.event === 'sandbox.state');
    expect(JSON.parse(created.data)).toMatchObject({ sandboxId: id, payload: { sandboxId: id, state: 'ready' } });
    await post(id, '/reset');
    const second = await open(created.id ?? '');
    for (const reader of [stream, second]) {
      const reset = await reader.find((frame) => frame.event === 'sandbox.state');
      expect(JSON.parse(reset.data)).toMatchObject({ payload: { state: 'ready', reason: 'reset' } });
    }
    second.close();
    await remove(id);
    await stream.end();
    refused(await get(id, '/events'), 404, 'not_found');
  });
}

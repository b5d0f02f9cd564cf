import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import * as wire from '#src/http/wire/schemas.ts';
import { send } from '../../support/client.ts';
import { adminOf, newTenant, refused, shaped } from './target.ts';
import type { HttpTarget } from './target.ts';

/** What anyone may ask, who the caller is, and what every answer carries. */
export function openSuite(target: () => HttpTarget): void {
  const url = (): string => target().nodes[0].url;

  describe('health, readiness and the document', () => {
    test('health needs neither credential nor protocol and names what is served', async () => {
      const { protocol, status } = shaped(await send(url(), { path: '/health' }), 200, wire.health);
      expect(status).toBe('ok');
      expect(protocol).toMatchObject({ min: 2, max: 8 });
      expect(protocol.features).toEqual(
        expect.arrayContaining(['runtime-tenants', 'admin-status', 'studio-principal', 'subject-headers']),
      );
    });

    test('readiness names its four dependencies', async () => {
      const { status, checks } = shaped(await send(url(), { path: '/ready' }), 200, wire.ready);
      expect(status).toBe('ready');
      for (const check of Object.values(checks)) expect(check.ok).toBe(true);
    });

    test('the document needs no credential and describes every route with its answers', async () => {
      const answer = await send(url(), { path: '/openapi.json', headers: { 'svc-protocol': '8' } });
      expect(answer.status).toBe(200);
      const operation = z.looseObject({ responses: z.record(z.string(), z.unknown()) });
      const schema = z.looseObject({
        openapi: z.literal('3.1.0'),
        paths: z.record(z.string(), z.record(z.string(), operation)),
      });
      const document = schema.parse(answer.json);
      expect(Object.keys(document.paths)).toEqual(
        expect.arrayContaining(['/health', '/v1/me', '/v1/sessions/{sessionId}/events']),
      );
    });
  });

  test('the reference for people needs no credential, and runs nothing', async () => {
    const answer = await send(url(), { path: '/docs' });
    expect(answer.status).toBe(200);
    expect(answer.headers['content-type']).toBe('text/html; charset=utf-8');
    expect(answer.headers['content-security-policy']).toContain("default-src 'none'");
    expect(answer.text).toContain('<h2>Sessions</h2>');
  });

  describe('what every answer carries', () => {
    test.each(['r', '!~', 'x'.repeat(128)])('the request id %s comes back', async (id) => {
      for (const path of ['/health', '/v1/me', '/nowhere']) {
        const answer = await send(url(), { path, headers: { 'x-request-id': id } });
        expect(answer.headers['x-request-id']).toBe(id);
      }
    });

    test.each(['', 'x'.repeat(129), 'a b', 'a\tb', 'ä'])('the request id %j is replaced', async (id) => {
      const first = await send(url(), { path: '/health', headers: { 'x-request-id': id } });
      const second = await send(url(), { path: '/health', headers: { 'x-request-id': id } });
      expect(first.headers['x-request-id']).toMatch(/^[\x21-\x7e]{1,128}$/);
      expect(first.headers['x-request-id']).not.toBe(id);
      expect(second.headers['x-request-id']).not.toBe(first.headers['x-request-id']);
    });

    test.each(['2', '3', '7', '8'])('protocol %s is served', async (version) => {
      const tenant = await newTenant(target());
      const answer = await tenant.request({ path: '/v1/me', headers: { 'svc-protocol': version } });
      expect(answer.status).toBe(200);
    });

    test.each(['/health', '/ready', '/v1/me', '/v1/agents', '/v1/agents/agent', '/v1/sessions', '/v1/sessions/none'])(
      'HEAD %s mirrors GET',
      async (path) => {
        const tenant = await newTenant(target());
        const headers = { 'x-request-id': 'same' };
        const get = await tenant.request({ path, headers });
        const head = await tenant.request({ method: 'HEAD', path, headers });
        expect(head.text).toBe('');
        expect(head.status).toBe(get.status);
        const { date: _, ...expected } = get.headers;
        expect(head.headers).toMatchObject(expected);
      },
    );
  });

  describe('unknown routes', () => {
    const paths = [
      '/',
      '/nowhere',
      '/v1',
      '/v1/me/',
      '/v1/agents/',
      '/V1/me',
      '//v1/me',
      '/v1/sessions/a/b',
      '/health/',
    ];
    test.each(paths)('%s is 401 without a credential, else 404', async (path) => {
      refused(await send(url(), { path }), 401, 'credential_required');
      refused(await send(url(), { path, headers: { authorization: 'Basic YTpi' } }), 401, 'credential_required');
      expect(refused(await adminOf(target()).request({ path }), 404, 'not_found').message).toBe('No such route.');
    });

    test.each(['PATCH', 'POST', 'OPTIONS', 'TRACE', 'DELETE', 'PROPFIND'])(
      'method %s of /v1/me is another route',
      async (method) => {
        const path = '/v1/me';
        refused(await send(url(), { method, path }), 401, 'credential_required');
        const unknown = refused(await adminOf(target()).request({ method, path }), 404, 'not_found');
        expect(unknown.message).toBe('No such route.');
      },
    );

    test('a body of whatever kind changes nothing of it', async () => {
      const raw = { method: 'POST', path: '/nowhere', body: '<a/>', headers: { 'content-type': 'text/xml' } };
      refused(await send(url(), raw), 401, 'credential_required');
      expect(refused(await adminOf(target()).request(raw), 404, 'not_found').message).toBe('No such route.');
    });
  });

  describe('who am I', () => {
    const all = ['agents:read', 'agents:write', 'sessions:own', 'sandboxes:write', 'vaults:own'];

    test('an application key alone', async () => {
      const tenant = await newTenant(target());
      const me = shaped(await tenant.request({ path: '/v1/me' }), 200, wire.me);
      expect(me).toEqual({ scopes: all, agents: '*', via: 'application:app' });
    });

    test('an application key that acts for a person', async () => {
      const tenant = (await newTenant(target())).as('ann@example', 'agents:read sessions:own');
      const me = shaped(await tenant.request({ path: '/v1/me' }), 200, wire.me);
      expect(me).toEqual({
        subject: 'ann@example',
        scopes: ['agents:read', 'sessions:own'],
        agents: '*',
        via: 'subject',
      });
    });
  });
}

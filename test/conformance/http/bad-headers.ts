import { expect, test } from 'vitest';
import { z } from 'zod';
import type { RawRequest } from '../../support/client.ts';
import { invalid, TOO_MUCH } from './call.ts';
import type { Call, World } from './call.ts';
import { refused } from './target.ts';

/** What is checked before a route is looked at. */
export function anyRoute(call: Call): void {
  test('an Origin is refused before anything else', async () => {
    for (const origin of ['https://example.org', 'null', '']) {
      const headers = { origin, authorization: undefined, 'svc-protocol': undefined, 'content-type': 'text/xml' };
      const { code } = refused(await call.send({ headers, body: '<a/>' }), 403, 'origin_rejected');
      expect(code).toBe('origin_rejected');
    }
  });
}

/** Of a route whose body, if it has one, is JSON. */
export function jsonRoute(call: Call): void {
  test('a body of another media type, or too long a one', async () => {
    for (const type of [
      'text/plain',
      'application/xml',
      'application/jsonp',
      'multipart/form-data; boundary=x',
      'json',
      '',
    ]) {
      const headers = { 'content-type': type, authorization: undefined };
      refused(await call.send({ headers, body: '{}' }), 415, 'unsupported_media_type');
    }
    const headers = { authorization: undefined, 'svc-protocol': undefined };
    const { details } = refused(await call.send({ headers, body: 'x'.repeat(TOO_MUCH) }), 413, 'limit_exceeded');
    expect(details).toEqual({ limit: 'body', limitBytes: 1_048_576 });
  });
}

/** Of a route whose body is a file. */
export function fileType(call: Call): void {
  test('a Content-Type that is not a media type', async () => {
    const answer = await call.send({ headers: { 'content-type': 'nonsense' }, body: 'bytes' });
    expect(invalid(answer)).toEqual([expect.stringMatching(/^header\.content-type: /)]);
  });
}

/** Of a route that takes no body. */
export function emptyBody(call: Call): void {
  test('the JSON media type without a body is not a wrong body', async () => {
    const headers = { 'content-type': 'application/json', 'content-length': '0' };
    const issues = invalid(await call.send({ path: `${call.path()}?nope=1`, headers }));
    expect(issues).toContainEqual(expect.stringMatching(/^querystring: .*nope/));
    expect(issues.filter((issue) => issue.startsWith(':') || issue.startsWith('body'))).toEqual([]);
  });
}

/** Protocol, credential, subject, role and scope, each while all that is checked later is wrong too. */
export function guarded(call: Call, world: () => World): void {
  const { realm, scope } = call.row;
  /** Wrong in all that is checked later: path, query and body. */
  const rest = (): Partial<RawRequest> => ({
    path: `${call.path(Object.fromEntries(Object.keys(call.row.params ?? {}).map((name) => [name, '%zz'])))}?nope=1`,
    ...(call.hasBody ? { body: '{' } : {}),
  });

  test('a protocol that is not served', async () => {
    for (const version of [undefined, '', 'x', '1', '9', '0', '-2', '2.5', '1e1', '0x8', '8, 8', '99999999999']) {
      const headers = { 'svc-protocol': version, authorization: undefined };
      const body = refused(await call.send({ ...rest(), headers }), 426, 'protocol_unsupported');
      expect(body).toMatchObject({
        protocol: { min: 2, max: 8, features: expect.arrayContaining(['runtime-tenants']) },
      });
    }
  });

  test('no credential, an unknown one, one of another tenant, and an unknown tenant', async () => {
    for (const authorization of [undefined, '', 'Bearer', 'Bearer ', 'Basic YTpi', 'Bearer a b']) {
      const headers = { authorization, 'svc-tenant': undefined, 'svc-subject': 'a b' };
      refused(await call.send({ ...rest(), headers }), 401, 'credential_required');
    }
    const same = { 'x-request-id': 'same', 'svc-subject': 'a b' };
    const foreign = `Bearer ${world().foreign.credentials.key}`;
    const wrong = [
      { authorization: 'Bearer unknown' },
      ...(realm === 'admin'
        ? []
        : [
            { authorization: foreign },
            { 'svc-tenant': world().foreign.tenantId },
            { 'svc-tenant': `tn_${'0'.repeat(26)}` },
            { 'svc-tenant': "tn_'; drop" },
            { 'svc-tenant': `${world().tenant.tenantId}, ${world().tenant.tenantId}` },
          ]),
    ];
    const texts = [];
    for (const headers of wrong) {
      const answer = await call.send({ ...rest(), headers: { ...same, ...headers } });
      refused(answer, 401, 'credential_invalid');
      texts.push(answer.text);
    }
    expect(new Set(texts).size, 'the same bytes').toBe(1);
    if (realm !== 'tenant') return;
    const { message } = refused(
      await call.send({ ...rest(), headers: { 'svc-tenant': undefined } }),
      400,
      'invalid_request',
    );
    expect(message).toContain('Svc-Tenant');
  });

  test('subject headers that are wrong, or of a credential that may not send them', async () => {
    const pairs = [
      ...['', 'a b', 'ä', 'x'.repeat(201), 'host', 'studio', 'ann, ben'].map((subject) => [subject, 'sessions:own']),
      [undefined, 'sessions:own'],
      ['ann', undefined],
      ...['', ' ', 'root', 'sessions:own root', 'sessions:own,agents:read', 'SESSIONS:OWN'].map((scopes) => [
        'ann',
        scopes,
      ]),
    ];
    for (const [subject, scopes] of pairs) {
      const headers = { 'svc-subject': subject, 'svc-scopes': scopes };
      const actsWithoutSubject = realm === 'admin' || call.row.credential === 'executor';
      const [status, code] = actsWithoutSubject
        ? ([403, 'subject_forbidden'] as const)
        : ([400, 'subject_invalid'] as const);
      expect(refused(await call.send({ ...rest(), headers }), status, code).details).toBeUndefined();
    }
    const admin = { authorization: `Bearer ${call.adminKey}`, 'svc-subject': 'ann', 'svc-scopes': 'sessions:own' };
    refused(await call.send({ ...rest(), headers: admin }), 403, 'subject_forbidden');
  });

  test('a right credential of the wrong kind, and a subject without the scope', async () => {
    const { tenant, studioKey, executorToken } = world();
    const { credential } = call.row;
    const { key } = tenant.credentials;
    const others =
      realm === 'admin'
        ? [key, studioKey, executorToken]
        : [
            call.adminKey,
            ...(credential === undefined ? [] : [key]),
            ...(credential === 'executor' ? [studioKey] : []),
            ...(credential === 'executor' || call.template.endsWith('/commands') ? [] : [executorToken]),
          ];
    for (const other of others) {
      const headers = { authorization: `Bearer ${other}` };
      refused(await call.send({ ...rest(), headers }), 403, 'key_role_mismatch');
    }
    if (realm === 'admin' || credential === 'executor' || call.template === '/v1/me') return;
    const without = scope?.startsWith('agents') === true ? 'sessions:own vaults:own' : 'agents:read agents:write';
    const headers = { 'svc-subject': 'ann', 'svc-scopes': without };
    const { details } = refused(await call.send({ ...rest(), headers }), 403, 'scope_required');
    const { scopes } = z.strictObject({ scopes: z.array(z.string()) }).parse(details);
    expect(scopes.includes(scope ?? '')).toBe(scopes.length > 0);
    expect(scopes.length > 0).toBe(scope !== undefined);
  });
}

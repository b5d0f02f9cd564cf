import { generateKeyPairSync } from 'node:crypto';
import type { RequestListener } from 'node:http';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import * as wire from '#src/http/wire/schemas.ts';
import { AdminClient, TenantClient } from '../support/client.ts';
import type { Answer } from '../support/client.ts';
import { refused, shaped } from '../conformance/http/target.ts';
import { startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { KeyServer, serves, servesText } from '../support/key-server.ts';
import { claims, registration, SigningKey } from '../support/tokens.ts';
import { until } from '../support/wait-until.ts';

/** A slow endpoint is given up after 3 s; the rest is for a busy machine. */
const GIVEN_UP_MS = 15_000;
/** The Host looks every second; by the tolerance for clocks a stream would last for half a minute more. */
const EXPIRED_WITHIN_MS = 15_000;

describe('issuers whose keys are fetched', () => {
  let host: Host;
  const servers: KeyServer[] = [];
  const key = new SigningKey('one');

  beforeAll(async () => {
    host = await startHost({ env: { AGENT_HOST_FAILED_AUTH_PER_SECOND: '100000' }, singleProcess: true });
  });

  afterEach(async () => {
    for (const server of servers.splice(0)) await server[Symbol.asyncDispose]();
  });

  afterAll(async () => {
    await host[Symbol.asyncDispose]();
  });

  /** A tenant of its own, so nothing of the issuer is cached, that trusts what the server publishes. */
  async function trusting(answer: RequestListener, over: Record<string, unknown> = {}) {
    const server = await KeyServer.start(answer);
    servers.push(server);
    const tenant = await new AdminClient(host).createTenant();
    const body = registration([], { jwks: undefined, jwksUrl: server.url, ...over });
    const saved = await tenant.request({ method: 'PUT', path: '/v1/tenant/issuers/people', body });
    shaped(saved, 200, wire.issuer);
    const me = async (token: string): Promise<Answer> =>
      await new TenantClient({ ...tenant.credentials, key: token }).request({ path: '/v1/me' });
    return { server, tenant, me };
  }

  function unavailable(answer: Answer): void {
    expect(refused(answer, 503, 'unavailable').details).toEqual({ dependency: 'issuer' });
  }

  test('any number of tokens is one fetch, also of the first ones at the same time', async () => {
    const { server, me } = await trusting(serves(key));
    const many = Array.from({ length: 50 }, (_, i) => key.token(claims({ sub: `person-${i}` })));
    for (const answer of await Promise.all(many.map(me))) expect(answer.status).toBe(200);
    for (const token of many) expect((await me(token)).status).toBe(200);
    expect(server.requests).toHaveLength(1);
    const [request] = server.requests;
    expect([request?.method, request?.url]).toEqual(['GET', '/keys']);
    // The endpoint is told nothing of who asked.
    expect(Object.keys(request?.headers ?? {}).filter((name) => /auth|svc|cookie|request-id/.test(name))).toEqual([]);
  });

  test('a new key is fetched once the cool-down is over, and not before', async () => {
    const { server, me } = await trusting(serves(key));
    const next = new SigningKey('two');
    const unknown = Array.from({ length: 30 }, (_, n) => new SigningKey(`unknown-${n}`, 'EdDSA').token(claims()));
    // Before the fetch that the cool-down is counted from.
    const began = performance.now();
    expect((await me(key.token(claims()))).status).toBe(200);
    server.answer = serves(next);
    // However many unknown keys are named, the endpoint is left alone; all at once, so that the cool-down lasts.
    for (const answer of await Promise.all(unknown.map(me))) refused(answer, 401, 'credential_invalid');
    refused(await me(next.token(claims())), 401, 'credential_invalid');
    expect(server.requests).toHaveLength(1);
    expect((await me(key.token(claims()))).status).toBe(200);
    await until('the new key is known', async () => (await me(next.token(claims()))).status === 200);
    expect(performance.now() - began).toBeGreaterThan(9_000);
    expect(server.requests).toHaveLength(2);
    refused(await me(key.token(claims())), 401, 'credential_invalid');
    expect(server.requests).toHaveLength(2);
  });

  test('an endpoint that is down is missed only while nothing of it is known', async () => {
    const { server, tenant, me } = await trusting(serves(key));
    await server.down();
    unavailable(await me(key.token(claims())));
    // Nothing else needs it.
    expect((await tenant.request({ path: '/v1/me' })).status).toBe(200);
    await server.up();
    expect((await me(key.token(claims()))).status).toBe(200);
    await server.down();
    expect((await me(key.token(claims()))).status).toBe(200);
    refused(await me(new SigningKey('unknown').token(claims())), 401, 'credential_invalid');
    expect((await me(key.token(claims({ sub: 'ben' })))).status).toBe(200);
  });

  test('a registration with another address uses it at once', async () => {
    const { server, tenant, me } = await trusting(serves(key));
    expect((await me(key.token(claims()))).status).toBe(200);
    const next = new SigningKey('two');
    const other = await KeyServer.start(serves(next));
    servers.push(other);
    const body = registration([], { jwks: undefined, jwksUrl: other.url });
    shaped(await tenant.request({ method: 'PUT', path: '/v1/tenant/issuers/people', body }), 200, wire.issuer);
    refused(await me(key.token(claims())), 401, 'credential_invalid');
    expect((await me(next.token(claims()))).status).toBe(200);
    expect(server.requests).toHaveLength(1);
  });

  /** Returns whether others of the tenants were answered while those who need the slow endpoints waited. */
  async function slowEndpoints(): Promise<boolean> {
    const silent = await trusting(() => undefined);
    const dripping = await trusting((_, response) => {
      response.writeHead(200, { 'content-type': 'application/json' });
      const timer = setInterval(() => response.write(' '), 100);
      response.on('close', () => clearInterval(timer));
    });
    const began = performance.now();
    let ended = 0;
    const held = [silent, dripping].flatMap(({ me }) =>
      Array.from({ length: 2 }, async () => await me(key.token(claims())).finally(() => ended++)),
    );
    await until('both are being asked', () => silent.server.requests.length + dripping.server.requests.length === 2);
    for (const { tenant } of [silent, dripping]) {
      for (let n = 0; n < 10; n += 1) expect((await tenant.request({ path: '/v1/me' })).status).toBe(200);
    }
    const endedBefore = ended;
    for (const answer of await Promise.all(held)) unavailable(answer);
    expect(performance.now() - began).toBeGreaterThan(2_500);
    expect(performance.now() - began).toBeLessThan(GIVEN_UP_MS);
    return endedBefore === 0;
  }

  test('a slow endpoint is given up, and holds up nobody else', async () => {
    // A Host that holds the others up does so each time; a machine that stands still for three seconds does not.
    await until('the others are answered first', slowEndpoints);
  });

  test('a redirect is not followed', async () => {
    const elsewhere = await KeyServer.start(serves(key));
    servers.push(elsewhere);
    for (const status of [301, 302, 303, 307, 308]) {
      const { me, server } = await trusting((_, response) => {
        response.writeHead(status, { location: elsewhere.url });
        response.end();
      });
      unavailable(await me(key.token(claims())));
      expect(server.requests).toHaveLength(1);
    }
    expect(elsewhere.requests).toHaveLength(0);
  });

  test('a key set is at most 256 KiB, whatever its length says', async () => {
    const padded = (bytes: number): string => JSON.stringify({ keys: [key.jwk], pad: 'x'.repeat(bytes) });
    const chunked =
      (text: string): RequestListener =>
      (_, response) => {
        response.writeHead(200, { 'content-type': 'application/json' });
        for (let at = 0; at < text.length; at += 16_384) response.write(text.slice(at, at + 16_384));
        response.end();
      };
    for (const answer of [servesText(padded(262_144)), chunked(padded(262_144)), chunked(padded(50_000_000))]) {
      const { me } = await trusting(answer);
      unavailable(await me(key.token(claims())));
    }
    for (const answer of [servesText(padded(250_000)), chunked(padded(250_000))]) {
      const { me } = await trusting(answer);
      expect((await me(key.token(claims()))).status).toBe(200);
    }
  });

  test('what is no key set says nothing about the token', async () => {
    const answers = [
      ...['', '{', '<html></html>', '{}', '[]', 'null', '{"keys":{}}', '{"keys":[1]}'].map((text) => servesText(text)),
      ...[201, 204, 400, 401, 404, 500, 503].map((status) => servesText(JSON.stringify({ keys: [key.jwk] }), status)),
      ((_, response) => response.destroy()) satisfies RequestListener,
    ];
    for (const answer of answers) {
      const { server, me } = await trusting(answer);
      unavailable(await me(key.token(claims())));
      // It is asked again by the next one, and then all is well.
      server.answer = serves(key);
      expect((await me(key.token(claims()))).status).toBe(200);
    }
  });

  test("a stream ends when its token's time does, and no sooner", async () => {
    const { tenant } = await trusting(serves(key));
    await tenant.saveAgent();
    await tenant.openSession('room', { subject: 'ann' });
    const withToken = (over: Readonly<Record<string, unknown>>): TenantClient =>
      new TenantClient({ ...tenant.credentials, key: key.token(claims(over)) });
    const now = Math.floor(Date.now() / 1_000);
    // Late enough for the streams to be open by then, and for a look at the others between the two ends.
    const exp = now + 10;
    const short = withToken({ exp });
    const doomed = [await short.events('room'), await short.events('room', { cursor: 'latest' })];
    const kept = [await tenant.events('room'), await withToken({ exp: now + 300 }).events('room')];
    // Good by the tolerance for clocks that differ: it ends with that.
    const late = { iat: now - 300, exp: now - 5 };
    const tolerated = await withToken(late).events('room');
    for (const reader of doomed) await reader.end(40_000);
    const endedMs = Date.now() - exp * 1_000;
    expect(endedMs).toBeGreaterThanOrEqual(0);
    expect(endedMs).toBeLessThan(EXPIRED_WITHIN_MS);
    expect([...kept, tolerated].map(({ ended }) => ended)).toEqual([false, false, false]);
    // The clients come again with a new token, and the others never noticed.
    const { cursor } = await tenant.cancel('room');
    for (const reader of [...kept, tolerated, await withToken({}).events('room')]) {
      await reader.find(({ id }) => id === cursor);
      if (reader !== tolerated) reader.close();
    }
    await tolerated.end(40_000);
    const toleratedMs = Date.now() - (late.exp + 30) * 1_000;
    expect(toleratedMs).toBeGreaterThanOrEqual(0);
    expect(toleratedMs).toBeLessThan(EXPIRED_WITHIN_MS);
    refused(await withToken(late).request({ path: '/v1/sessions/room' }), 401, 'token_expired');
  });

  test('a registered key that cannot be used vouches for nothing', async () => {
    const tenant = await new AdminClient(host).createTenant();
    const { publicKey } = generateKeyPairSync('rsa', { modulusLength: 1_024 });
    const unusable = [
      { ...key.jwk, x: 'AQAB' },
      { ...key.jwk, x: '!', y: 7 },
      { kty: 'EC', kid: 'one', alg: 'ES256' },
      { kty: 'RSA', kid: 'one', alg: 'RS256', n: 'AQAB', e: 'AQAB' },
      { ...publicKey.export({ format: 'jwk' }), kid: 'one', alg: 'RS256' },
      { kty: 'OKP', crv: 'Ed25519', x: 'AQAB', kid: 'one', alg: 'EdDSA' },
      { kty: 'oct', kid: 'one' },
    ];
    const tokens = (['ES256', 'RS256', 'EdDSA'] as const).map((name) => new SigningKey('one', name).token(claims()));
    for (const jwk of unusable) {
      const body = registration([], { jwks: { keys: [jwk] } });
      shaped(await tenant.request({ method: 'PUT', path: '/v1/tenant/issuers/people', body }), 200, wire.issuer);
      for (const token of tokens) {
        const answer = await new TenantClient({ ...tenant.credentials, key: token }).request({ path: '/v1/me' });
        refused(answer, 401, 'credential_invalid');
      }
    }
    expect(host.output()).not.toContain('a request failed');
  });
});

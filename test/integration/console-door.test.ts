import { createHmac } from 'node:crypto';
import { once } from 'node:events';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, request as httpRequest } from 'node:http';
import type { IncomingHttpHeaders, OutgoingHttpHeaders, Server } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { ROUTES } from '../conformance/http/routes.ts';
import { sendLines } from '../support/send-lines.ts';
import { openDoor } from '#src/console/server/door.ts';
import type { Door } from '#src/console/server/door.ts';

/** The door of the console, in front of a Host that shows what it was asked. */
const KEY = 'key-of-the-console-that-stays-here';
const ADMIN_KEY = 'key-of-the-host-that-stays-here';
const TENANT = `tn_${'1'.repeat(26)}`;
const HOUR_MS = 3_600_000;

interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
}

let host: Server;
let asked: { url: string; headers: IncomingHttpHeaders; body: string }[] = [];
let directory: string;
let door: Door;
/** With the key of the Host. */
let hostDoor: Door;
let nowMs = Date.parse('2026-11-23T10:00:00Z');
const texts: string[] = [];

/** As written, without what a browser or `fetch` would put right. */
async function ask(path: string, headers: OutgoingHttpHeaders = {}, method = 'GET', body = ''): Promise<Answer> {
  return await askAt(door, path, { headers, method, body });
}

interface Asked {
  readonly headers?: OutgoingHttpHeaders;
  readonly method?: string;
  readonly body?: string;
}

async function askAt(
  { port }: Door,
  path: string,
  { headers = {}, method = 'GET', body = '' }: Asked,
): Promise<Answer> {
  const sent = httpRequest({ host: '127.0.0.1', port, path, method, headers });
  sent.end(body);
  const [answer] = await once(sent, 'response');
  let text = '';
  for await (const chunk of answer.setEncoding('utf8')) text += chunk;
  texts.push(text + JSON.stringify(answer.headers));
  return { status: answer.statusCode, headers: answer.headers, text };
}

const shout = async (lines: readonly string[]): Promise<string> => await sendLines(door.port, lines);
const origin = (at = door) => ({ origin: at.url, 'content-type': 'application/json' });
const pathOf = (link: string) => link.slice(new URL(link).origin.length);
const cookieIn = ({ headers }: Answer) => (headers['set-cookie'] ?? [])[0]?.split(';')[0] ?? '';
const codeOf = ({ text }: Answer): unknown => JSON.parse(text).code;

async function signedIn(at = door): Promise<{ cookie: string; csrf: string }> {
  const entered = await askAt(at, pathOf(at.link()), {});
  expect(entered).toMatchObject({ status: 303, headers: { location: '/' } });
  const cookie = cookieIn(entered);
  const session = await askAt(at, '/console/session', { headers: { cookie } });
  return { cookie, csrf: JSON.parse(session.text).csrf };
}

/** A request of a page that is signed in. */
async function post(at: Door, path: string, who: { cookie: string; csrf: string }, body = ''): Promise<Answer> {
  const headers = { ...origin(at), cookie: who.cookie, 'x-console-csrf': who.csrf };
  return await askAt(at, path, { headers, method: 'POST', body });
}

beforeAll(async () => {
  host = createServer((request, response) => {
    let body = '';
    request.setEncoding('utf8').on('data', (text: string) => (body += text));
    request.on('end', () => {
      asked.push({ url: request.url ?? '', headers: request.headers, body });
      response.setHeader('set-cookie', 'planted=1').setHeader('access-control-allow-origin', '*');
      if (request.url === '/v1/refused') response.writeHead(401).end('{}');
      else if (request.url === '/v1/stream')
        response.writeHead(200, { 'content-type': 'text/event-stream' }).write('data: 1\n\n');
      else response.end('{"ok":true}');
    });
  }).listen(0, '127.0.0.1');
  await once(host, 'listening');
  directory = await mkdtemp(join(tmpdir(), 'agent-host-console-'));
  await mkdir(join(directory, 'assets'));
  await writeFile(join(directory, 'index.html'), '<!doctype html>');
  await writeFile(join(directory, 'assets/main-1.js'), 'export {};');
  const at = host.address();
  const port = typeof at === 'object' ? at?.port : 0;
  const authority = { kind: 'tenant', tenant: 'tn_1', key: KEY } as const;
  const longerThanStandstills = { headersMs: 4_000, idleMs: 6_000 };
  const options = { url: `http://127.0.0.1:${port}`, directory, port: 0, now: () => nowMs, ...longerThanStandstills };
  door = await openDoor({ ...options, authority });
  hostDoor = await openDoor({ ...options, authority: { kind: 'host', adminKey: ADMIN_KEY } });
});

beforeEach(() => {
  asked = [];
});

afterAll(async () => {
  await door.close();
  await hostDoor.close();
  host.closeAllConnections();
  host.close();
  await rm(directory, { recursive: true, force: true });
});

test('pages are answered with their policy, and no path leads out of them', async () => {
  const page = await ask('/sessions/one%2Ftwo', { accept: 'text/html' });
  expect(page).toMatchObject({ status: 200, text: '<!doctype html>' });
  expect(page.headers['content-security-policy']).toContain("script-src 'self'; style-src 'self'");
  expect(page.headers).toMatchObject({ 'x-frame-options': 'DENY', 'cache-control': 'no-cache' });
  expect((await ask('/assets/main-1.js')).headers['cache-control']).toContain('immutable');
  expect((await ask('/assets/%2e%2e/../%2e%2e/package.json')).status).toBe(404);
  for (const path of ['/..%2fpackage.json', '/a%2f.%2fb', '/a%5cb', '/a%2F%2e%2E', '//etc/passwd'])
    expect((await ask(path, { accept: 'text/html' })).status, path).toBe(404);
});

test('a link works once, and for ten minutes', async () => {
  const path = pathOf(door.link());
  // Something that looks at a link before the person does.
  expect((await ask(path, {}, 'HEAD')).status).toBe(401);
  const first = await ask(path);
  expect(first.headers['set-cookie']?.[0]).toMatch(/; Path=\/; HttpOnly; SameSite=Strict$/);
  const second = await ask(path, { accept: 'text/html' });
  expect(second).toMatchObject({ status: 401, text: '<!doctype html>' });
  expect(second.headers).not.toHaveProperty('set-cookie');
  const late = pathOf(door.link());
  nowMs += 10 * 60_000;
  expect((await ask(late)).status).toBe(401);
});

test('of many browsers with one link one gets in, and wrong links neither get in nor use it up', async () => {
  const path = pathOf(door.link());
  const guesses = Array.from({ length: 50 }, (_, n) => `/sign-in?token=${n === 0 ? '' : 'A'.repeat(42) + (n % 10)}`);
  for (const { status } of await Promise.all(guesses.map(async (guess) => await ask(guess)))) expect(status).toBe(401);
  const answers = await Promise.all(Array.from({ length: 20 }, async () => await ask(path)));
  expect(answers.filter(({ status }) => status === 303).length).toBe(1);
  expect(answers.filter(({ headers }) => headers['set-cookie'] !== undefined).length).toBe(1);
  // 32 random bytes.
  expect(new URL(door.link()).searchParams.get('token')).toMatch(/^[\w-]{43}$/);
});

test('what is asked without the cookie, by another name, from elsewhere or without csrf is refused', async () => {
  const { cookie, csrf } = await signedIn();
  const whole = { ...origin(), cookie, 'x-console-csrf': csrf };
  const refused: [OutgoingHttpHeaders, string, number, string][] = [
    [{}, 'GET', 401, 'not_signed_in'],
    [{ cookie: `${cookie}x` }, 'GET', 401, 'not_signed_in'],
    [{ cookie: `${cookie}; ${cookie}x` }, 'GET', 401, 'not_signed_in'],
    [{ cookie, host: 'rebound.example' }, 'GET', 421, 'host_rejected'],
    [{ cookie, origin: 'http://rebound.example' }, 'GET', 403, 'origin_rejected'],
    [{ cookie, 'sec-fetch-site': 'same-site' }, 'GET', 403, 'origin_rejected'],
    [{ cookie, 'sec-fetch-dest': 'script' }, 'GET', 403, 'origin_rejected'],
    [{ cookie, 'x-console-csrf': csrf }, 'POST', 403, 'origin_rejected'],
    // What a browser asks first for another page that wants to write.
    [
      { origin: 'http://elsewhere.example', 'access-control-request-method': 'POST' },
      'OPTIONS',
      403,
      'origin_rejected',
    ],
    [{ cookie, host: `127.0.0.1.rebound.example:${door.port}` }, 'GET', 421, 'host_rejected'],
    [{ cookie, host: '127.0.0.1' }, 'GET', 421, 'host_rejected'],
    [{ cookie, host: `localhost.:${door.port}` }, 'GET', 421, 'host_rejected'],
    [{ ...whole, origin: 'null' }, 'POST', 403, 'origin_rejected'],
    [{ ...origin(), cookie }, 'POST', 403, 'csrf_rejected'],
    [{ ...whole, 'x-console-csrf': `${csrf}x` }, 'POST', 403, 'csrf_rejected'],
  ];
  for (const [headers, method, status, code] of refused) {
    const answer = await ask('/api/v1/me', headers, method);
    expect([answer.status, JSON.parse(answer.text).code], JSON.stringify(headers)).toEqual([status, code]);
  }
  expect(asked).toEqual([]);
});

test('the Host hears the key of the console, and nothing that the page says of itself', async () => {
  const { cookie, csrf } = await signedIn();
  const planted = {
    authorization: 'Bearer mine',
    'svc-subject': 'host',
    'svc-tenant': 'tn_2',
    'x-forwarded-for': '1.2.3.4',
  };
  const headers = { ...origin(), ...planted, cookie, 'x-console-csrf': csrf, connection: 'svc-protocol' };
  const answer = await ask('/api/v1/sessions/a%2Fb?limit=2', headers, 'POST', '{"a":1}');
  expect(answer).toMatchObject({ status: 200, text: '{"ok":true}' });
  expect(answer.headers['content-security-policy']).toContain('sandbox');
  for (const name of ['set-cookie', 'access-control-allow-origin']) expect(answer.headers).not.toHaveProperty(name);
  expect(asked).toMatchObject([{ url: '/v1/sessions/a%2Fb?limit=2', body: '{"a":1}' }]);
  expect(asked[0]?.headers).toMatchObject({ authorization: `Bearer ${KEY}`, 'svc-tenant': 'tn_1' });
  for (const name of ['cookie', 'origin', 'svc-subject', 'x-forwarded-for', 'x-console-csrf'])
    expect(asked[0]?.headers).not.toHaveProperty(name);
  expect((await ask('/api/v1/../../metrics', { cookie })).status).toBe(404);
});

test.each(Object.keys(ROUTES))(
  '%s: nothing passes the door without a sign-in, its page and its token',
  async (name) => {
    const [method = '', template = ''] = name.split(' ');
    const path = `/api${template.replaceAll(/\{\w+\}/g, 'x')}`;
    const [mine, foreign] = [await signedIn(hostDoor), await signedIn(door)];
    await post(hostDoor, '/console/tenant', mine, JSON.stringify({ tenantId: TENANT }));
    asked = [];
    const at = async (headers: OutgoingHttpHeaders): Promise<unknown> => {
      const answer = await askAt(hostDoor, path, { headers, method });
      return answer.status === 200 ? 200 : codeOf(answer);
    };
    const whole = { ...origin(hostDoor), cookie: mine.cookie, 'x-console-csrf': mine.csrf };
    const isRead = method === 'GET';
    expect(await at(origin(hostDoor))).toBe('not_signed_in');
    expect(await at({ ...whole, cookie: foreign.cookie })).toBe('not_signed_in');
    expect(await at({ ...whole, authorization: `Bearer ${ADMIN_KEY}`, cookie: '' })).toBe('not_signed_in');
    expect(await at({ ...whole, origin: 'http://elsewhere.example' })).toBe('origin_rejected');
    expect(await at({ ...whole, host: 'elsewhere.example' })).toBe('host_rejected');
    expect(asked).toEqual([]);
    const isAdmin = template.startsWith('/v1/admin/');
    const isOpen = !template.startsWith('/v1/');
    const outcome = isOpen ? 'not_found' : isAdmin && !isRead ? 'read_only' : 200;
    // Reading changes nothing, so it takes no token.
    expect(await at({ ...whole, 'x-console-csrf': foreign.csrf })).toBe(isRead ? outcome : 'csrf_rejected');
    asked = [];
    expect(await at(whole)).toBe(outcome);
    const heard = asked.map(({ headers }) => [headers.authorization, headers['svc-tenant']]);
    const key = createHmac('sha256', ADMIN_KEY).update(`studio\0${TENANT}`).digest('hex');
    const wanted = isAdmin ? [`Bearer ${ADMIN_KEY}`, undefined] : [`Bearer ${key}`, TENANT];
    expect(heard).toEqual(outcome === 200 ? [wanted] : []);
  },
);

test('who is signed in reads the document of the API, and nothing else that is outside of it', async () => {
  const who = await signedIn(hostDoor);
  const get = async (path: string, cookie = who.cookie) => await askAt(hostDoor, path, { headers: { cookie } });
  expect(codeOf(await get('/api/openapi.json'))).toBe('tenant_not_chosen');
  await post(hostDoor, '/console/tenant', who, JSON.stringify({ tenantId: TENANT }));
  expect((await get('/api/openapi.json')).status).toBe(200);
  expect(asked.map(({ url }) => url)).toEqual(['/openapi.json']);
  expect(codeOf(await get('/api/openapi.json', ''))).toBe('not_signed_in');
  expect(codeOf(await post(hostDoor, '/api/openapi.json', who))).toBe('not_found');
  for (const path of ['/api/docs', '/api/metrics', '/api/openapi.json/', '/api/openapi.jsonx'])
    expect(codeOf(await get(path)), path).toBe('not_found');
  expect(asked.length).toBe(1);
});

test('with the key of the Host a person chooses the tenant; with that of a tenant there is nothing to choose', async () => {
  const who = await signedIn(hostDoor);
  const get = async (path: string, headers: OutgoingHttpHeaders = {}): Promise<Answer> =>
    await askAt(hostDoor, path, { headers: { cookie: who.cookie, ...headers } });
  expect(JSON.parse((await get('/console/session')).text)).toMatchObject({ tenant: null, host: true });
  expect(codeOf(await get('/api/v1/sessions'))).toBe('tenant_not_chosen');
  for (const bad of ['', '{}', '{"tenantId":"a b"}', `{"tenantId":"${'a'.repeat(2_000)}"}`, '{"tenantId":"a\\r\\nb"}'])
    expect((await post(hostDoor, '/console/tenant', who, bad)).status).toBe(400);
  const chosen = await post(hostDoor, '/console/tenant', who, JSON.stringify({ tenantId: TENANT }));
  expect(JSON.parse(chosen.text)).toMatchObject({ tenant: TENANT, host: true });
  expect((await get('/api/v1/sessions', { 'x-console-tenant': TENANT })).status).toBe(200);
  // A window that still shows another one.
  expect(codeOf(await get('/api/v1/sessions', { 'x-console-tenant': 'tn_2' }))).toBe('tenant_changed');
  // Not the end of the sign-in, which 401 says to a page.
  expect(codeOf(await get('/api/v1/refused'))).toBe('key_refused');
  const fixed = await post(door, '/console/tenant', await signedIn(), JSON.stringify({ tenantId: TENANT }));
  expect([fixed.status, codeOf(fixed)]).toEqual([403, 'tenant_fixed']);
});

test('a new link is for who has the key of the Host, and is no page', async () => {
  const link = async (headers: OutgoingHttpHeaders, at = hostDoor): Promise<Answer> =>
    await askAt(at, '/console/links', { headers, method: 'POST' });
  const authorization = `Bearer ${ADMIN_KEY}`;
  const made = await link({ authorization });
  expect(made.status).toBe(200);
  expect((await askAt(hostDoor, pathOf(JSON.parse(made.text).link), {})).status).toBe(303);
  const { cookie } = await signedIn(hostDoor);
  for (const headers of [{}, { cookie }, { authorization: 'Bearer x' }, { authorization, origin: hostDoor.url }])
    expect((await link(headers)).status).toBe(401);
  expect((await link({ authorization: `Bearer ${KEY}` }, door)).status).toBe(401);
});

test('no second request is hidden in the body of one', async () => {
  const { cookie, csrf } = await signedIn();
  const hidden = ['POST /v1/admin/tenants HTTP/1.1', 'host: x', 'content-length: 0', '', ''].join('\r\n');
  const chunked = [hidden.length.toString(16), hidden, '0', '', ''];
  const head = (method: string) => [
    ...[`${method} /api/v1/sessions HTTP/1.1`, `host: 127.0.0.1:${door.port}`, `origin: ${door.url}`],
    ...[`cookie: ${cookie}`, `x-console-csrf: ${csrf}`, 'connection: close'],
  ];
  const encoding = 'transfer-encoding: chunked';
  const length = `content-length: ${hidden.length}`;
  // A read has no body.
  for (const method of ['GET', 'HEAD']) {
    expect(await shout([...head(method), encoding, '', ...chunked])).toMatch(/^HTTP\/1\.1 400 /);
    expect(await shout([...head(method), length, '', hidden])).toMatch(/^HTTP\/1\.1 400 /);
  }
  // Both, or one that is not understood: which of the two counts is a matter of opinion.
  for (const lines of [
    [encoding, length, '', ...chunked],
    ['transfer-encoding: identity', length, '', hidden],
    ['transfer-encoding: x, chunked', 'content-length: 4', '', ...chunked],
    ['content-length: 0', length, '', hidden],
  ])
    expect(await shout([...head('POST'), ...lines])).toMatch(/^HTTP\/1\.1 400 /);
  expect(asked).toEqual([]);
  for (const method of ['DELETE', 'OPTIONS', 'POST']) {
    expect(await shout([...head(method), encoding, '', ...chunked])).toMatch(/^HTTP\/1\.1 200 /);
    // The next one on the same connection to the Host gets its own answer.
    expect((await ask('/api/v1/refused', { cookie })).status).toBe(403);
  }
  expect(asked.map(({ url, body }) => [url, body])).toEqual(
    ['DELETE', 'OPTIONS', 'POST'].flatMap(() => [
      ['/v1/sessions', hidden],
      ['/v1/refused', ''],
    ]),
  );
});

test('who sends slowly, sends too much or does not read is left', async () => {
  const { cookie, csrf } = await signedIn();
  const host = `host: 127.0.0.1:${door.port}`;
  expect(await shout(['GET / HTTP/1.1', 'x-slow: '])).toMatch(/^(?:HTTP\/1\.1 408 |$)/);
  expect(await shout(['GET / HTTP/1.1', host, 'content-length: 999999999', '', 'x'])).toMatch(/^HTTP\/1\.1 400 /);
  const choose = ['POST /console/tenant HTTP/1.1', host, `origin: ${door.url}`, `cookie: ${cookie}`];
  const much = [`x-console-csrf: ${csrf}`, 'content-length: 999999999', '', 'x'];
  expect(await shout([...choose, ...much])).toMatch(/^HTTP\/1\.1 4\d\d /);
  expect(await shout(['GET /api/v1/stream HTTP/1.1', host, `cookie: ${cookie}`, '', ''])).toContain('data: 1');
});

test('what was shown stays in no cache', async () => {
  const { cookie } = await signedIn();
  for (const path of ['/api/v1/sessions', '/api/v1/refused', '/console/session'])
    expect((await ask(path, { cookie })).headers['cache-control'], path).toBe('no-store');
});

test('a stream arrives while it lasts, and ends at the Host when the page leaves', async () => {
  const { cookie } = await signedIn();
  const reading = httpRequest({
    host: '127.0.0.1',
    port: new URL(door.url).port,
    path: '/api/v1/stream',
    headers: { cookie },
  });
  const left = new Promise((resolve) => host.once('request', (_request, response) => response.once('close', resolve)));
  reading.end();
  const [answer] = await once(reading, 'response');
  const [chunk] = await once(answer, 'data');
  expect(String(chunk)).toBe('data: 1\n\n');
  answer.destroy();
  await left;
});

test('a stream ends with the sign-in that it belongs to', async () => {
  const stream = async (cookie: string): Promise<{ ended: Promise<unknown> }> => {
    const reading = httpRequest({ host: '127.0.0.1', port: door.port, path: '/api/v1/stream', headers: { cookie } });
    reading.end();
    const [answer] = await once(reading, 'response');
    await once(answer, 'data');
    // Not as if the Host had ended it.
    return { ended: once(answer, 'error') };
  };
  const [out, stays] = [await signedIn(), await signedIn()];
  const { ended } = await stream(out.cookie);
  const other = await stream(stays.cookie);
  await post(door, '/console/sign-out', out);
  expect(await ended).toMatchObject([{ code: 'ECONNRESET' }]);
  // Whoever asks next finds those that are late.
  nowMs += 24 * HOUR_MS;
  await ask('/console/session', { cookie: 'none=1' });
  await signedIn();
  expect(await other.ended).toMatchObject([{ code: 'ECONNRESET' }]);
});

test('a sign-in ends: by signing out, after 8 hours unused, and after 24 in any case', async () => {
  const out = await signedIn();
  const leave = { ...origin(), cookie: out.cookie, 'x-console-csrf': out.csrf };
  expect((await ask('/console/sign-out', leave, 'POST')).status).toBe(200);
  expect((await ask('/console/session', { cookie: out.cookie })).status).toBe(401);
  const { cookie } = await signedIn();
  for (let used = 0; used < 3; used += 1) {
    nowMs += 7 * HOUR_MS;
    expect((await ask('/console/session', { cookie })).status).toBe(200);
  }
  nowMs += 3 * HOUR_MS;
  expect((await ask('/console/session', { cookie })).status).toBe(401);
  const idle = await signedIn();
  nowMs += 8 * HOUR_MS;
  expect((await ask('/console/session', { cookie: idle.cookie })).status).toBe(401);
});

test('no answer has the key', () => {
  expect(texts.length).toBeGreaterThan(20);
  expect(texts.filter((text) => text.includes(KEY) || text.includes(ADMIN_KEY))).toEqual([]);
});

import { once } from 'node:events';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, request as httpRequest } from 'node:http';
import type { IncomingHttpHeaders, OutgoingHttpHeaders, Server } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { openDoor } from '#src/console/server/door.ts';
import type { Door } from '#src/console/server/door.ts';

/** The door of the console, in front of a Host that shows what it was asked. */
const KEY = 'key-of-the-console-that-stays-here';
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
let nowMs = Date.parse('2026-11-23T10:00:00Z');
const texts: string[] = [];

/** As written, without what a browser or `fetch` would put right. */
async function ask(path: string, headers: OutgoingHttpHeaders = {}, method = 'GET', body = ''): Promise<Answer> {
  const sent = httpRequest({ host: '127.0.0.1', port: new URL(door.url).port, path, method, headers });
  sent.end(body);
  const [answer] = await once(sent, 'response');
  let text = '';
  for await (const chunk of answer.setEncoding('utf8')) text += chunk;
  texts.push(text + JSON.stringify(answer.headers));
  return { status: answer.statusCode, headers: answer.headers, text };
}

const origin = () => ({ origin: door.url, 'content-type': 'application/json' });
const tokenOf = (link: string) => new URL(link).hash.slice(1);
const enter = async (token: string) => await ask('/console/sign-in', origin(), 'POST', JSON.stringify({ token }));

async function signedIn(): Promise<{ cookie: string; csrf: string }> {
  const answer = await enter(tokenOf(door.link()));
  expect(answer.status).toBe(200);
  const [cookie = ''] = (answer.headers['set-cookie'] ?? [])[0]?.split(';') ?? [];
  return { cookie, csrf: JSON.parse(answer.text).csrf };
}

beforeAll(async () => {
  host = createServer((request, response) => {
    let body = '';
    request.setEncoding('utf8').on('data', (text: string) => (body += text));
    request.on('end', () => {
      asked.push({ url: request.url ?? '', headers: request.headers, body });
      response.setHeader('set-cookie', 'planted=1').setHeader('access-control-allow-origin', '*');
      if (request.url === '/v1/stream')
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
  const upstream = { url: `http://127.0.0.1:${port}`, tenant: 'tn_1', key: KEY };
  door = await openDoor({ upstream, directory, port: 0, now: () => nowMs });
});

beforeEach(() => {
  asked = [];
});

afterAll(async () => {
  await door.close();
  host.closeAllConnections();
  host.close();
  await rm(directory, { recursive: true, force: true });
});

test('pages are answered with their policy, and no path leads out of them', async () => {
  const page = await ask('/sessions/one', { accept: 'text/html' });
  expect(page).toMatchObject({ status: 200, text: '<!doctype html>' });
  expect(page.headers['content-security-policy']).toContain("script-src 'self'; style-src 'self'");
  expect(page.headers).toMatchObject({ 'x-frame-options': 'DENY', 'cache-control': 'no-cache' });
  expect((await ask('/assets/main-1.js')).headers['cache-control']).toContain('immutable');
  for (const path of ['/../package.json', '/assets/%2e%2e/%2e%2e/package.json', '/..%2fpackage.json', '//etc/passwd'])
    expect((await ask(path)).status, path).toBe(404);
});

test('a link works once, and for ten minutes', async () => {
  const token = tokenOf(door.link());
  const first = await enter(token);
  expect(first.headers['set-cookie']?.[0]).toMatch(/; Path=\/; HttpOnly; SameSite=Strict$/);
  expect((await enter(token)).status).toBe(401);
  const late = tokenOf(door.link());
  nowMs += 10 * 60_000;
  expect((await enter(late)).status).toBe(401);
  expect((await ask('/console/sign-in', origin(), 'POST', `{"token":"${'a'.repeat(5_000)}"}`)).status).toBe(401);
});

test('what is asked without the cookie, by another name, from elsewhere or without csrf is refused', async () => {
  const { cookie, csrf } = await signedIn();
  const post = { ...origin(), cookie, 'x-console-csrf': csrf };
  const refused: [OutgoingHttpHeaders, string, number, string][] = [
    [{}, 'GET', 401, 'not_signed_in'],
    [{ cookie: `${cookie}x` }, 'GET', 401, 'not_signed_in'],
    [{ cookie: `${cookie}; ${cookie}x` }, 'GET', 401, 'not_signed_in'],
    [{ cookie, host: 'rebound.example' }, 'GET', 421, 'host_rejected'],
    [{ cookie, origin: 'http://rebound.example' }, 'GET', 403, 'origin_rejected'],
    [{ cookie, 'sec-fetch-site': 'same-site' }, 'GET', 403, 'origin_rejected'],
    [{ cookie, 'sec-fetch-dest': 'script' }, 'GET', 403, 'origin_rejected'],
    [{ cookie, 'x-console-csrf': csrf }, 'POST', 403, 'origin_rejected'],
    [{ ...post, origin: 'null' }, 'POST', 403, 'origin_rejected'],
    [{ ...origin(), cookie }, 'POST', 403, 'csrf_rejected'],
    [{ ...post, 'x-console-csrf': `${csrf}x` }, 'POST', 403, 'csrf_rejected'],
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
  const answer = await ask('/api/v1/sessions?limit=2', headers, 'POST', '{"a":1}');
  expect(answer).toMatchObject({ status: 200, text: '{"ok":true}' });
  expect(answer.headers['content-security-policy']).toContain('sandbox');
  for (const name of ['set-cookie', 'access-control-allow-origin']) expect(answer.headers).not.toHaveProperty(name);
  expect(asked).toMatchObject([{ url: '/v1/sessions?limit=2', body: '{"a":1}' }]);
  expect(asked[0]?.headers).toMatchObject({ authorization: `Bearer ${KEY}`, 'svc-tenant': 'tn_1' });
  for (const name of ['cookie', 'origin', 'svc-subject', 'x-forwarded-for', 'x-console-csrf'])
    expect(asked[0]?.headers).not.toHaveProperty(name);
  expect((await ask('/api/v1/../../metrics', { cookie })).status).toBe(404);
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
  expect(texts.filter((text) => text.includes(KEY))).toEqual([]);
});

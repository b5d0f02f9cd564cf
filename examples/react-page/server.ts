/** The backend of a page: it knows who a person is, and passes the page's requests on to the Host. See the README beside it. */
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { createClient } from 'agent-runtime-host/client';
import { build } from 'rolldown';

// Where the Host is, and a key for it: the file that `agent-host init` wrote. The key stays in this process.
const file = process.env['AGENT_HOST_CONTEXT'] ?? `${homedir()}/.config/agent-host/context.json`;
const { url, tenant, key } = JSON.parse(await readFile(file, 'utf8'));
const client = createClient({ url, tenant, key });
await client.agents.save('shop', {
  instructions: 'You help the customers of a shop.',
  model: { provider: 'fixture', model: 'any' },
  tools: [{ name: 'refund', inputSchema: { type: 'object' }, approval: 'always' }],
});
const token = `shop-${randomUUID()}`;
await client.request('PUT /v1/executors', { body: { executors: [{ agentId: 'shop', token }] } });
const executor = createClient({ url, tenant, key: token }).executor('shop', {
  refund: ({ order }) => `paid: ${order}`,
});

const { output } = await build({
  ...{ input: join(import.meta.dirname, 'page.tsx'), write: false, platform: 'browser', logLevel: 'warn' },
  transform: { define: { 'process.env.NODE_ENV': '"production"' } },
});
const HTML =
  '<!doctype html><meta charset="utf-8"><title>Shop</title><div id="root"></div><script type="module" src="/page.js"></script>';

/** Who a browser is, by its cookie. Here each browser is a person of its own; an application of yours has a sign-in. */
const people = new Map<string, string>();

function personOf({ headers }: IncomingMessage): string | undefined {
  return people.get(/(?:^|; )visitor=([^;]+)/.exec(headers.cookie ?? '')?.[1] ?? '');
}

/** Another site may make a browser send a request with its cookie, but not without naming itself. */
function isOfAnotherSite({ headers }: IncomingMessage): boolean {
  return headers.origin !== undefined && headers.origin !== `http://${headers.host}`;
}

/** Of what a browser sends, these alone reach the Host: no cookie, no `Origin`, no credential that a page made up. */
const PASSED = ['accept', 'content-type', 'last-event-id', 'svc-protocol'];

/** Messages of people, not files. */
async function bodyOf(request: IncomingMessage): Promise<string> {
  let body = '';
  for await (const chunk of request.setEncoding('utf8')) {
    body += String(chunk);
    if (body.length > 100_000) throw new Error('too long');
  }
  return body;
}

/** An agent of the page's own, or another one of the tenant, would have other tools and no approvals. */
function isOfAnotherAgent(body: string): boolean {
  const parsed: unknown = body === '' ? null : JSON.parse(body);
  if (typeof parsed !== 'object' || parsed === null) return false;
  return 'manifest' in parsed || ('agentId' in parsed && parsed.agentId !== 'shop');
}

async function passOn(request: IncomingMessage, response: ServerResponse, path: string): Promise<void> {
  const person = personOf(request);
  // As it will be called: without what leads back up, as in `/v1/sessions/../agents`.
  const target = new URL(`${url}${path}`);
  if (person === undefined || isOfAnotherSite(request) || !target.pathname.startsWith('/v1/sessions/')) {
    return void response.writeHead(403).end();
  }
  const body = request.method === 'GET' ? undefined : await bodyOf(request);
  if (body !== undefined && isOfAnotherAgent(body)) return void response.writeHead(403).end();
  const gone = new AbortController();
  response.on('close', () => gone.abort());
  const given = PASSED.map((name) => [name, request.headers[name]]).filter(([, value]) => typeof value === 'string');
  const credential = { authorization: `Bearer ${key}`, 'svc-tenant': tenant };
  const answer = await fetch(target, {
    method: request.method ?? 'GET',
    // The Host lets this person see sessions of this person, and nothing else.
    headers: { ...Object.fromEntries(given), ...credential, 'svc-subject': person, 'svc-scopes': 'sessions:own' },
    ...(body === undefined ? {} : { body }),
    signal: gone.signal,
  });
  response.writeHead(answer.status, {
    'content-type': answer.headers.get('content-type') ?? 'application/json',
    'cache-control': 'no-store',
  });
  // A stream's headers reach the page before its first record.
  response.flushHeaders();
  for await (const chunk of answer.body ?? [])
    if (!response.write(chunk)) await once(response, 'drain', { signal: gone.signal });
  response.end();
}

function show(request: IncomingMessage, response: ServerResponse): void {
  if (request.url === '/page.js')
    return void response.writeHead(200, { 'content-type': 'text/javascript' }).end(output[0].code);
  const visitor = randomUUID();
  const isNew = personOf(request) === undefined;
  if (isNew) people.set(visitor, `visitor-${visitor}`);
  const cookie = `visitor=${visitor}; HttpOnly; SameSite=Strict; Path=/`;
  response.writeHead(200, { 'content-type': 'text/html', ...(isNew ? { 'set-cookie': cookie } : {}) }).end(HTML);
}

const server = createServer((request, response) => {
  const path = request.url ?? '/';
  if (!path.startsWith('/agents/')) return show(request, response);
  passOn(request, response, path.slice('/agents'.length)).catch(() =>
    response.headersSent ? response.destroy() : response.writeHead(502).end(),
  );
});
server.listen(Number(process.env['PORT'] ?? 8080), '127.0.0.1', () => {
  const address = server.address();
  console.log(`Open http://127.0.0.1:${typeof address === 'object' ? address?.port : ''}/`);
});
for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.once(signal, () => {
    server.close();
    server.closeAllConnections();
    void executor.stop();
  });
}

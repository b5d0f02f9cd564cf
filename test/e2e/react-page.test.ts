import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { cp, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { get } from 'node:http';
import type { IncomingMessage } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { Window } from 'happy-dom';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { AdminClient } from '../support/client.ts';
import type { TenantClient } from '../support/client.ts';
import { installPackage, says, start } from '../support/example.ts';
import type { Program } from '../support/example.ts';
import { startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { until } from '../support/wait-until.ts';
import { ROOT } from '../tidy/tree.ts';

const SOON_MS = 120_000;
/** The page's `fetch` takes the place of the process's. */
const realFetch = fetch;
const FOLDER = join(ROOT, 'examples/react-page');

describe('the page in React', () => {
  let host: Host;
  let tenant: TenantClient;
  let project: string;
  let server: Program;
  let address: string;
  const sent: string[] = [];
  let restore = (): void => undefined;

  beforeAll(async () => {
    host = await startHost();
    tenant = await new AdminClient(host).createTenant();
    project = await mkdtemp(join(tmpdir(), 'agent-host-page-'));
    await installPackage(project, ['react', 'react-dom', 'scheduler', 'rolldown']);
    for (const name of ['server.ts', 'page.tsx']) await cp(join(FOLDER, name), join(project, name));
    const { url, tenantId, key } = tenant.credentials;
    await writeFile(join(project, 'context.json'), JSON.stringify({ url, tenant: tenantId, key }));
    const env = { AGENT_HOST_CONTEXT: join(project, 'context.json'), PORT: '0' };
    server = start(process.execPath, [join(project, 'server.ts')], env);
    await says(server, 'Open http://');
    address = /http:\S+\/$/m.exec(server.said())?.[0] ?? '';
  });

  afterAll(async () => {
    restore();
    await server?.[Symbol.asyncDispose]();
    await host[Symbol.asyncDispose]();
    await rm(project, { recursive: true, force: true });
  });

  test(
    'type-checks',
    () => {
      const tsc = join(ROOT, 'node_modules/typescript/bin/tsc');
      const { stdout, status } = spawnSync(process.execPath, [tsc, '--noEmit', '-p', FOLDER], { encoding: 'utf8' });
      expect(stdout).toBe('');
      expect(status).toBe(0);
    },
    SOON_MS,
  );

  test('a person talks, approves and sees it happen, and no key reaches the browser', async () => {
    const opened = await realFetch(address);
    const cookie = opened.headers.getSetCookie()[0]?.split(';')[0] ?? '';
    expect(opened.headers.get('set-cookie')).toMatch(/; HttpOnly; SameSite=Strict;/);
    const script = await (await realFetch(new URL('/page.js', address))).text();
    for (const text of [await opened.text(), script]) expect(text).not.toContain(tenant.credentials.key);

    const window = new Window({ url: address });
    const closing = new AbortController();
    window.document.body.innerHTML = '<div id="root"></div>';
    // As a browser sends it: relative to the page, with its cookie and its origin.
    const browserFetch = async (path: string, init: RequestInit): Promise<Response> => {
      // A page that is closed sends nothing more.
      if (closing.signal.aborted) return Response.json({ code: 'not_found', message: 'closed' }, { status: 404 });
      sent.push(JSON.stringify(init.headers));
      const signal = AbortSignal.any([closing.signal, ...(init.signal ? [init.signal] : [])]);
      const headers = { ...(init.headers as Record<string, string>), cookie, origin: new URL(address).origin };
      return await realFetch(new URL(path, address), { ...init, headers, signal });
    };
    const { document, location } = window;
    restore = replaceGlobals({ window, document, location, fetch: browserFetch });
    try {
      const file = join(project, 'page.mjs');
      await writeFile(file, script);
      await import(pathToFileURL(file).href);
      const body = (): string => document.body.textContent;
      const click = async (text: string): Promise<void> => {
        const found = (): { click: () => void } | undefined =>
          [...document.querySelectorAll('button')].find((button) => button.textContent === text);
        await until(`there is a button ${text}`, () => found() !== undefined, SOON_MS);
        found()?.click();
      };
      await click('Refund my order');
      await until('it is asked', () => body().includes('Allow refund {"order":"1042"}?'), SOON_MS);
      await click('Yes');
      await until('the tool ran', () => body().includes('echo: paid: 1042'), SOON_MS);
      await until('nothing is asked any more', () => !body().includes('Allow refund'), SOON_MS);
      expect(sent.join()).not.toMatch(/authorization|svc-tenant|svc-subject/);
      closing.abort();
      await until('it says why nothing more comes', () => body() === 'closed', SOON_MS);
    } finally {
      closing.abort();
      await window.happyDOM.close();
    }
  });

  test('the route passes on what a visitor of this page may, and nothing else', async () => {
    const cookieOf = async (): Promise<string> =>
      (await realFetch(address)).headers.getSetCookie()[0]?.split(';')[0] ?? '';
    const [ann, bob] = [await cookieOf(), await cookieOf()];
    const call = async (path: string, headers: Record<string, string>, init: RequestInit = {}): Promise<number> =>
      (await realFetch(new URL(`/agents${path}`, address), { ...init, headers: { 'svc-protocol': '8', ...headers } }))
        .status;
    const body = { method: 'PUT', body: JSON.stringify({ agentId: 'shop' }) };
    const json = { 'content-type': 'application/json' };
    expect(await call('/v1/sessions/of-ann', { ...json, cookie: ann }, body)).toBe(200);
    expect(await call('/v1/sessions/of-ann', { cookie: ann })).toBe(200);
    expect(await call('/v1/sessions/of-ann', { cookie: bob })).toBe(404);
    expect(await call('/v1/sessions/of-ann', {})).toBe(403);
    await tenant.saveAgent('other');
    for (const wanted of [{ agentId: 'other' }, { agentId: 'shop', manifest: { instructions: 'x' } }])
      expect(
        await call('/v1/sessions/elsewhere', { ...json, cookie: ann }, { ...body, body: JSON.stringify(wanted) }),
      ).toBe(403);
    expect(await call('/v1/sessions/of-ann', { cookie: ann, origin: 'https://other.example' })).toBe(403);
    expect(await call('/v1/agents', { cookie: ann })).toBe(403);
    expect(await rawStatus('/agents/v1/sessions/../agents/shop', ann)).toBe(403);
    expect(await rawStatus('/agents/v1/sessions/%2e%2e/agents/shop', ann)).toBe(403);
    expect(await rawStatus('/agents//127.0.0.1:9/v1/sessions/x', ann)).toBe(403);
    expect(await call('/v1/sessions/of-ann', { cookie: bob, 'svc-subject': 'x', authorization: 'Bearer x' })).toBe(404);
  });

  /** Of a path as it is written: `fetch` would tidy it up. */
  async function rawStatus(path: string, cookie: string): Promise<number | undefined> {
    const { hostname, port } = new URL(address);
    const request = get({ hostname, port, path, headers: { cookie, 'svc-protocol': '8' } });
    const [response] = (await once(request, 'response')) as [IncomingMessage];
    response.resume();
    return response.statusCode;
  }

  test('it ends when it is told to', async () => {
    server.signal('SIGTERM');
    expect(await server.ended, server.said()).toBe(0);
  });
});

/** Sets names of a browser in this process. Returns what sets them back. */
function replaceGlobals(values: Readonly<Record<string, unknown>>): () => void {
  const before = Object.keys(values).map((name) => [name, Object.getOwnPropertyDescriptor(globalThis, name)] as const);
  for (const [name, value] of Object.entries(values))
    Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
  return () => {
    for (const [name, descriptor] of before) {
      if (descriptor === undefined) Reflect.deleteProperty(globalThis, name);
      else Object.defineProperty(globalThis, name, descriptor);
    }
  };
}

import { createServer as createHttps } from 'node:https';
import { createServer } from 'node:http';
import type { IncomingMessage, RequestListener } from 'node:http';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer as createTcp } from 'node:net';
import type { AddressInfo, Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import * as boxes from '#src/http/wire/sandboxes.ts';
import * as wire from '#src/http/wire/schemas.ts';
import { shaped } from '../conformance/http/target.ts';
import { AdminClient } from '../support/client.ts';
import type { EventRecord, TenantClient } from '../support/client.ts';
import { startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { holds, planted } from '../support/planted.ts';
import { podWays } from '../support/pods.ts';
import { testCertificate } from '../support/test-certificate.ts';

const TURN_MS = 90_000;
/** More than the Host holds of any body. */
const LARGE_MIB = 48;
const id = z.looseObject({ id: z.string() });
const SECRET = planted('sandbox-secret');

interface Seen {
  readonly path: string;
  readonly method: string;
  readonly authorization: string | undefined;
  readonly body: string;
}

let host: Host;
let tenant: TenantClient;
let certificates: string;
const seen: Seen[] = [];
const servers: { close: () => unknown }[] = [];
/** Ports: a server in the clear, one with TLS, one that only echoes bytes, and one that no sandbox is allowed. */
const ports = { http: 0, https: 0, echo: 0, other: 0 };

async function bodyOf(request: IncomingMessage): Promise<string> {
  const chunks = await request.toArray();
  return Buffer.concat(chunks as Buffer[]).toString();
}

/** Requests that get no answer, and those of them that their senders have given up. */
const silent = { arrived: 0, 'given up': 0 };

/** Answers of a kind of their own; true: it was one of them. */
const special: (...of: Parameters<RequestListener>) => boolean = (request, response) => {
  const url = new URL(request.url ?? '/', 'http://server.test');
  if (url.pathname === '/silent') {
    silent.arrived += 1;
    response.on('close', () => (silent['given up'] += 1));
  } else if (url.pathname === '/silences') response.end(JSON.stringify(silent));
  else if (url.pathname === '/large') {
    void pipeline(
      Array.from({ length: LARGE_MIB }, () => Buffer.alloc(1_048_576, 'x')),
      response,
    );
  } else if (url.pathname === '/count') {
    let bytes = 0;
    request.on('data', (chunk: Buffer) => (bytes += chunk.length));
    request.on('end', () => response.end(`${bytes} bytes of ${request.headers['content-length']}`));
  } else return false;
  return true;
};

/** Repeats what it is sent, its credential too; redirects to where the query says. */
const repeats: RequestListener = (request, response) => {
  if (special(request, response)) return;
  void bodyOf(request).then((body) => {
    const url = new URL(request.url ?? '/', 'http://server.test');
    const { authorization } = request.headers;
    seen.push({ path: url.pathname, method: request.method ?? '', authorization, body });
    const to = url.searchParams.get('to');
    if (to !== null) response.writeHead(302, { location: to });
    else response.setHeader('x-repeated', authorization ?? 'none');
    response.end(`got ${request.method} ${authorization ?? 'nothing'} ${body}`);
  });
};

async function listening(server: Server): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', () => resolve()));
  servers.push(server);
  return (server.address() as AddressInfo).port;
}

beforeAll(async () => {
  const certificate = testCertificate();
  ports.http = await listening(createServer(repeats));
  ports.https = await listening(createHttps(certificate, repeats));
  ports.other = await listening(createServer(repeats));
  ports.echo = await listening(createTcp((socket) => socket.on('error', () => undefined).pipe(socket)));
  certificates = mkdtempSync(join(tmpdir(), 'agent-host-certificates-'));
  writeFileSync(join(certificates, 'ca.pem'), certificate.cert);
  host = await startHost({ env: { NODE_EXTRA_CA_CERTS: join(certificates, 'ca.pem') } });
  tenant = await new AdminClient(host).createTenant();
  await tenant.saveAgent('surfer', { sandboxTools: true });
});

afterAll(async () => {
  await host[Symbol.asyncDispose]();
  for (const server of servers) server.close();
  rmSync(certificates, { recursive: true });
});

const allowed = () => [
  ...[`127.0.0.1:${ports.http}`, `127.0.0.1:${ports.https}`, `127.0.0.1:${ports.echo}`],
  ...['169.254.169.254', 'metadata.google.internal', '10.1.2.3', '*.example.invalid'],
];

let sessions = 0;

interface Played {
  readonly items: readonly EventRecord[];
  readonly outcome: { readonly stdout: string; readonly stderr: string; readonly exitCode: number };
  readonly sandboxId: string;
  readonly sessionId: string;
}

async function played(kind: string, command: string, vaultIds: readonly string[] = []): Promise<Played> {
  const sessionId = `${kind}-${++sessions}`;
  const sandbox = { kind, spec: { network: { allow: allowed() } } };
  const { sandboxId } = await tenant.openSession(sessionId, { agentId: 'surfer', sandbox, vaultIds });
  const { turnId } = await tenant.play(sessionId, [
    { toolCalls: [{ name: 'bash', input: { command, timeoutSeconds: 120 } }] },
    { text: 'done' },
  ]);
  const end = await tenant.turnEnd(sessionId, turnId, TURN_MS);
  expect(end.type, JSON.stringify(end.payload)).toBe('turn.completed');
  const items = await tenant.items(sessionId);
  const [outcome] = items.flatMap((item) => (item.type === 'action.completed' ? [item.payload.outcome] : []));
  const result = z.object({ stdout: z.string(), stderr: z.string(), exitCode: z.int() });
  const done = z.object({ output: result }).safeParse(outcome);
  if (!done.success) throw new Error(JSON.stringify(outcome));
  return { items, outcome: done.data.output, sandboxId: sandboxId ?? '', sessionId };
}

/** Commands that ask for a URL, and write the answer or what went wrong; programs of the machine may be few. */
const asks: Readonly<Record<string, (url: string, method?: string) => string>> = {
  virtual: (url, method = 'GET') => `curl -sS -X ${method} '${url}'; echo`,
  pod: (url, method = 'GET') =>
    `exec 3<>/dev/tcp/127.0.0.1/\${HTTP_PROXY##*:}; printf '${method} ${url} HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n' >&3; cat <&3; exec 3>&-; echo`,
};
const kinds = podWays().length > 0 ? ['virtual', 'pod'] : ['virtual'];

describe.each(kinds)('the network of a sandbox: %s', (kind) => {
  const ask = asks[kind] ?? (() => '');

  test('leads to the hosts that its spec allows, and to no others', async () => {
    const at = (port: number, path = '/') => `http://127.0.0.1:${port}${path}`;
    const before = seen.length;
    const script = [at(ports.http, '/here'), at(ports.other), 'http://10.1.2.3/', 'http://api.example.invalid/'];
    const urls = [...script, `${at(ports.http, '/away')}?to=${encodeURIComponent(at(ports.other))}`];
    const { outcome } = await played(
      kind,
      [...urls, 'http://169.254.169.254/latest/'].map((url) => ask(url)).join('\n'),
    );
    const { stdout, stderr } = outcome;
    const all = `${stdout}${stderr}`;
    expect(stdout).toContain('got GET nothing');
    expect(all).toContain(`127.0.0.1:${ports.other} is not in network.allow of the sandbox`);
    expect(all).toContain('this Host does not call 10.1.2.3');
    expect(all).toContain('this Host does not call api.example.invalid');
    expect(all).toContain('this Host does not call 169.254.169.254');
    expect(seen.slice(before).map(({ path }) => path)).toEqual(['/here', '/away']);
  });

  test('carries a credential that the sandbox never has', async () => {
    const vault = { requestId: 'r', idempotencyKey: `${kind}-v`, name: 'keys', subject: 'ann' };
    const { id: vaultId } = id.parse((await tenant.request({ method: 'POST', path: '/v1/vaults', body: vault })).json);
    const keep = async (name: string, url: string): Promise<void> => {
      const auth = { type: 'bearer', url, token: SECRET };
      const body = { requestId: 'r', idempotencyKey: `${kind}-${name}`, name, auth };
      const path = `/v1/vaults/${vaultId}/credentials`;
      expect((await tenant.request({ method: 'POST', path, body })).status).toBe(201);
    };
    await keep('clear', `http://127.0.0.1:${ports.http}/api`);
    await keep('secure', `https://127.0.0.1:${ports.https}/api`);
    const before = seen.length;
    const outside = `${encodeURIComponent(`http://127.0.0.1:${ports.https}/api/redirected`)}`;
    const urls = [
      `http://127.0.0.1:${ports.http}/api/one`,
      `http://127.0.0.1:${ports.http}/other`,
      // With TLS from the Host on.
      `http://127.0.0.1:${ports.https}/api/two`,
      ...(kind === 'virtual' ? [`https://127.0.0.1:${ports.https}/api/three`] : []),
      `http://127.0.0.1:${ports.http}/other?to=${outside}`,
    ];
    const script = [...urls.map((url) => ask(url, 'POST')), 'env > env; cat /proc/self/environ > environ'].join('\n');
    const { items, outcome, sandboxId, sessionId } = await played(kind, `{ ${script}\n} > out 2>&1; cat out`, [
      vaultId,
    ]);
    const bearer = `Bearer ${SECRET}`;
    const used = seen.slice(before).map(({ path, authorization }) => [path, authorization]);
    expect(used).toEqual([
      ['/api/one', bearer],
      ['/other', undefined],
      ['/api/two', bearer],
      ...(kind === 'virtual' ? [['/api/three', bearer]] : []),
      ['/other', undefined],
      // This curl follows redirects; each step has the credential for where it leads, or none.
      ...(kind === 'virtual' ? [['/api/redirected', bearer]] : []),
    ]);
    expect(outcome.stdout).toContain('got POST Bearer [redacted]');

    const tree = shaped(await tenant.request({ path: `/v1/sandboxes/${sandboxId}/tree` }), 200, boxes.tree);
    expect(tree.files.map(({ path }) => path)).toContain('out');
    const texts = [JSON.stringify(items), JSON.stringify(outcome), host.output()];
    for (const { path } of tree.files)
      texts.push((await tenant.request({ path: `/v1/sandboxes/${sandboxId}/files/${path}` })).text);
    const trail = await tenant.request({ path: '/v1/tenant/audit?limit=200' });
    const secrets = new Map([['secret', SECRET]]);
    for (const text of [...texts, trail.text]) expect(holds(text, secrets)).toEqual([]);
    const uses = shaped(trail, 200, wire.auditTrail).entries.filter(
      ({ action, details }) => action === 'credential.used' && details['sessionId'] === sessionId,
    );
    expect(uses.map(({ details }) => [details['purpose'], details['url']]).toReversed()).toEqual(
      used.flatMap(([path, authorization]) => {
        const isSecure = ['/api/two', '/api/three', '/api/redirected'].includes(String(path));
        const origin = isSecure ? `https://127.0.0.1:${ports.https}` : `http://127.0.0.1:${ports.http}`;
        return authorization === undefined ? [] : [['sandbox', `${origin}${String(path)}`]];
      }),
    );
  });
});

describe.runIf(kinds.includes('pod'))('requests in the clear through the proxy of a pod', () => {
  const open = (fd = 3) => `exec ${fd}<>/dev/tcp/127.0.0.1/\${HTTP_PROXY##*:}`;
  const head = (method: string, path: string, { more = '', fd = 3 } = {}) =>
    `printf '${method} http://127.0.0.1:${ports.http}${path} HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n${more}\\r\\n' >&${fd}`;

  test('pass as they come, however large they are', async () => {
    const bytes = LARGE_MIB * 1_048_576;
    const upload = `${open()}; ${head('POST', '/count', { more: `Content-Length: ${bytes}\\r\\n` })}; head -c ${bytes} /dev/zero >&3; cat <&3`;
    const download = `${open()}; ${head('GET', '/large')}; grep -aoE 'x+' <&3 | tr -d '\\n' | wc -c`;
    const { outcome } = await played('pod', `${upload}; exec 3>&-; echo; ${download}`);
    expect(outcome.stdout).toContain(`${bytes} bytes of ${bytes}`);
    expect(outcome.stdout.trimEnd().split('\n').at(-1)).toBe(String(bytes));
  });

  test('end at the server when the command gives them up', async () => {
    const until = (what: keyof typeof silent) =>
      `for n in $(seq 300); do ${open(4)}; ${head('GET', '/silences', { fd: 4 })}; grep -aq '"${what}":1' <&4 && { echo ${what}; break; }; exec 4>&-; sleep 0.1; done`;
    const script = `${open()}; ${head('GET', '/silent')}; ${until('arrived')}; exec 3>&-; ${until('given up')}`;
    const { outcome } = await played('pod', script);
    expect(outcome.stdout).toBe('arrived\ngiven up\n');
  });
});

describe.runIf(kinds.includes('pod'))('connections through the proxy of a pod', () => {
  const dial = (target: string) =>
    `exec 3<>/dev/tcp/127.0.0.1/\${HTTP_PROXY##*:}; printf 'CONNECT ${target} HTTP/1.1\\r\\n\\r\\n' >&3; read -r first <&3; echo "$first"`;

  test('are made to allowed hosts, and their bytes pass as they are', async () => {
    const script = `${dial(`127.0.0.1:${ports.echo}`)}; read -r empty <&3; printf 'hello\\n' >&3; read -r back <&3; echo "$back"`;
    const { outcome } = await played('pod', script);
    expect(outcome.stdout).toMatch(/^HTTP\/1\.1 200 [^\n]*\nhello\n$/);
  });

  test.each(['127.0.0.1:1', 'localhost:443', '169.254.169.254:80', '[::1]:443', '127.0.0.1', 'x@127.0.0.1:1'])(
    'are refused to %s',
    async (target) => {
      const { outcome } = await played('pod', dial(target));
      expect(outcome.stdout).toMatch(/^HTTP\/1\.1 403 Forbidden/);
    },
  );

  test('are refused to a port of what is not encrypted, as requests in the clear are', async () => {
    const { outcome } = await played('pod', `${dial('api.example.invalid:80')}; cat <&3`);
    expect(outcome.stdout).toContain('this Host does not call api.example.invalid; it may call it with https');
  });
});

test('a sandbox whose spec allows nothing has no network', async () => {
  for (const kind of kinds) {
    const sessionId = `${kind}-none`;
    await tenant.openSession(sessionId, { agentId: 'surfer', sandbox: { kind } });
    const command = `echo "[$HTTP_PROXY]"; curl -sS http://127.0.0.1:${ports.http}/ && echo reached; true`;
    const { turnId } = await tenant.play(sessionId, [
      { toolCalls: [{ name: 'bash', input: { command } }] },
      { text: 'done' },
    ]);
    expect((await tenant.turnEnd(sessionId, turnId, TURN_MS)).type).toBe('turn.completed');
    expect(JSON.stringify(await tenant.items(sessionId))).toContain(String.raw`"stdout":"[]\n"`);
  }
});

import { createHash } from 'node:crypto';
import { connect, createServer } from 'node:net';
import type { AddressInfo, Server } from 'node:net';
import { Duplex, PassThrough } from 'node:stream';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { EMPTY_MANIFEST } from '#src/domain/sandbox/manifest.ts';
import { nameOf } from '#src/drivers/sandbox/kubernetes/manifests.ts';
import { PodProxies } from '#src/drivers/sandbox/kubernetes/proxies.ts';
import type { PodDriver, PodNetwork } from '#src/drivers/sandbox/port.ts';
import { CONNECTIONS } from '#src/drivers/sandbox/proxy.ts';
import { KubernetesTestServer } from '../support/kubernetes-api.ts';
import { hasBubblewrap } from '../support/kubernetes-container.ts';
import { applyPolicies, engineAt } from '../support/kubernetes-policies.ts';
import { podsOf } from '../support/kubernetes.ts';
import { spoken } from '../support/planted.ts';
import { ASK } from '../support/pod-asks.ts';
import { TestPod } from '../support/pods.ts';
import { MemoryContents } from '../support/sandboxes.ts';
import { until } from '../support/wait-until.ts';

const LONG_MS = 60_000;

/** A network that reaches one host, whose servers say who has asked. */
function networkOf(name: string, asked: string[] = []): PodNetwork {
  const demand = (host: string): void => {
    asked.push(host);
    if (host !== 'here.test') throw new Error(`${host} is not in network.allow of the sandbox`);
  };
  return {
    web: async ({ url }) => {
      demand(new URL(url).hostname);
      const body = [Buffer.from(`${name} got ${new URL(url).pathname}`)];
      return await Promise.resolve({ status: 200, statusText: 'OK', headers: {}, body: stream(body), url });
    },
    connect: async ({ host }) => {
      demand(host);
      return await Promise.resolve(Duplex.from(new PassThrough()));
    },
  };
}

async function* stream(parts: readonly Uint8Array[]): AsyncGenerator<Uint8Array> {
  await Promise.resolve();
  yield* parts;
}

describe('the proxy of a cluster’s pods', () => {
  const proxies = new PodProxies({ headersMs: 4_500 });
  const asked: string[] = [];
  let url: URL;
  let end: () => void;
  beforeAll(async () => {
    expect(proxies.admit(networkOf('nobody'), ['127.0.0.1'])).toBeNull();
    await proxies.listen({ host: '127.0.0.1', port: 0 });
    const admission = proxies.admit(networkOf('one', asked), ['127.0.0.1']);
    url = new URL(admission?.url ?? '');
    end = admission?.close ?? end;
  });
  afterAll(async () => await proxies.close());

  const basic = (text: string): string => `Proxy-Authorization: Basic ${Buffer.from(text).toString('base64')}\r\n`;
  const own = (): string => basic(`${url.username}:${url.password}`);
  const get = (head = own(), target = 'http://here.test/path'): string =>
    `GET ${target} HTTP/1.1\r\nHost: here.test\r\nConnection: close\r\n${head}\r\n`;
  /** A connection on which this is said, and what was heard on it. */
  const opened = (bytes = '') => {
    const socket = connect({ host: url.hostname, port: Number(url.port) });
    let text = '';
    socket.on('error', () => undefined).on('data', (part: Buffer) => (text += part.toString('latin1')));
    if (bytes !== '') socket.write(bytes);
    return { socket, heard: () => text };
  };
  const dial = (target: string, head = own()): string => `CONNECT ${target} HTTP/1.1\r\n${head}\r\n`;

  test('answers a command that has its credential', async () => {
    expect(await spoken(url.href, get())).toMatch(/^HTTP\/1\.1 200 OK[^]*one got \/path/);
    expect(await spoken(url.href, dial('elsewhere.test:443'))).toMatch(/^HTTP\/1\.1 403 [^]*elsewhere\.test is not in/);
  });

  test.each([
    ['none', () => ''],
    ['an empty one', () => basic('')],
    ['a name without its secret', () => basic(url.username)],
    ['a secret without its name', () => basic(`:${url.password}`)],
    ['another secret', () => basic(`${url.username}:${url.password.slice(1)}A`)],
    ['a longer secret', () => basic(`${url.username}:${url.password}A`)],
    ['the digest in place of the secret', () => basic(`${url.username}:${sha256(url.password)}`)],
    ['another name', () => basic(`0123456789abcdef:${url.password}`)],
    ['a name of every object', () => basic(`__proto__:${url.password}`)],
    ['a header for the server', () => own().replace('Proxy-Authorization', 'Authorization')],
    ['another scheme', () => own().replace('Basic', 'Bearer')],
    ['its own after another', () => basic('x:y') + own()],
    ['what is not Base64', () => `Proxy-Authorization: Basic ${url.username}:${url.password}\r\n`],
    ['a long one', () => basic('a'.repeat(8_000))],
  ])('refuses one that has %s', async (_, head) => {
    const before = asked.length;
    for (const request of [get(head()), dial('here.test:443', head())])
      expect(await spoken(url.href, request)).toMatch(/^HTTP\/1\.1 407 /);
    expect(asked.slice(before)).toEqual([]);
  });

  test.each([
    ['its own path', () => get(own(), '/')],
    ['another scheme', () => get(own(), 'ftp://here.test/')],
    ['a whole host in its own path', () => get(own(), '//here.test/')],
    ['a target without a port', () => dial('here.test')],
    ['a target with a user', () => dial('x@here.test:443')],
    ['a target with a path', () => dial('here.test:443/path:1')],
    ['a target without a host', () => dial(':443')],
    ['a port that is none', () => dial('here.test:99999')],
  ])('is a proxy, and answers %s with a refusal', async (_, request) => {
    const before = asked.length;
    expect(await spoken(url.href, request())).toMatch(/^HTTP\/1\.1 403 /);
    expect(asked.slice(before)).toEqual([]);
  });

  test.each([
    ['TLS', '\u0016\u0003\u0001\u0002\0\u0001\0\u0001\u00fc\u0003\u0003'],
    ['SOCKS', '\u0005\u0001\0'],
    ['no HTTP', 'EHLO here.test\r\n\r\n'],
    ['a head without end', `GET http://here.test/ HTTP/1.1\r\nx: ${'a'.repeat(100_000)}`],
    ['two lengths', 'POST http://here.test/ HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n'],
    [
      'a length beside chunks',
      'POST http://here.test/ HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n',
    ],
  ])('hangs up on %s', async (_, bytes) => {
    expect(await spoken(url.href, bytes).catch(() => '')).toBe('');
  });

  test('bounds the connections of one address, and the time of those that say nothing', async () => {
    const silent = opened();
    const sockets = Array.from({ length: CONNECTIONS + 8 }, () => opened(dial('here.test:443')));
    const counted = () => ({
      through: sockets.filter(({ socket, heard }) => !socket.closed && heard().startsWith('HTTP/1.1 200 ')).length,
      closed: sockets.filter(({ socket }) => socket.closed).length,
    });
    await until('each is through or closed', () => counted().through + counted().closed === sockets.length, LONG_MS);
    // One that an earlier test has closed may still count.
    expect(counted().through).toBeLessThanOrEqual(CONNECTIONS);
    expect(counted().through).toBeGreaterThan(CONNECTIONS / 2);
    await until('the one that says nothing is closed', () => silent.socket.closed, LONG_MS);
    for (const { socket } of sockets) socket.destroy();
    const answers = async () => (await spoken(url.href, get()).catch(() => '')).startsWith('HTTP/1.1 200 ');
    await until('there is room again', answers, LONG_MS);
  });

  test('ends what a command has open with it, and knows its credential no more', async () => {
    const { socket, heard } = opened(`${dial('here.test:443')}hello`);
    await until('there is a connection', () => heard().endsWith('hello'), LONG_MS);
    expect(heard()).toMatch(/^HTTP\/1\.1 200 /);
    end();
    await until('it is closed', () => socket.closed, LONG_MS);
    expect(await spoken(url.href, get())).toMatch(/^HTTP\/1\.1 407 /);
  });
});

function sha256(text: string): string {
  return createHash('sha256').update(text).digest('base64url');
}

describe.runIf(hasBubblewrap())('pods of a cluster whose network enforces the policies of deploy/', () => {
  let server: KubernetesTestServer;
  let driver: PodDriver;
  let secret: Server;
  const proxies = new PodProxies();
  beforeAll(async () => {
    server = await KubernetesTestServer.open({ way: 'bubblewrap' });
    applyPolicies(server);
    await proxies.listen({ host: '127.0.0.1', port: 0 });
    engineAt(server, Number(new URL(proxies.admit(networkOf(''), [])?.url ?? '').port));
    driver = podsOf(server, { proxies });
    // Something of the cluster that is not for pods.
    secret = createServer((socket) => socket.end('secret'));
    await new Promise<void>((resolve) => secret.listen(0, '127.0.0.1', () => resolve()));
  });
  afterAll(async () => {
    await driver.stop();
    await server[Symbol.asyncDispose]();
    secret.close();
  });

  /** A pod whose sandbox has `network.allow`. */
  async function allowed(name: string): Promise<TestPod> {
    const pod = new TestPod(driver);
    await provision(pod);
    pod.network = networkOf(name);
    return pod;
  }
  async function provision({ volume, limits, fence }: TestPod): Promise<void> {
    const machine = { limits, hasNetwork: true, hostEpoch: fence.hostEpoch };
    await driver.provision(volume, machine, { manifest: EMPTY_MANIFEST, contents: new MemoryContents() });
  }
  const asks = (more = ''): string => `${ASK}; ${more}ask GET http://here.test/path; dial here.test:443`;

  test('reach the proxy, and nothing around it', async () => {
    const pod = await allowed('one');
    expect(await pod.out(asks())).toMatch(/^HTTP\/1\.1 200 OK[^]*one got \/path[^]*\nHTTP\/1\.1 200 Connection/);
    const { port } = secret.address() as AddressInfo;
    const around = ['127.0.0.1 1', `127.0.0.1 ${port}`, '10.0.0.1 443', '169.254.169.254 80', '1.1.1.1 53'];
    const direct = around.map((at) => `(exec 3<>/dev/tcp/${at.replace(' ', '/')} && cat <&3) || echo none;`).join(' ');
    expect(await pod.out(direct)).toBe('none\n'.repeat(around.length));
    // The Host looks names up, and no server for them is out there to be waited for.
    expect(server.store.demand('pods', nameOf(pod.volume, 'test')).spec).toMatchObject({
      ...{ dnsPolicy: 'None', dnsConfig: { nameservers: ['127.0.0.1'] } },
    });
    // The Host's own programs have no use for it.
    expect(await pod.out('tr "\\0" "\\n" < /proc/1/environ | grep -ci proxy; true')).toBe('0\n');
  });

  test('without network.allow have no way to it, nor a credential', async () => {
    const pod = await TestPod.start(driver);
    const { hostname, port } = new URL(proxies.admit(networkOf(''), [])?.url ?? '');
    const script = `echo "[$HTTP_PROXY]"; (exec 3<>/dev/tcp/${hostname}/${port}) || echo none`;
    expect(await pod.out(script)).toBe('[]\nnone\n');
    expect(server.store.demand('pods', nameOf(pod.volume, 'test')).metadata.labels).not.toHaveProperty(
      'agent-host/network',
    );
  });

  test('have a credential that serves their own command alone', async () => {
    const [one, other] = [await allowed('one'), await allowed('other')];
    const answer = one.bash('echo "$HTTP_PROXY" > proxy; until [ -e go ]; do sleep 0.05; done', 600);
    const kept = async () => (await driver.files.open(one.volume, 'proxy'))?.toArray();
    const url = await until(
      'it has one',
      async () =>
        Buffer.concat(((await kept()) ?? []) as Buffer[])
          .toString()
          .trim() || undefined,
      LONG_MS,
    );
    const stolen = asks(`use '${url}'; `);
    const refusals = /^HTTP\/1\.1 407 [^]*no command that runs at this address[^]*\nHTTP\/1\.1 407 /;
    // That of another sandbox, while its command runs, and with the own name.
    expect(await other.out(stolen)).toMatch(refusals);
    const [, secretOf] = /:([\w-]{43})@/.exec(url) ?? [];
    expect(await other.out(asks(`use "\${HTTP_PROXY/:*@/:${secretOf}@}"; `))).toMatch(refusals);
    await one.call({ name: 'write', input: { path: 'go', content: '' } });
    expect(await answer).toMatchObject({ outcome: 'completed' });
    // That of an earlier command, and of an older start.
    expect(await one.out(stolen)).toMatch(refusals);
    one.fence = { hostEpoch: 2, epoch: 1 };
    expect(await one.out(stolen)).toMatch(refusals);
    expect(await one.out(asks())).toContain('one got /path');
  });
});

import { connect } from 'node:net';
import type { Socket } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { executorsSaved } from '#src/http/wire/executors.ts';
import { delay } from '#src/lib/backoff.ts';
import * as wire from '#src/http/wire/schemas.ts';
import { AdminClient, send, TenantClient } from '../support/client.ts';
import type { Answer } from '../support/client.ts';
import { refused, shaped } from '../conformance/http/target.ts';
import { startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { until } from '../support/wait-until.ts';

const PER_CREDENTIAL = 20;
const PER_TENANT = 40;
const FAILURES = 5;
const STREAMS = 3;
/** Longer than a busy machine stands still between a connection and its request. */
const HEADERS_SECONDS = 4;
const REQUEST_SECONDS = 8;
/** Of what is never cut nobody would hear by then. */
const CUT_WITHIN_MS = 20_000;
/** A bucket holds so many seconds. */
const BURST = 2;
/** What a request that nothing holds up takes at most, on a busy machine. One of them may meet a machine that stands still. */
const SOON_MS = 1_000;
/** What a Host holds up it holds up each time. */
const TIMES = 5;

const middle = (all: readonly number[]): number => all.toSorted((a, b) => a - b)[Math.floor(all.length / 2)] ?? NaN;

describe('one caller takes the Host away from nobody else', () => {
  let host: Host;
  let bystander: TenantClient;

  beforeAll(async () => {
    host = await startHost({
      singleProcess: true,
      env: {
        AGENT_HOST_RATE_PER_CREDENTIAL: String(PER_CREDENTIAL),
        AGENT_HOST_RATE_PER_TENANT: String(PER_TENANT),
        AGENT_HOST_FAILED_AUTH_PER_SECOND: String(FAILURES),
        AGENT_HOST_STREAMS_PER_TENANT: String(STREAMS),
        AGENT_HOST_HEADERS_SECONDS: String(HEADERS_SECONDS),
        AGENT_HOST_REQUEST_SECONDS: String(REQUEST_SECONDS),
      },
    });
    bystander = await new AdminClient(host).createTenant();
    await bystander.saveAgent();
    await bystander.openSession('room');
  });

  afterAll(async () => {
    await host[Symbol.asyncDispose]();
  });

  const me = async (client: TenantClient): Promise<Answer> => await client.request({ path: '/v1/me' });
  const newTenant = async (): Promise<TenantClient> => await new AdminClient(host).createTenant();

  async function keysOf(tenant: TenantClient, count: number): Promise<TenantClient[]> {
    const made = [];
    for (let n = 0; n < count; n += 1) {
      const answer = await tenant.request({ method: 'PUT', path: `/v1/tenant/keys/k${n}`, body: {} });
      const { key } = shaped(answer, 200, wire.keySaved);
      made.push(new TenantClient({ ...tenant.credentials, key: key ?? '' }));
    }
    return made;
  }

  async function took(what: () => Promise<Answer>): Promise<number> {
    const began = performance.now();
    expect((await what()).status).toBe(200);
    return performance.now() - began;
  }

  async function soon(what: () => Promise<Answer>): Promise<void> {
    const all = [];
    for (let n = 0; n < TIMES; n += 1) all.push(await took(what));
    expect(middle(all)).toBeLessThan(SOON_MS);
  }

  /** How many were let through, of those that were sent at the same time; the others were told when to come again. */
  async function flood(clients: readonly TenantClient[], each: number): Promise<{ passed: number; seconds: number }> {
    const began = performance.now();
    const answers = await Promise.all(
      clients.flatMap((client) => Array.from({ length: each }, async () => await me(client))),
    );
    const seconds = (performance.now() - began) / 1_000;
    const limited = answers.filter(({ status }) => status !== 200);
    for (const answer of limited) {
      refused(answer, 429, 'rate_limited');
      expect(answer.headers['retry-after']).toBe('1');
    }
    return { passed: answers.length - limited.length, seconds };
  }

  test('a credential past its rate waits; the others of its tenant and other tenants do not', async () => {
    const tenant = await newTenant();
    const [fast, other] = await keysOf(tenant, 2);
    // Acting for a person is no other credential.
    const { passed, seconds } = await flood([fast ?? tenant, (fast ?? tenant).as('ann')], 50);
    expect(passed).toBeGreaterThanOrEqual(PER_CREDENTIAL * BURST);
    expect(passed).toBeLessThanOrEqual(Math.ceil(PER_CREDENTIAL * (BURST + seconds)));
    await soon(async () => await me(other ?? tenant));
    await soon(async () => await me(bystander));
    await until('it may go on', async () => (await me(fast ?? tenant)).status === 200);
  });

  test('a tenant past its rate waits, whichever of its keys is used; other tenants do not', async () => {
    const tenant = await newTenant();
    const keys = await keysOf(tenant, 5);
    const { passed, seconds } = await flood(keys, 35);
    expect(passed).toBeGreaterThanOrEqual(PER_TENANT * BURST - 10);
    expect(passed).toBeLessThanOrEqual(Math.ceil(PER_TENANT * (BURST + seconds)));
    await soon(async () => await me(bystander));
    await until('it may go on', async () => (await me(tenant)).status === 200);
  });

  test('a request past the rate does nothing', async () => {
    const tenant = await newTenant();
    const [fast] = await keysOf(tenant, 1);
    await flood([fast ?? tenant], 100);
    const put = { method: 'PUT', path: '/v1/tenant/keys/never', body: {} };
    const answers = await Promise.all(Array.from({ length: 150 }, async () => await (fast ?? tenant).request(put)));
    const made = answers.filter(({ status }) => status === 200).length;
    const listed = await tenant.request({ path: '/v1/tenant/keys' });
    const ids = shaped(listed, 200, wire.keyList).keys.map(({ id }) => id);
    expect(ids.includes('never')).toBe(made > 0);
    expect(answers.filter(({ status }) => status === 429).length).toBeGreaterThan(0);
  });

  /** How long the last guess that is answered at once waited, the last of all, and who has a key at most, ms. */
  async function guessing(): Promise<{ atOnce: number; last: number; good: number }> {
    const guess = async (): Promise<{ ms: number; text: string }> => {
      const began = performance.now();
      const headers = { authorization: 'Bearer ak_guess', 'x-request-id': 'same' };
      const answer = await bystander.request({ path: '/v1/me', headers });
      refused(answer, 401, 'credential_invalid');
      return { ms: performance.now() - began, text: answer.text };
    };
    const guesses = Array.from({ length: 40 }, guess);
    const good = [];
    for (let n = 0; n < 10; n += 1) {
      const began = performance.now();
      expect((await me(bystander)).status).toBe(200);
      good.push(performance.now() - began);
    }
    const answers = await Promise.all(guesses);
    const times = answers.map(({ ms }) => ms).toSorted((a, b) => a - b);
    process.stdout.write(
      `guesses ${times.map((ms) => ms.toFixed(0)).join(' ')} ms; good ${Math.max(...good).toFixed(0)} ms\n`,
    );
    // Ten at once, five a second after them, up to two seconds.
    expect(times[14]).toBeGreaterThan(800);
    expect(times.at(-1)).toBeGreaterThan(1_900);
    // What was held back says what all others say.
    expect(new Set(answers.map(({ text }) => text)).size).toBe(1);
    const [atOnce = NaN, last = NaN] = [times[FAILURES * BURST - 1], times.at(-1)];
    return { atOnce, last, good: Math.max(...good) };
  }

  test('who tries keys waits for the answers, who has one does not', async () => {
    const rounds = [];
    for (let n = 0; n < 3; n += 1) {
      rounds.push(await guessing());
      // Until what was owed has come back, and as much as there may be with it.
      await delay(5_000);
    }
    expect(middle(rounds.map(({ atOnce }) => atOnce))).toBeLessThan(SOON_MS);
    expect(middle(rounds.map(({ last }) => last))).toBeLessThan(2_000 + SOON_MS);
    expect(middle(rounds.map(({ good }) => good))).toBeLessThan(SOON_MS);
  });

  test('a tenant has so many streams and no more; others have theirs', async () => {
    const tenant = await newTenant();
    await tenant.saveAgent();
    await tenant.openSession('room');
    const open = async () => await tenant.events('room');
    const readers = [];
    for (let n = 0; n < STREAMS; n += 1) readers.push(await open());
    const path = '/v1/sessions/room/events';
    const answer = await tenant.request({ path });
    refused(answer, 429, 'rate_limited');
    refused(await tenant.as('ann').request({ path: '/v1/sessions/none/events' }), 404, 'not_found');
    // Those of executors are among them.
    const token = 'the-token-of-an-executor';
    const body = { executors: [{ agentId: 'agent', token }] };
    shaped(await tenant.request({ method: 'PUT', path: '/v1/executors', body }), 200, executorsSaved);
    const executor = new TenantClient({ ...tenant.credentials, key: token });
    refused(await executor.request({ path: '/v1/executors/connect' }), 429, 'rate_limited');
    expect((await me(tenant)).status).toBe(200);
    const theirs = await bystander.events('room');
    expect((await theirs.next())?.event).toBe('ready');
    theirs.close();
    readers.pop()?.close();
    const again = await until('a place is free', async () => await open().catch(() => undefined));
    expect((await again.next())?.event).toBe('ready');
    for (const reader of [...readers, again]) reader.close();
  });

  test('clients that send their headers or bodies slowly are cut, and harm nobody', async () => {
    const head = (length: number): string =>
      Object.entries({ ...bystander.headers, 'content-type': 'application/json', 'content-length': String(length) })
        .map(([name, value]) => `${name}: ${value}\r\n`)
        .join('');
    const began = performance.now();
    const slowHeaders = Array.from(
      { length: 40 },
      () => new Dripper(host.url, 'GET /v1/me HTTP/1.1\r\nhost: a\r\nx: '),
    );
    const unknown = 'POST /v1/me HTTP/1.1\r\nhost: a\r\nx: ';
    const slowUnknown = Array.from({ length: 5 }, () => new Dripper(host.url, unknown));
    const line = 'PUT /v1/agents/slow HTTP/1.1\r\nhost: a\r\n';
    const slowBodies = Array.from({ length: 10 }, () => new Dripper(host.url, `${line}${head(500)}\r\n`));
    const drippers = [...slowHeaders, ...slowUnknown, ...slowBodies];
    try {
      const served = [];
      while (drippers.some(({ closedAt }) => closedAt === null)) {
        served.push(await took(async () => await send(host.url, { path: '/health' })));
        await delay(10);
        if (performance.now() - began > REQUEST_SECONDS * 1_000 + CUT_WITHIN_MS) break;
      }
      expect(middle(served)).toBeLessThan(SOON_MS);
      const lifetimes = (some: readonly Dripper[]): number[] =>
        some.map(({ closedAt }) => (closedAt ?? Infinity) - began);
      process.stdout.write(
        `${served.length} requests meanwhile; headers cut after ${Math.max(...lifetimes(slowHeaders)).toFixed(0)} ms, `,
      );
      process.stdout.write(`bodies after ${Math.max(...lifetimes(slowBodies)).toFixed(0)} ms\n`);
      for (const ms of lifetimes([...slowHeaders, ...slowUnknown])) {
        expect(ms).toBeGreaterThan(HEADERS_SECONDS * 1_000 - 50);
        expect(ms).toBeLessThan(HEADERS_SECONDS * 1_000 + CUT_WITHIN_MS);
      }
      for (const ms of lifetimes(slowBodies)) {
        expect(ms).toBeGreaterThan(REQUEST_SECONDS * 1_000 - 50);
        expect(ms).toBeLessThan(REQUEST_SECONDS * 1_000 + CUT_WITHIN_MS);
      }
      for (const { text } of drippers) {
        expect(text).toMatch(/^HTTP\/1.1 400 .*\r\n/);
        expect(text).toMatch(/"code":"invalid_request"/);
      }
    } finally {
      for (const dripper of drippers) dripper.close();
    }
  });

  test(
    'a connection that has sent its requests in time may stay as long as it likes',
    { timeout: 240_000 },
    async () => {
      const began = performance.now();
      const socket = connect(Number(new URL(host.url).port), '127.0.0.1');
      let text = '';
      let closed = false;
      socket.setEncoding('utf8').on('data', (part: string) => (text += part));
      socket.on('close', () => (closed = true));
      const ask = 'GET /health HTTP/1.1\r\nhost: a\r\n\r\n';
      socket.write(ask);
      const answered = (): number => text.split('HTTP/1.1 200').length - 1;
      await until('the first answer', () => answered() === 1);
      await until('more than both limits', () => performance.now() - began > (REQUEST_SECONDS + 2) * 1_000);
      expect(closed).toBe(false);
      socket.write(ask);
      await until('the second answer', () => answered() === 2);
      socket.destroy();
    },
  );
});

/** Sends the beginning of a request, and then a byte now and then. */
class Dripper {
  text = '';
  closedAt: number | null = null;
  readonly #socket: Socket;
  readonly #timer: NodeJS.Timeout;

  constructor(url: string, beginning: string) {
    this.#socket = connect(Number(new URL(url).port), '127.0.0.1', () => this.#socket.write(beginning));
    this.#timer = setInterval(() => this.#socket.write('x'), 100);
    this.#socket.setEncoding('utf8').on('data', (part: string) => (this.text += part));
    this.#socket.on('error', () => undefined);
    this.#socket.on('close', () => {
      this.closedAt = performance.now();
      clearInterval(this.#timer);
    });
  }

  close(): void {
    clearInterval(this.#timer);
    this.#socket.destroy();
  }
}

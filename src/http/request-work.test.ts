import { once } from 'node:events';
import { connect } from 'node:net';
import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Authenticator } from '../auth/authenticate.ts';
import { ACCESS } from '../auth/authorize.ts';
import type { Caller } from '../auth/caller.ts';
import { monotonicClock, systemClock } from '../lib/clock.ts';
import { createLogger } from '../lib/logger.ts';
import type { TailHub } from '../streams/tail-hub.ts';
import { Fairness } from './fairness.ts';
import { callerOf } from './gate.ts';
import { notFound } from './problem.ts';
import { RequestLog } from './request-log.ts';
import { createServer } from './server.ts';
import { EventStreams } from './sse.ts';

const caller: Caller = {
  ...{ kind: 'application', tenantId: 'tn_1', principalId: 'key', subject: null, scopes: [], credential: 'hash' },
  ...{ agents: null, sandboxes: null, expiresAt: null },
};
const HEADERS = { authorization: 'Bearer key', 'svc-protocol': '8' };
const RATES = { credentialPerSecond: 1_000, tenantPerSecond: 1_000, failuresPerSecond: 1_000 };

/** Requests in work, and whether the next one has to wait until it is let in. */
let inWork: number;
let seen: number;
let letIn: Promise<void> | null;
let server: Awaited<ReturnType<typeof createServer>>;
let streams: EventStreams;
let address: URL;
let closed: Promise<unknown>;
let reached: PromiseWithResolvers<void>;
let answers: PromiseWithResolvers<void>;

function begin(): () => void {
  inWork++;
  seen++;
  return () => inWork--;
}

const shares = {
  takeNow: () => (letIn === null ? begin() : null),
  take: async (_: string, signal: AbortSignal) => {
    await Promise.race([letIn, once(signal, 'abort').then(() => signal.throwIfAborted())]);
    return begin();
  },
};

const routes: FastifyPluginAsyncZod = async (app) => {
  const schema = { hide: true };
  const config = { rules: { access: ACCESS.sessions } };
  app.get('/work', { config, schema }, async (_request, reply) => {
    closed = once(reply.raw, 'close');
    reached.resolve();
    await answers.promise;
    return { is: 'done' };
  });
  app.get('/fails', { config, schema }, async () => await Promise.reject(notFound('session')));
  app.get('/stream', { config, schema }, async (request, reply) => {
    streams.openWith(request, reply, callerOf(request), (stream) => {
      stream.send(': here\n\n');
      return () => undefined;
    });
  });
  app.post('/upload', { config: { rules: { ...config.rules, rawBody: true } }, schema }, async () => ({ inWork }));
  app.get('/open', { config: { rules: { access: null } }, schema }, async () => ({ seen }));
  await Promise.resolve();
};

beforeEach(async () => {
  [inWork, seen, letIn] = [0, 0, null];
  [reached, answers] = [Promise.withResolvers(), Promise.withResolvers()];
  const limits = {
    ...{ bufferBytes: 1_000, totalBytes: 1_000_000, keepaliveMs: 60_000, perTenantMax: 10 },
    clock: systemClock,
  };
  const feeds = { hub: { keptBytes: 0 } as TailHub, previews: { follow: () => () => undefined } };
  streams = new EventStreams(feeds, limits, () => 'stands');
  const logger = await createLogger({ level: 'silent', pretty: false });
  const authenticator = { authenticate: async () => await Promise.resolve(caller) } as unknown as Authenticator;
  server = await createServer({
    ...{ logger, version: '0.0.0', trustedProxies: [], routes: [routes], isDraining: () => false },
    gate: {
      ...{ authenticator, shares, features: [], logReachable: () => true, bodyBytesMax: 1_000 },
      fairness: new Fairness(RATES, monotonicClock),
      requestLog: new RequestLog({ logger, clock: monotonicClock, all: false }),
    },
    timeouts: { headersMs: 5_000, requestMs: 5_000, uploadMs: 5_000 },
    onResponse: () => undefined,
  });
  address = new URL(await server.listen({ host: '127.0.0.1', port: 0 }));
});

afterEach(async () => {
  answers.resolve();
  streams.stop();
  await server.close();
});

const get = async (path: string): Promise<Response> => await fetch(new URL(path, address), { headers: HEADERS });

test('a request is in work until it is answered', async () => {
  const answer = get('/work');
  await reached.promise;
  expect(inWork).toBe(1);
  answers.resolve();
  expect((await answer).status).toBe(200);
  expect([inWork, seen]).toEqual([0, 1]);
});

test('until it is refused', async () => {
  expect((await get('/fails')).status).toBe(404);
  expect([inWork, seen]).toEqual([0, 1]);
});

test('until it has become a stream', async () => {
  const stream = await get('/stream');
  expect([stream.status, streams.size, inWork, seen]).toEqual([200, 1, 0, 1]);
  await stream.body?.cancel();
});

test('until its client has left', async () => {
  const socket = connect(Number(address.port), address.hostname);
  socket.write(`GET /work HTTP/1.1\r\nhost: here\r\nauthorization: Bearer key\r\nsvc-protocol: 8\r\n\r\n`);
  await reached.promise;
  expect(inWork).toBe(1);
  socket.destroy();
  await closed;
  expect(inWork).toBe(0);
});

test('an upload has shares of its own, and who needs no credential has none', async () => {
  const upload = await server.inject({ method: 'POST', url: '/upload', headers: HEADERS });
  expect(upload.json()).toEqual({ inWork: 0 });
  expect(await (await get('/open')).json()).toEqual({ seen: 0 });
});

test('one that has to wait is not begun with before', async () => {
  const admitted = Promise.withResolvers<void>();
  letIn = admitted.promise;
  answers.resolve();
  const answer = get('/work');
  expect(await (await get('/open')).json()).toEqual({ seen: 0 });
  admitted.resolve();
  expect((await answer).status).toBe(200);
  expect([inWork, seen]).toEqual([0, 1]);
});

import { once } from 'node:events';
import { connect } from 'node:net';
import type { Socket } from 'node:net';
import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { pino } from 'pino';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Authenticator } from '../auth/authenticate.ts';
import { ACCESS } from '../auth/authorize.ts';
import type { Caller } from '../auth/caller.ts';
import { monotonicClock, systemClock } from '../lib/clock.ts';
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
/** Resolves when the next request asks for its share, and when its credential is looked at. */
let asked: PromiseWithResolvers<void>;
let presented: PromiseWithResolvers<void>;
/** Resolves when a credential has been checked. */
let checked: Promise<void>;
/** What the server has logged. */
let lines: string[];
let server: Awaited<ReturnType<typeof createServer>>;
let streams: EventStreams;
let address: URL;
let reached: PromiseWithResolvers<void>;
let answers: PromiseWithResolvers<void>;

function begin(): () => void {
  inWork++;
  seen++;
  return () => inWork--;
}

const shares = {
  takeNow: () => {
    asked.resolve();
    return letIn === null ? begin() : null;
  },
  take: async (_: string, signal: AbortSignal) => {
    await Promise.race([letIn, once(signal, 'abort').then(() => signal.throwIfAborted())]);
    return begin();
  },
};

const routes: FastifyPluginAsyncZod = async (app) => {
  const schema = { hide: true };
  const config = { rules: { access: ACCESS.sessions } };
  app.get('/work', { config, schema }, async () => {
    reached.resolve();
    await answers.promise;
    return { is: 'done' };
  });
  app.post('/work', { config, schema }, async () => await Promise.resolve({ is: 'done' }));
  app.get('/breaks', { config, schema }, async () => {
    reached.resolve();
    await answers.promise;
    throw new Error('a bug');
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
  [inWork, seen, letIn, checked, lines] = [0, 0, null, Promise.resolve(), []];
  [reached, answers] = [Promise.withResolvers(), Promise.withResolvers()];
  [asked, presented] = [Promise.withResolvers(), Promise.withResolvers()];
  const limits = {
    ...{ bufferBytes: 1_000, totalBytes: 1_000_000, keepaliveMs: 60_000, perTenantMax: 10 },
    clock: systemClock,
  };
  const feeds = { hub: { keptBytes: 0 } as TailHub, previews: { follow: () => () => undefined } };
  streams = new EventStreams(feeds, limits, () => 'stands');
  const logger = pino({ level: 'error' }, { write: (line: string) => void lines.push(line) });
  const authenticate = async (): Promise<Caller> => {
    presented.resolve();
    await checked;
    return caller;
  };
  const authenticator = { authenticate } as unknown as Authenticator;
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

/** A client that sends the text, and may leave: the server has seen it go when that resolves. */
function connected(text: string): { leave: (onClose?: () => void) => Promise<void> } {
  const accepted = once(server.server, 'connection');
  const socket = connect(Number(address.port), address.hostname);
  socket.write(text);
  return {
    leave: async (onClose = () => undefined) => {
      const [ofServer] = (await accepted) as [Socket];
      ofServer.prependOnceListener('close', onClose);
      const ended = once(ofServer, 'close');
      socket.destroy();
      await ended;
    },
  };
}

function head(request: string, bodyBytes = 0): string {
  const lengths = bodyBytes === 0 ? '' : `content-type: application/json\r\ncontent-length: ${bodyBytes}\r\n`;
  return `${request} HTTP/1.1\r\nhost: here\r\nauthorization: Bearer key\r\nsvc-protocol: 8\r\n${lengths}\r\n`;
}

const BODY = '{"a":1}';
const POST = head('POST /work', BODY.length);

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
  const { leave } = connected(head('GET /work'));
  await reached.promise;
  expect(inWork).toBe(1);
  await leave();
  expect(inWork).toBe(0);
});

test.each([
  ['a whole body', BODY],
  ['a part of one', BODY.slice(0, 3)],
])('one whose client leaves while its credential is looked at, with %s, has no share', async (_, body) => {
  const known = Promise.withResolvers<void>();
  checked = known.promise;
  const { leave } = connected(POST + body);
  await presented.promise;
  await leave();
  known.resolve();
  expect(await (await get('/open')).json()).toEqual({ seen: 0 });
  expect([inWork, lines]).toEqual([0, []]);
});

test('one whose client leaves while it waits gives up its place', async () => {
  letIn = Promise.withResolvers<void>().promise;
  const { leave } = connected(POST + BODY);
  await asked.promise;
  await leave();
  expect(await (await get('/open')).json()).toEqual({ seen: 0 });
  expect([inWork, lines]).toEqual([0, []]);
});

test('one whose turn comes as its client leaves gives its share back', async () => {
  const admitted = Promise.withResolvers<void>();
  letIn = admitted.promise;
  const { leave } = connected(POST + BODY);
  await asked.promise;
  await leave(admitted.resolve);
  expect(await (await get('/open')).json()).toEqual({ seen: 1 });
  expect([inWork, lines]).toEqual([0, []]);
});

test('one whose client leaves in the middle of its body is nothing to log', async () => {
  const { leave } = connected(POST + BODY.slice(0, 3));
  await asked.promise;
  await leave();
  expect(await (await get('/open')).json()).toEqual({ seen: 1 });
  expect([inWork, lines]).toEqual([0, []]);
});

test('a failure is logged although its client has left', async () => {
  const { leave } = connected(head('GET /breaks'));
  await reached.promise;
  await leave();
  answers.resolve();
  await get('/open');
  expect(lines.map((line) => String(Object(JSON.parse(line)).msg))).toEqual(['a request failed']);
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

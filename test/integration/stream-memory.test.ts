import { once } from 'node:events';
import { connect } from 'node:net';
import type { Socket } from 'node:net';
import fastify from 'fastify';
import type { FastifyInstance } from 'fastify';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { Caller } from '#src/auth/caller.ts';
import { EventStreams } from '#src/http/sse.ts';
import type { StreamLimits } from '#src/http/sse.ts';
import { NO_USAGE } from '#src/domain/turn/usage.ts';
import type { Commit } from '#src/streams/commit.ts';
import type { AggregateRef } from '#src/streams/subjects.ts';
import { TailHub } from '#src/streams/tail-hub.ts';
import { appendAll, newCommit, newRef } from '../support/commits.ts';
import { startContinuity } from '../support/continuity.ts';
import { openLog } from '../support/jetstream.ts';
import type { TestLog } from '../support/jetstream.ts';
import { capturedLog } from '../support/logger.ts';
import { TestNats } from '../support/nats.ts';
import { SseReader } from '../support/sse.ts';
import { until } from '../support/wait-until.ts';

const KIB = 1_024;
const MIB = 1_024 * KIB;
const STREAMS = 200;
/** More than the node has room for. */
const CUT_STREAMS = 60;
const BUFFER = 256 * KIB;

const caller: Caller = {
  kind: 'application',
  tenantId: 'tn_1',
  principalId: 'key',
  subject: null,
  scopes: [],
  agents: null,
  sandboxes: null,
  credential: 'hash',
  expiresAt: null,
};

const disposables = new AsyncDisposableStack();
let log: TestLog;

beforeAll(async () => {
  const nats = disposables.use(await TestNats.start());
  log = disposables.use(await openLog(nats.url));
});

afterAll(async () => {
  await disposables.disposeAsync();
});

/** A commit that readers are shown as one record of this text. */
function saying(rev: number, text: string): Commit {
  const commit = newCommit(rev);
  const [event] = commit.events;
  const data = { turnId: 'tu_1', output: text, usage: NO_USAGE };
  return { ...commit, events: event === undefined ? [] : [{ ...event, type: 'turn.completed', data }] };
}

const sayingAll = (texts: readonly string[]): Commit[] => texts.map((text, n) => saying(n + 1, text));

let close = async (): Promise<void> => await Promise.resolve();

/** The streams of a node, without the rest of it: `/<session>` is the stream of a session. */
async function serving(limits: Partial<StreamLimits>) {
  const feed = await startContinuity(log.feed, log.source);
  const hub = new TailHub({ store: log.store, feed, logger: capturedLog().logger, slowMs: 600_000 });
  const all = {
    bufferBytes: BUFFER,
    totalBytes: 1_000 * MIB,
    keepaliveMs: 60_000,
    perTenantMax: 10_000,
    clock: Date.now,
    ...limits,
  };
  const streams = new EventStreams({ hub, previews: { follow: () => () => undefined } }, all, () => 'stands');
  const app: FastifyInstance = fastify();
  const refs: AggregateRef[] = [];
  app.get('/:session', async (request, reply) => {
    const ref = refs[Number(new URL(request.url, 'http://here').pathname.slice(1))] ?? newRef();
    streams.open(request, reply, {
      ...{ caller, ref, session: { createdPosition: 0 }, after: null, agent: null, previews: false },
    });
  });
  const accepted: Socket[] = [];
  app.server.on('connection', (socket: Socket) => accepted.push(socket));
  const base = await app.listen({ host: '127.0.0.1', port: 0 });
  close = async () => {
    hub.stop();
    streams.stop();
    feed.stop();
    await app.close();
  };
  return { base, streams, hub, refs, accepted };
}

afterEach(async () => {
  await close();
});

/** Opens a stream and reads nothing of it after its head. */
async function unread(base: string, session: number): Promise<Socket> {
  const { hostname, port } = new URL(base);
  const socket = connect({ host: hostname, port: Number(port) });
  await once(socket, 'connect');
  socket.on('error', () => undefined);
  socket.write(`GET /${session} HTTP/1.1\r\nhost: here\r\n\r\n`);
  await once(socket, 'readable');
  return socket;
}

/** What the process holds, after what it does not need has been given up. */
function inUse(): number {
  globalThis.gc?.();
  return process.memoryUsage().rss;
}

describe('readers that read nothing', () => {
  const sockets: Socket[] = [];

  beforeEach(() => {
    sockets.length = 0;
  });

  afterEach(() => {
    for (const socket of sockets) socket.destroy();
  });

  test(
    'cost what is configured, however large the commits are; one that reads gets everything whole',
    { timeout: 360_000 },
    async () => {
      const { base, streams, refs, accepted } = await serving({});
      // The kernel takes the first few MiB of each.
      const texts = Array.from({ length: 8 }, (_, n) => `${n} Grüße! `.repeat(80_000));
      for (let n = 0; n < 4; n++) {
        const ref = newRef();
        refs.push(ref);
        await appendAll(log.store, ref, sayingAll(texts));
      }
      const before = inUse();
      for (let n = 0; n < STREAMS; n++) sockets.push(await unread(base, n % refs.length));
      expect(streams.size).toBe(STREAMS);
      await until('each is full', () => streams.heldBytes >= STREAMS * (BUFFER - 8 * KIB), 120_000);
      await until('what is not taken is let go', () => streams.heldBytes <= STREAMS * (BUFFER + 4 * KIB), 120_000);
      const resident = inUse() - before;
      // As the sockets themselves count it.
      const queued = accepted.reduce((sum, { writableLength }) => sum + writableLength, 0);
      expect(queued).toBeLessThanOrEqual(STREAMS * (BUFFER + 4 * KIB));
      process.stdout.write(
        `${STREAMS} unread streams: ${(streams.heldBytes / STREAMS / KIB).toFixed(0)} KiB held each, ${(resident / STREAMS / KIB).toFixed(0)} KiB resident\n`,
      );
      const reader = await SseReader.open(base, '/1');
      const records = (await reader.collect(texts.length)).map(({ payload }) => JSON.stringify(payload));
      expect(records.map((text, n) => text.includes(texts[n] ?? ''))).toEqual(texts.map(() => true));
      reader.close();
      // One that was not read for a while goes on where it was.
      const late = sockets.pop();
      let bytes = 0;
      late?.on('data', (chunk: Buffer) => (bytes += chunk.length));
      const most = texts.reduce((sum, text) => sum + Buffer.byteLength(text), 0);
      await until('it has everything', () => bytes >= most, 60_000);
      late?.destroy();
    },
  );

  test('cost the node no more than its bound together; the slowest are cut off, one that reads is not', async () => {
    const totalBytes = 8 * MIB;
    const { base, streams, refs } = await serving({ totalBytes });
    const ref = newRef();
    refs.push(ref);
    const reader = await SseReader.open(base, '/0');
    const text = 'x'.repeat(900_000);
    await appendAll(log.store, ref, sayingAll(Array.from({ length: 6 }, () => text)));
    await reader.collect(6);
    let most = 0;
    for (let n = 0; n < CUT_STREAMS; n++) {
      sockets.push(await unread(base, 0));
      most = Math.max(most, streams.heldBytes);
    }
    await until('some are cut off', () => streams.size < CUT_STREAMS);
    // What is held is counted at most every 50 ms; a whole text may be on its way for each reader that is opened then.
    expect(most).toBeLessThan(3 * totalBytes);
    await until('the node is within its bound', () => streams.heldBytes <= totalBytes);
    expect(streams.size).toBeGreaterThan(5);
    await log.store.append(ref, await log.store.head(ref), saying(7, 'the last'));
    await until('the one that reads has it', () => reader.frames.at(-1)?.data.includes('the last') === true);
    reader.close();
  });
});

test('with a small buffer, commits of any size and letter arrive whole, once, in order, at readers that read', async () => {
  const { base, refs, streams } = await serving({ bufferBytes: 4 * KIB });
  const ref = newRef();
  refs.push(ref);
  const texts = ['short', '→'.repeat(3_000), '🙂'.repeat(50_000), 'x'.repeat(4_096), 'ü'.repeat(700_000), 'end'];
  const live = await SseReader.open(base, '/0');
  await appendAll(log.store, ref, sayingAll(texts));
  const late = await SseReader.open(base, '/0');
  for (const reader of [live, late]) {
    const records = await reader.collect(texts.length);
    expect(records.map(({ payload }) => (payload as { readonly output: string }).output)).toEqual(texts);
    reader.close();
  }
  await until('they are gone', () => streams.size === 0);
  expect(streams.heldBytes).toBe(0);
});

import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { expect, test } from 'vitest';
import { delay } from '#src/lib/backoff.ts';
import { ModernServer, ScriptedServer } from '../support/mcp-servers.ts';
import { serverAt, TestMcp, textOf } from '../support/mcp.ts';
import { until } from '../support/wait-until.ts';

const CALLS = 20;
const GOOD = 14;
const TIMEOUT_MS = 240_000;

/** Sends without end, as fast as it is read. */
function flood(server: ScriptedServer): void {
  const message = JSON.stringify({
    jsonrpc: '2.0',
    method: 'notifications/message',
    params: { level: 'info', data: 'x' },
  });
  const messages = `data: ${message}\n\n`.repeat(200);
  server.script = (_message, _request, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    const more = (): void => {
      let isOpen = !response.destroyed;
      while (isOpen) isOpen = response.write(messages) && !response.destroyed;
      if (!response.destroyed) response.once('drain', more);
    };
    more();
    return null;
  };
}

test('servers that hang, lie and flood delay no calls but their own', { timeout: TIMEOUT_MS }, async () => {
  await using mcp = new TestMcp();
  await using stack = new AsyncDisposableStack();
  const start = async (): Promise<ScriptedServer> => stack.use(await ScriptedServer.start());
  const hanging = await Promise.all([start(), start(), start()]);
  const lying = await Promise.all([start(), start()]);
  const flooding = await start();
  const good = await Promise.all(Array.from({ length: GOOD }, start));
  for (const server of hanging) server.script = () => null;
  for (const server of lying) server.script = () => ({ content: 'none', structuredContent: 5 });
  flood(flooding);
  const ending = new AbortController();
  let settled = 0;
  const calls = (server: ScriptedServer) =>
    Array.from({ length: CALLS }, async (_, i) => {
      const session = serverAt(server.url, { name: 's', sessionId: `session ${i % 5}` });
      return await mcp.call(session, { tool: 'act', deadline: Date.now() + TIMEOUT_MS }, { signal: ending.signal });
    });
  const stuck = [...hanging, flooding].flatMap(calls).map(async (call) => {
    await call.catch(() => undefined);
    settled += 1;
  });
  const lied = lying.flatMap(calls);
  const answers = await Promise.all(good.flatMap(calls));
  expect(answers.map(textOf)).toEqual(answers.map(() => 'done'));
  for (const outcome of await Promise.all(lied)) {
    expect(outcome).toMatchObject({ kind: 'failed', code: 'invalid_answer', mayHaveHappened: true });
  }
  expect(settled).toBe(0);
  for (const server of hanging) expect(server.calls).toBeLessThanOrEqual(32);
  ending.abort(new Error('the end of the test'));
  await Promise.all(stuck);
});

/** More than is read without a place. */
const LARGE = ' '.repeat(300_000);

/** In front of a server: makes the answers to calls large, or has them stop there. */
async function enlarging(url: string) {
  const state = { stalls: false, calls: 0 };
  const proxy = createServer((request, response) => {
    void (async () => {
      const body = await buffer(request);
      const isCall = body.includes('"tools/call"');
      if (isCall) state.calls += 1;
      const headers = Object.entries(request.headers).filter(
        ([name]) => !/^(?:host|connection|content-length)$/.test(name),
      );
      if (isCall && state.stalls) {
        response.writeHead(200, { 'content-type': 'application/json' }).write(LARGE);
        return;
      }
      const answer = await fetch(url, {
        method: request.method ?? 'POST',
        headers: Object.fromEntries(headers) as Record<string, string>,
        body: new Uint8Array(body),
      });
      const type = answer.headers.get('content-type') ?? '';
      response.writeHead(answer.status, { 'content-type': type });
      if (isCall) response.write(type.includes('event-stream') ? `:${LARGE}\n\n` : LARGE);
      response.end(await answer.text());
    })().catch(() => response.destroy());
  });
  proxy.listen(0, '127.0.0.1');
  await once(proxy, 'listening');
  const { port } = proxy.address() as AddressInfo;
  return {
    ...{ state, url: `http://127.0.0.1:${port}/mcp` },
    [Symbol.asyncDispose]: async () => {
      proxy.closeAllConnections();
      proxy.close();
      await once(proxy, 'close');
    },
  };
}

test.each(['as they came', 'the last first'])(
  'large answers that are given up together leave their places, %s',
  { timeout: TIMEOUT_MS },
  async (order) => {
    await using mcp = new TestMcp();
    await using modern = await ModernServer.start();
    await using server = await enlarging(modern.url);
    const session = serverAt(server.url);
    const calling = async (signal: AbortSignal, ms: number) =>
      await mcp.call(session, { tool: 'add', input: { a: 1, b: 2 }, deadline: Date.now() + ms }, { signal });
    const wanted = new AbortController().signal;
    expect(textOf(await calling(wanted, TIMEOUT_MS))).toBe('3');
    server.state.stalls = true;
    const controllers = Array.from({ length: 4 }, () => new AbortController());
    const given = controllers.map(async ({ signal }) => await calling(signal, TIMEOUT_MS).catch(() => undefined));
    await until('they have begun', () => server.state.calls === 5);
    // Some have their place by then, and the others wait for one.
    await delay(500);
    for (const one of order === 'as they came' ? controllers : controllers.toReversed())
      one.abort(new Error('given up'));
    await Promise.all(given);
    server.state.stalls = false;
    expect(textOf(await calling(wanted, 10_000))).toBe('3');
  },
);

import type { ServerResponse } from 'node:http';
import { describe, expect, test } from 'vitest';
import { freePort } from '../support/free-port.ts';
import { callOn, listOn, serverAt, textOf } from '../support/mcp.ts';
import { ScriptedServer } from '../support/mcp-servers.ts';
import { until } from '../support/wait-until.ts';
import { nested } from './mcp-listing.ts';
import type { OpenDriver } from './mcp-listing.ts';

const OBJECT = { type: 'object' };
const MIB = 1_048_576;

type Act = (response: ServerResponse) => null;

function status(code: number, headers: Readonly<Record<string, string>> = {}, body = ''): Act {
  return (response) => {
    response.writeHead(code, headers).end(body);
    return null;
  };
}

const rpcError = (code: number, id: string | null): string =>
  JSON.stringify({ jsonrpc: '2.0', error: { code, message: 'no' }, id });

function raw(contentType: string, body: string): Act {
  return (response) => {
    response.writeHead(200, { 'content-type': contentType }).end(body);
    return null;
  };
}

function hangUp(response: ServerResponse): null {
  response.destroy();
  return null;
}

/** What becomes of calls: the second half. */
export function callSuite(open: OpenDriver): void {
  describe('a call to a server', () => {
    test.each([
      ['refuses it, or a proxy does', status(422), 'lost', true],
      ['does not find it, or a proxy does', status(404), 'lost', true],
      ['cannot read it', status(413, {}, rpcError(-32_700, null)), 'refused', false],
      ['forbids it', status(403, {}, rpcError(-32_000, 'x')), 'refused', false],
      ['fails', status(500), 'lost', true],
      ['fails in the words of the protocol', status(500, {}, rpcError(-32_603, 'x')), 'lost', true],
      ['fails and knows no id', status(500, {}, rpcError(-32_603, null)), 'lost', true],
      ['is busy, or a proxy is', status(429, { 'retry-after': '1' }), 'lost', true],
      ['is away, or what is behind a proxy', status(503, { 'retry-after': '1' }), 'lost', true],
      ['answers as a web page', raw('text/html', '<p>'), 'invalid_answer', true],
      ['answers with no JSON', raw('application/json', '{'), 'invalid_answer', true],
      ['answers with JSON that is no answer', raw('application/json', '{"jsonrpc":"2.0"}'), 'invalid_answer', true],
      [
        'answers another request',
        raw('application/json', '{"jsonrpc":"2.0","id":77,"result":{"content":[]}}'),
        'lost',
        true,
      ],
      ['ends a stream without a result', raw('text/event-stream', ': nothing\n\n'), 'lost', true],
      ['sends a stream that is none', raw('text/event-stream', 'data: {{{\n\n'), 'lost', true],
      ['accepts it without an answer', status(202), 'lost', true],
      ['hangs up', hangUp, 'lost', true],
    ] as const)('that %s', async (_what, act, code, mayHaveHappened) => {
      await using opened = open();
      await using server = await ScriptedServer.start();
      server.script = (_message, _request, response) => act(response);
      const outcome = await callOn(opened.driver, serverAt(server.url), { tool: 'act' });
      expect(outcome).toMatchObject({ kind: 'failed', code, mayHaveHappened });
      expect(server.carriedOut).toBe(1);
    });

    test.each([
      ['that refuses its input', { code: -32_602, message: 'x is missing' }, false],
      ['that does not know it', { code: -32_601, message: 'no such tool' }, false],
      ['that breaks inside', { code: -32_603, message: 'z'.repeat(MIB) }, true],
    ])('%s', async (_what, error, mayHaveHappened) => {
      await using opened = open();
      await using server = await ScriptedServer.start();
      server.script = () => error;
      const outcome = await callOn(opened.driver, serverAt(server.url), { tool: 'act' });
      expect(outcome).toMatchObject({ kind: 'failed', code: 'refused', mayHaveHappened });
      expect(textOf(outcome).length).toBeLessThan(1_000);
    });

    test.each([
      ['if it says that it did not read it', undefined, rpcError(-32_000, null)],
      ['of a tool that only reads', { readOnlyHint: true }, ''],
      ['of a tool that may be called again', { idempotentHint: true }, ''],
    ])('that is busy is repeated %s, and one that stays away is unavailable', async (_what, annotations, body) => {
      await using opened = open();
      await using server = await ScriptedServer.start();
      server.tools = [{ name: 'act', inputSchema: OBJECT, annotations }];
      let busy = 2;
      server.script = (_message, _request, response) => {
        busy -= 1;
        return busy >= 0 ? status(503, {}, body)(response) : { content: [{ type: 'text', text: 'done' }] };
      };
      expect(textOf(await callOn(opened.driver, serverAt(server.url), { tool: 'act' }))).toBe('done');
      server.script = (_message, _request, response) => status(429, { 'retry-after': '60' }, body)(response);
      const outcome = await callOn(opened.driver, serverAt(server.url), { tool: 'act' });
      expect(outcome).toMatchObject({ kind: 'unavailable', retryAfterMs: 60_000 });
      const away = serverAt(`http://127.0.0.1:${await freePort()}/mcp`);
      expect(await callOn(opened.driver, away, { tool: 'act' })).toMatchObject({ kind: 'unavailable' });
      expect(await listOn(opened.driver, away)).toMatchObject({ kind: 'unavailable' });
    });

    test('that never answers ends with its deadline, and the server hears of it', async () => {
      await using opened = open();
      await using server = await ScriptedServer.start();
      const session = serverAt(server.url);
      expect(textOf(await callOn(opened.driver, session, { tool: 'act' }))).toBe('done');
      server.script = () => null;
      const late = await callOn(opened.driver, session, { tool: 'act', deadline: Date.now() + 2_000 });
      expect(late).toMatchObject({ kind: 'failed', code: 'timeout' });
      // On a machine that is slow enough it was never sent.
      if (late.kind === 'failed' && late.mayHaveHappened) {
        await until('the server to hear of it', () => server.asked.includes('notifications/cancelled'), 30_000);
      }
      server.before = () => null;
      const unsent = await callOn(opened.driver, serverAt(server.url), { tool: 'act', deadline: Date.now() + 500 });
      expect(unsent).toMatchObject({ kind: 'failed', code: 'timeout', mayHaveHappened: false });
      const listing = await opened.driver.list(serverAt(server.url, { name: 'other' }), {
        ...{ signal: new AbortController().signal, deadline: Date.now() + 500 },
      });
      expect(listing).toMatchObject({ kind: 'unavailable' });
    });

    test('that is no longer wanted rejects with the reason', async () => {
      await using opened = open();
      await using server = await ScriptedServer.start();
      const caller = new AbortController();
      server.script = () => {
        caller.abort(new Error('not wanted'));
        return null;
      };
      const calling = callOn(opened.driver, serverAt(server.url), { tool: 'act' }, { signal: caller.signal });
      await expect(calling).rejects.toThrow('not wanted');
      await until('the server to hear of it', () => server.asked.includes('notifications/cancelled'), 30_000);
      const again = callOn(opened.driver, serverAt(server.url), { tool: 'act' }, { signal: caller.signal });
      await expect(again).rejects.toThrow('not wanted');
    });

    test('ends when the driver stops', async () => {
      await using opened = open();
      await using server = await ScriptedServer.start();
      server.script = () => null;
      const calling = callOn(opened.driver, serverAt(server.url), { tool: 'act' });
      await until('the call to arrive', () => server.calls > 0, 30_000);
      await opened.driver.stop();
      expect(await calling).toMatchObject({ kind: 'failed', code: 'lost', mayHaveHappened: true });
    });

    test('sends the headers of the manifest but those of the protocol', async () => {
      await using opened = open();
      await using server = await ScriptedServer.start();
      const seen: Record<string, unknown>[] = [];
      server.script = (_message, { headers }) => {
        seen.push(headers);
        return { content: [] };
      };
      const headers = {
        'x-team': 'blue',
        Host: 'evil.example',
        'Mcp-Session-Id': 'x',
        'content-length': '1',
        Cookie: 'a=b',
      };
      const outcome = await callOn(opened.driver, serverAt(server.url, { headers }), { tool: 'act' });
      expect(outcome).toMatchObject({ kind: 'result' });
      expect(seen[0]).toMatchObject({ 'x-team': 'blue', host: new URL(server.url).host });
      expect(seen[0]).not.toHaveProperty('cookie');
      expect(seen[0]).not.toHaveProperty('mcp-session-id');
    });
  });
}

/** What answers contain. */
export function answerSuite(open: OpenDriver): void {
  describe('an answer', () => {
    const text = (length: number) => ({ content: [{ type: 'text', text: 'x'.repeat(length) }] });

    test.each(['application/json', 'text/event-stream'])(
      'that is large comes as a whole, too large not: %s',
      async (type) => {
        await using opened = open();
        await using server = await ScriptedServer.start();
        let length = 0;
        server.script = ({ id }, _request, response) => {
          const body = JSON.stringify({ jsonrpc: '2.0', id, result: text(length) });
          response.writeHead(200, { 'content-type': type });
          const sent = type === 'application/json' ? body : `event: message\ndata: ${body}\n\n`;
          for (let at = 0; at < sent.length; at += 10_000) response.write(sent.slice(at, at + 10_000));
          response.end();
          return null;
        };
        for (length of [0, 1_000, 300_000, 5 * MIB]) {
          const outcome = await callOn(opened.driver, serverAt(server.url), { tool: 'act' });
          expect(textOf(outcome)).toHaveLength(length);
        }
        length = 9 * MIB;
        const outcome = await callOn(opened.driver, serverAt(server.url), { tool: 'act' });
        expect(outcome).toMatchObject({ kind: 'failed', code: 'too_large', mayHaveHappened: true });
      },
    );

    test.each([
      ['does not have what the schema requires', { content: [], structuredContent: {} }],
      ['has another type', { content: [], structuredContent: { n: 'one' } }],
      ['is missing', { content: [{ type: 'text', text: '{"n":1}' }] }],
      ['has no bottom', { content: [], structuredContent: { n: 1, ...nested(5_000) } }],
    ])('whose structured content %s', async (_what, answer) => {
      await using opened = open();
      await using server = await ScriptedServer.start();
      const outputSchema = { ...OBJECT, properties: { n: { type: 'number' } }, required: ['n'] };
      server.tools = [{ name: 'act', inputSchema: OBJECT, outputSchema }];
      server.script = () => answer;
      const outcome = await callOn(opened.driver, serverAt(server.url), { tool: 'act' });
      expect(outcome).toMatchObject({ kind: 'failed', code: 'invalid_answer', mayHaveHappened: true });
      server.script = () => ({ content: [], structuredContent: { n: 1 } });
      const good = await callOn(opened.driver, serverAt(server.url), { tool: 'act' });
      expect(good).toMatchObject({ kind: 'result', structured: { n: 1 } });
    });

    test('of many parts is cut, and says so', async () => {
      await using opened = open();
      await using server = await ScriptedServer.start();
      server.script = () => ({ content: Array.from({ length: 5_000 }, (_, i) => ({ type: 'text', text: String(i) })) });
      const outcome = await callOn(opened.driver, serverAt(server.url), { tool: 'act' });
      if (outcome.kind !== 'result') throw new Error(textOf(outcome));
      expect(outcome.content).toHaveLength(256);
      expect(outcome.content.at(-1)).toEqual({ type: 'text', text: '(4745 more parts were left out)' });
    });

    test('that floods with progress is read slowly, and what it tells is passed on rarely', async () => {
      await using opened = open();
      await using server = await ScriptedServer.start();
      let [isClosed, sent] = [false, 0];
      server.script = ({ params }, _request, response) => {
        const { progressToken } = Object(params['_meta']);
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        response.on('close', () => (isClosed = true));
        const told = { jsonrpc: '2.0', method: 'notifications/progress', params: { progressToken, progress: 1 } };
        const messages = `data: ${JSON.stringify(told)}\n\n`.repeat(100);
        const flood = (): void => {
          let isOpen = true;
          while (!isClosed && isOpen) {
            isOpen = response.write(messages);
            sent += 100;
          }
          if (!isClosed) response.once('drain', flood);
        };
        flood();
        return null;
      };
      let told = 0;
      const caller = new AbortController();
      const onProgress = (): void => {
        told += 1;
        if (told === 3) caller.abort(new Error('enough'));
      };
      const calling = callOn(
        opened.driver,
        serverAt(server.url),
        { tool: 'act' },
        { onProgress, signal: caller.signal },
      );
      await expect(calling).rejects.toThrow('enough');
      expect(sent).toBeLessThan(50_000);
      await until('the flood to end', () => isClosed, 30_000);
    });

    test('that breaks off and is offered again without end is given up', async () => {
      await using opened = open();
      await using server = await ScriptedServer.start();
      let streams = 0;
      const stream = (response: ServerResponse): null => {
        streams += 1;
        response.writeHead(200, { 'content-type': 'text/event-stream' }).end(`retry: 0\nid: ${streams}\ndata:\n\n`);
        return null;
      };
      server.stream = stream;
      server.script = (_message, _request, response) => stream(response);
      const outcome = await callOn(opened.driver, serverAt(server.url), { tool: 'act' });
      expect(outcome).toMatchObject({ kind: 'failed', code: 'lost', mayHaveHappened: true });
      expect(streams).toBeLessThan(60);
    });

    test('that breaks off is read to its end where the server offers that', async () => {
      await using opened = open();
      await using server = await ScriptedServer.start();
      let asked: string | number | undefined;
      server.script = ({ id }, _request, response) => {
        asked = id;
        response.writeHead(200, { 'content-type': 'text/event-stream' }).end(`retry: 0\nid: 1\ndata:\n\n`);
        return null;
      };
      server.stream = (response) => {
        const body = JSON.stringify({
          jsonrpc: '2.0',
          id: asked,
          result: { content: [{ type: 'text', text: 'late' }] },
        });
        response.writeHead(200, { 'content-type': 'text/event-stream' }).end(`id: 2\ndata: ${body}\n\n`);
      };
      expect(textOf(await callOn(opened.driver, serverAt(server.url), { tool: 'act' }))).toBe('late');
    });
  });
}

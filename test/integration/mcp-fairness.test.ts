import { expect, test } from 'vitest';
import { ScriptedServer } from '../support/mcp-servers.ts';
import { serverAt, TestMcp, textOf } from '../support/mcp.ts';

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

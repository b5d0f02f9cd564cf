/**
 * Servers for the row `mcp`, in a process of their own: takes how they behave as JSON, writes their addresses as a line
 * of JSON. `slow`: answers after a time that an honest server needs.
 */
import { createServer } from 'node:http';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { json } from 'node:stream/consumers';
import { z } from 'zod';

export type Behaviour = 'good' | 'hangs' | 'lies' | 'floods';

const ANSWER_MS = 5;
const message = z.looseObject({ method: z.string(), id: z.union([z.string(), z.number()]).optional() });
const note = JSON.stringify({ jsonrpc: '2.0', method: 'notifications/message', params: { level: 'info', data: 'x' } });
const NOTES = `data: ${note}\n\n`.repeat(200);

function flood(response: ServerResponse): void {
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  const more = (): void => {
    let isOpen = !response.destroyed;
    while (isOpen) isOpen = response.write(NOTES) && !response.destroyed;
    if (!response.destroyed) response.once('drain', more);
  };
  more();
}

function resultOf(method: string): object | null {
  const tool = { name: 'act', inputSchema: { type: 'object' } };
  if (method === 'tools/list') return { tools: [tool] };
  if (method !== 'initialize') return null;
  return { protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo: { name: 's', version: '1' } };
}

async function answerTo(behaviour: Behaviour, request: IncomingMessage, response: ServerResponse): Promise<void> {
  if (request.method !== 'POST') {
    response.writeHead(405).end();
    return;
  }
  const { method, id } = message.parse(await json(request));
  const answer = (body: object): void => {
    response.writeHead(200, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ jsonrpc: '2.0', id, ...body }));
  };
  const usual = resultOf(method);
  if (id === undefined) response.writeHead(202).end();
  else if (usual !== null) answer({ result: usual });
  else if (method !== 'tools/call') answer({ error: { code: -32_601, message: 'no such method' } });
  else if (behaviour === 'lies') answer({ result: { content: 5 } });
  else if (behaviour === 'floods') flood(response);
  else if (behaviour === 'good') {
    setTimeout(() => answer({ result: { content: [{ type: 'text', text: 'done' }] } }), ANSWER_MS);
  }
}

async function serve(behaviour: Behaviour): Promise<string> {
  const server = createServer((request, response) => {
    void answerTo(behaviour, request, response).catch(() => response.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`;
}

const behaviours = z.array(z.enum(['good', 'hangs', 'lies', 'floods'])).parse(JSON.parse(process.argv[2] ?? '[]'));
process.stdout.write(`${JSON.stringify(await Promise.all(behaviours.map(serve)))}\n`);
process.stdin.resume().on('end', () => process.exit(0));

import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import type { EventRecord, TenantClient } from '../support/client.ts';
import { startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { EverythingServer, ModernServer } from '../support/mcp-servers.ts';
import { ModelServer } from '../support/model-server.ts';
import { until } from '../support/wait-until.ts';
import { fresh, newTenant, refused } from '../conformance/http/target.ts';

/** Turns whose agents use MCP servers, on two nodes of one log. */

const TURN_MS = 60_000;
// Several turns each, and a node that is killed and started again.
vi.setConfig({ testTimeout: 240_000 });
const env = { AGENT_HOST_EGRESS: 'loopback' };
const hosts: Host[] = [];
let modern: ModernServer;
let everything: EverythingServer;
let tenant: TenantClient;
let there: TenantClient;
let second: Host;

beforeAll(async () => {
  [modern, everything] = await Promise.all([ModernServer.start(), EverythingServer.start()]);
  const first = await startHost({ env });
  hosts.push(first);
  second = await startHost({ join: first, env });
  hosts.push(second);
  tenant = await newTenant({ adminKey: first.adminKey, nodes: [first, second] });
  there = tenant.at(second);
});

afterAll(async () => {
  for (const host of hosts.toReversed()) await host[Symbol.asyncDispose]();
  await modern[Symbol.asyncDispose]();
  await everything[Symbol.asyncDispose]();
});

const call = (name: string, input: object = {}) => ({ toolCalls: [{ name, input }] });
const outcomes = (items: readonly EventRecord[]) =>
  items.flatMap((item) => (item.type === 'action.completed' ? [item.payload.outcome] : []));

async function opened(server: object): Promise<string> {
  const [agentId, id] = [fresh('agent'), fresh('s')];
  await tenant.saveAgent(agentId, { mcpServers: [server] });
  await tenant.openSession(id, { agentId });
  return id;
}

async function played(id: string, steps: readonly unknown[]): Promise<EventRecord[]> {
  const { turnId } = await tenant.play(id, steps);
  const end = await tenant.turnEnd(id, turnId, TURN_MS);
  expect(end.type, JSON.stringify(end.payload)).toBe('turn.completed');
  return (await tenant.items(id)).filter((item) => item.turnId === turnId);
}

async function waiting(of: TenantClient, id: string, status: string) {
  return await until(`the session is ${status}`, async () => {
    const session = await of.session(id);
    return session.status === status && (session.waits[0] ?? false);
  });
}

test('a turn calls the tools of a server, and its history says which there are', async () => {
  const id = await opened({ name: 'modern', url: modern.url });
  const items = await played(id, [call('modern_add', { a: 2, b: 3 }), { text: 'done' }]);
  expect(items.map(({ type }) => type)).toEqual([
    ...['command.message', 'mcp.state', 'message.assistant', 'action.completed'],
    ...['message.assistant', 'turn.completed'],
  ]);
  expect(items[1]?.payload).toMatchObject({ server: 'modern', state: 'connected', toolCount: 4 });
  expect(items[3]?.payload).toMatchObject({
    ...{ kind: 'mcp', toolName: 'modern_add' },
    outcome: { kind: 'completed', output: { sum: 5 } },
  });
  const again = await played(id, [call('modern_add', { a: 1, b: 1 }), call('modern_none'), { text: 'done' }]);
  expect(again.map(({ type }) => type)).not.toContain('mcp.state');
  expect(outcomes(again)).toMatchObject([{ output: { sum: 2 } }]);
});

test('a question pauses the turn, and is answered at another node when the one that asked was killed', async () => {
  const id = await opened({ name: 'modern', url: modern.url });
  const { turnId } = await there.play(id, [call('modern_book', { room: 'blue' }), { text: 'done' }]);
  const wait = await waiting(tenant, id, 'paused');
  expect(wait).toMatchObject({ kind: 'interaction', interactionKind: 'question', server: 'modern' });
  await second.kill();
  const inbox = JSON.parse((await tenant.request({ path: '/v1/interactions' })).text) as { interactions: object[] };
  expect(inbox.interactions).toMatchObject([{ interactionId: wait.id, prompt: 'Book blue?', toolName: 'modern_book' }]);
  const answer = async (value: unknown) => await tenant.command(id, { type: 'respond', interactionId: wait.id, value });
  refused(await answer({ nights: 'two' }), 400, 'invalid_request');
  expect((await answer({ nights: 2 })).status).toBe(202);
  expect((await tenant.turnEnd(id, turnId, TURN_MS)).type).toBe('turn.completed');
  const [outcome] = outcomes(await tenant.items(id));
  expect(outcome).toMatchObject({ kind: 'completed', output: expect.stringContaining('"nights":2') as string });
  expect(modern.done.filter((what) => what.startsWith('book blue'))).toEqual(['book blue accept']);
  await second.restart();
  there = tenant.at(second);
});

test('an approval shows what would be called; refused, nothing is', async () => {
  const id = await opened({ name: 'modern', url: modern.url, approval: 'writes' });
  const before = modern.done.length;
  const { turnId } = await tenant.play(id, [
    call('modern_add', { a: 1, b: 1 }),
    call('modern_book', { room: 'red' }),
    { text: 'done' },
  ]);
  const wait = await waiting(tenant, id, 'paused');
  expect(wait).toMatchObject({ interactionKind: 'approval', toolName: 'modern_book', server: 'modern' });
  const answer = await there.command(id, { type: 'approve', interactionId: wait.id, approved: false });
  expect(answer.status).toBe(202);
  await tenant.turnEnd(id, turnId, TURN_MS);
  const items = await tenant.items(id);
  expect(items.find(({ type }) => type === 'action.pending')?.payload).toMatchObject({ kind: 'mcp' });
  expect(outcomes(items)).toMatchObject([{ kind: 'completed' }, { code: 'approval_denied' }]);
  expect(modern.done.slice(before)).toEqual(['add']);
});

test('cancelling a turn reaches the server', async () => {
  const id = await opened({ name: 'modern', url: modern.url });
  const { cancelled, waiting: under } = modern;
  const { turnId } = await tenant.play(id, [call('modern_wait')]);
  await until('the call is under way', async () => await Promise.resolve(modern.waiting > under));
  await there.command(id, { type: 'cancel' });
  expect((await tenant.turnEnd(id, turnId, TURN_MS)).type).toBe('turn.cancelled');
  await until('the server knows', async () => await Promise.resolve(modern.cancelled > cancelled));
  const doubt = (await tenant.items(id)).find(({ type }) => type === 'effect.uncertain');
  expect(doubt?.payload).toMatchObject({ kind: 'mcp', reason: 'cancelled' });
});

test('a server that is away fails a turn that requires it, and no other', async () => {
  const url = 'http://127.0.0.1:9/mcp';
  const id = await opened({ name: 'gone', url });
  const { turnId } = await tenant.play(id, [{ text: 'done' }]);
  const end = await tenant.turnEnd(id, turnId, TURN_MS);
  expect(end).toMatchObject({ type: 'turn.failed', payload: { error: { code: 'mcp_unavailable' } } });
  const items = await played(await opened({ name: 'gone', url, required: false }), [{ text: 'done' }]);
  expect(items.find(({ type }) => type === 'mcp.state')?.payload).toMatchObject({ state: 'unavailable' });
});

test('a turn that is interrupted while its server is asked for its tools does not hold up the next, of other servers', async () => {
  let asked = 0;
  const silent = createServer(() => asked++);
  await once(silent.listen(0, '127.0.0.1'), 'listening');
  try {
    const id = await opened({ name: 'silent', url: `http://127.0.0.1:${(silent.address() as AddressInfo).port}/mcp` });
    await tenant.play(id, [{ text: 'first' }]);
    await until('the server is asked', () => asked > 0, TURN_MS);
    const mcpServers = [{ name: 'modern', url: modern.url }];
    const manifest = { instructions: 'Help.', model: { provider: 'fixture', model: 'any' }, mcpServers };
    const content = JSON.stringify({ fixture: [{ text: 'second' }] });
    const answer = await tenant.command(id, { type: 'message', whenBusy: 'interrupt', content, manifest });
    const { turnId } = JSON.parse(answer.text) as { turnId: string };
    const end = await tenant.turnEnd(id, turnId, TURN_MS);
    expect(end).toMatchObject({ type: 'turn.completed', payload: { output: 'second' } });
  } finally {
    silent.closeAllConnections();
    silent.close();
  }
});

test('the reference server of the older revisions: text, an image, a file, a question in the middle of a call', async () => {
  const id = await opened({ name: 'every', url: everything.url });
  const reference = { resourceType: 'Text', resourceId: 1 };
  const items = await played(id, [
    call('every_echo', { message: 'hello' }),
    call('every_get-tiny-image'),
    call('every_get-resource-reference', reference),
    { text: 'done' },
  ]);
  const [echo, image, file] = outcomes(items);
  expect(echo).toEqual({ kind: 'completed', output: 'Echo: hello' });
  expect(image).toMatchObject({ output: { content: [{ type: 'file', contentType: 'image/png', version: 1 }] } });
  expect(file).toMatchObject({ output: { content: [{ type: 'resource', contentType: 'text/plain' }] } });
  const created = (await tenant.items(id)).filter(({ type }) => type === 'artifact.created');
  expect(created.map(({ payload }) => payload)).toMatchObject([{ source: 'tool', contentType: 'image/png' }]);
  const { turnId } = await tenant.play(id, [call('every_trigger-elicitation-request'), { text: 'done' }]);
  const wait = await waiting(there, id, 'paused');
  expect(wait).toMatchObject({ interactionKind: 'question', server: 'every' });
  await there.command(id, { type: 'respond', interactionId: wait.id, value: { action: 'decline' } });
  expect((await tenant.turnEnd(id, turnId, TURN_MS)).type).toBe('turn.completed');
  expect(JSON.stringify(outcomes(await tenant.items(id)).at(-1))).toMatch(/declin/i);
});

test('the reference server of the older revisions: one turn calls each of its tools', async () => {
  const id = await opened({ name: 'every', url: everything.url });
  const inputs: Readonly<Record<string, object>> = {
    echo: { message: 'hello' },
    'get-annotated-message': { messageType: 'error', includeImage: true },
    'get-env': {},
    'get-resource-links': { count: 3 },
    'get-resource-reference': { resourceType: 'Text', resourceId: 1 },
    'get-structured-content': { location: 'Chicago' },
    'get-sum': { a: 2, b: 3 },
    'get-tiny-image': {},
    'gzip-file-as-resource': { name: 'x.gz', data: 'data:text/plain,text', outputType: 'resource' },
    'toggle-simulated-logging': {},
    'toggle-subscriber-updates': {},
    'trigger-long-running-operation': { duration: 1, steps: 2 },
  };
  const steps = Object.entries(inputs).map(([tool, input]) => call(`every_${tool}`, input));
  const address = { url: 'https://sign.example/in', errorPath: true, elicitationId: 'one' };
  const asking = [call('every_trigger-elicitation-request'), call('every_trigger-url-elicitation', address)];
  const { turnId } = await tenant.play(id, [...steps, ...asking, { text: 'done' }]);
  let answered = '';
  for (const value of [{ action: 'accept', content: { name: 'Ann' } }, { action: 'decline' }]) {
    const wait = await until('the next question', async () => {
      const { status, waits } = await there.session(id);
      return status === 'paused' && waits.find((one) => one.id !== answered);
    });
    answered = wait.id;
    await there.command(id, { type: 'respond', interactionId: wait.id, value });
  }
  expect((await tenant.turnEnd(id, turnId, TURN_MS)).type).toBe('turn.completed');
  const items = await tenant.items(id);
  const state = items.find(({ type }) => type === 'mcp.state');
  const listed = JSON.stringify(state?.payload);
  for (const tool of [...Object.keys(inputs), 'trigger-elicitation-request', 'trigger-url-elicitation'])
    expect(listed, tool).toContain(`every_${tool}`);
  const said = outcomes(items);
  const failed = said.slice(0, -1).filter(({ kind }) => kind !== 'completed');
  expect([said.length, failed]).toEqual([steps.length + asking.length, []]);
  expect(JSON.stringify(said.at(-2))).toContain('Name: Ann');
  expect(said.at(-1)).toMatchObject({ kind: 'failed', code: 'mcp_refused' });
});

test('a model is shown the image that a tool returns, in the result and in each step after it', async () => {
  await using model = await ModelServer.start('anthropic', ['sk-key']);
  const selected = { provider: 'anthropic', model: 'claude-sonnet-4-5' };
  const body = { ...selected, baseUrl: model.baseUrl, credential: { apiKey: 'sk-key' } };
  expect((await tenant.request({ method: 'PUT', path: '/v1/tenant/model', body })).status).toBe(200);
  const [agentId, id] = [fresh('agent'), fresh('s')];
  await tenant.saveAgent(agentId, { model: selected, mcpServers: [{ name: 'every', url: everything.url }] });
  await tenant.openSession(id, { agentId });
  const image = { toolCalls: [{ name: 'every_get-tiny-image', input: {} }] };
  model.next(image, { toolCalls: [{ name: 'every_echo', input: { message: 'hi' } }] }, { text: 'A logo.' });
  const { turnId } = await tenant.message(id, 'What does it look like?');
  expect(await tenant.turnEnd(id, turnId, TURN_MS)).toMatchObject({ payload: { output: 'A logo.' } });
  const shown = { type: 'image', source: { type: 'base64', media_type: 'image/png' } };
  expect(model.requests).toHaveLength(3);
  for (const request of model.requests.slice(1)) {
    const { messages } = Object(request.body);
    expect(messages[2].content).toMatchObject([{ type: 'tool_result', content: [{ type: 'text' }, shown] }]);
  }
  expect(JSON.stringify(await tenant.items(id))).not.toContain('iVBORw0KGgo');
});

test('the progress of a tool is shown to those that ask, and is no history', async () => {
  const id = await opened({ name: 'every', url: everything.url });
  const asking = await there.events(id, { previews: true });
  const silent = await there.events(id);
  const isReady = ({ frames }: typeof asking) => frames.some(({ event }) => event === 'ready');
  await until('both read', () => isReady(asking) && isReady(silent), TURN_MS);
  const input = { duration: 3, steps: 30 };
  const items = await played(id, [call('every_trigger-long-running-operation', input), { text: 'done' }]);
  const told = () => asking.frames.filter(({ event, data }) => event === 'preview' && data.includes('"progress":'));
  await until('progress is shown', () => told().length > 0, TURN_MS);
  const frames = told();
  const [first] = frames.map(({ data }) => JSON.parse(data) as unknown);
  const said = items.find(({ type }) => type === 'action.completed');
  const { turnId, payload } = said ?? {};
  expect(first).toMatchObject({
    ...{ turnId, callId: Object(payload).callId, toolName: 'every_trigger-long-running-operation' },
    progress: { progress: expect.any(Number), total: 30 },
  });
  expect(frames.every(({ id: cursor }) => cursor === null)).toBe(true);
  expect(silent.frames.some(({ event }) => event === 'preview')).toBe(false);
  for (const one of [asking, silent]) one.close();
});

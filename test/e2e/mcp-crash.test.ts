import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import type { EventRecord, TenantClient } from '../support/client.ts';
import { Gate } from '../support/engine.ts';
import { startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { ModernServer, ScriptedServer } from '../support/mcp-servers.ts';
import { until } from '../support/wait-until.ts';
import { fresh, newTenant } from '../conformance/http/target.ts';

/** Nodes that are killed while turns call MCP servers. One node has the servers and takes commands; the other runs the turns. */

const TURN_MS = 120_000;
const env = { AGENT_HOST_EGRESS: 'loopback' };
const hosts: Host[] = [];
let first: Host;
let engine: Host;
let server: ScriptedServer;
let tenant: TenantClient;

beforeAll(async () => {
  first = await startHost({ env: { ...env, AGENT_HOST_ROLES: 'commands,reads,projector' } });
  hosts.push(first);
  engine = await startHost({ join: first, env });
  hosts.push(engine);
});

afterAll(async () => {
  for (const host of hosts.toReversed()) await host[Symbol.asyncDispose]();
});

beforeEach(async () => {
  server = await ScriptedServer.start();
  tenant = await newTenant({ adminKey: first.adminKey, nodes: [first, engine] });
});

afterEach(async () => {
  Gate.openAll();
  await server[Symbol.asyncDispose]();
});

const call = (name: string, input: object = {}) => ({ toolCalls: [{ name, input }] });

/** Plays a turn of an agent with a server of that name. */
async function played(name: string, url: string, steps: readonly unknown[]): Promise<{ id: string; turnId: string }> {
  const id = fresh('s');
  const agentId = await tenant.saveAgent(fresh('agent'), { mcpServers: [{ name, url }] });
  await tenant.openSession(id, { agentId });
  const { turnId } = await tenant.play(id, steps);
  return { id, turnId: turnId ?? '' };
}

/** Kills the node that runs the turn while the server carries the call out, and starts it again. */
async function killedInCall(annotations: object): Promise<{ id: string; turnId: string }> {
  server.tools = [{ name: 'act', inputSchema: { type: 'object' }, annotations }];
  const gate = new Gate();
  server.script = async () => {
    await gate.opened;
    return { content: [{ type: 'text', text: 'done' }] };
  };
  const turn = await played('docs', server.url, [call('docs_act'), { text: 'done' }]);
  await until('the server carries the call out', () => server.carriedOut === 1, TURN_MS);
  await engine.kill();
  gate.open();
  await engine.restart();
  return turn;
}

const outcomes = (items: readonly EventRecord[]) =>
  items.flatMap((item) => (item.type === 'action.completed' ? [item.payload.outcome] : []));
const ofType = (items: readonly EventRecord[], type: string) => items.filter((item) => item.type === type);

async function waiting(id: string, status: string) {
  return await until(
    `the session is ${status}`,
    async () => {
      const session = await tenant.session(id);
      return session.status === status && (session.waits[0] ?? false);
    },
    TURN_MS,
  );
}

test.each([
  ['retry', 2, { kind: 'completed', output: 'done' }],
  ['result', 1, { kind: 'completed', output: 'seen' }],
  ['fail', 1, { kind: 'failed', code: 'effect_lost' }],
] as const)(
  'a call that its node is killed in is in doubt until a person resolves it with %s',
  async (resolution, calls, outcome) => {
    const { id, turnId } = await killedInCall({});
    const wait = await waiting(id, 'uncertain');
    expect(wait).toMatchObject({ kind: 'effect', toolName: 'docs_act' });
    const doubt = ofType(await tenant.items(id), 'effect.uncertain');
    expect(doubt.map(({ payload }) => payload)).toMatchObject([{ kind: 'mcp', reason: 'lost', effectId: wait.id }]);
    expect(server.carriedOut).toBe(1);
    const value = resolution === 'result' ? { resolution, result: 'seen' } : { resolution };
    expect((await tenant.command(id, { type: 'respond', interactionId: wait.id, value })).status).toBe(202);
    expect((await tenant.turnEnd(id, turnId, TURN_MS)).type).toBe('turn.completed');
    expect(outcomes(await tenant.items(id))).toMatchObject([outcome]);
    expect(server.carriedOut).toBe(calls);
  },
);

test.each([[{ readOnlyHint: true }], [{ idempotentHint: true }]])(
  'a call of a tool that says %j is made again by the next worker',
  async (annotations) => {
    const { id, turnId } = await killedInCall(annotations);
    expect((await tenant.turnEnd(id, turnId, TURN_MS)).type).toBe('turn.completed');
    const items = await tenant.items(id);
    expect(outcomes(items)).toMatchObject([{ kind: 'completed', output: 'done' }]);
    expect(ofType(items, 'effect.uncertain')).toEqual([]);
    expect(server.carriedOut).toBe(2);
  },
);

test('a question is answered at another node after both nodes were killed and started again', async () => {
  await using modern = await ModernServer.start();
  const { id, turnId } = await played('modern', modern.url, [call('modern_book', { room: 'blue' }), { text: 'done' }]);
  const wait = await waiting(id, 'paused');
  await engine.kill();
  await first.kill();
  await first.restart();
  await engine.restart({ NATS_URL: await first.file('nats-url'), DATABASE_URL: await first.file('database-url') });
  const answer = { type: 'respond', interactionId: wait.id, value: { nights: 2 } };
  expect((await tenant.at(engine).command(id, answer)).status).toBe(202);
  tenant = tenant.at(first);
  expect((await tenant.turnEnd(id, turnId, TURN_MS)).type).toBe('turn.completed');
  const [outcome] = outcomes(await tenant.items(id));
  expect(outcome).toMatchObject({ kind: 'completed', output: expect.stringContaining('"nights":2') as string });
  expect(modern.done).toEqual(['book blue accept']);
});

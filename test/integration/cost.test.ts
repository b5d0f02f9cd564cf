import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { claimed, claimedAll } from '#src/http/wire/executors.ts';
import { AdminClient, TenantClient } from '../support/client.ts';
import { startHost } from '../support/host.ts';
import { until } from '../support/wait-until.ts';

/**
 * Round trips of a node by operation, its leases and checkpoints left out: those go by the clock, not by the command. So
 * do repetitions: of an append that the log did not confirm within a second, with the look at its successor that may
 * follow, and looks at a checkpoint whose announcement did not come within a quarter of one. A slow disk causes them.
 */
async function counted(metricsUrl: string): Promise<Record<string, number>> {
  const text = await (await fetch(metricsUrl)).text();
  const numberOf = (series: string): number => {
    const line = text.split('\n').find((each) => each.startsWith(`agent_host_${series} `));
    return Number(line?.split(' ')[1] ?? 0);
  };
  const trips = (operation: string): number => numberOf(`log_round_trips_total{operation="${operation}"}`);
  const retries = numberOf('log_append_retries_total');
  return {
    append: trips('append') - retries,
    read: trips('read'),
    head: trips('head'),
    successor: Math.max(0, trips('successor') - retries),
    sql: numberOf('sql_statements_total') - numberOf('projection_looks_total'),
  };
}

async function costOf(metricsUrl: string, work: () => Promise<void>): Promise<Record<string, number>> {
  const before = await counted(metricsUrl);
  await work();
  const after = await counted(metricsUrl);
  return Object.fromEntries(Object.entries(after).map(([name, value]) => [name, value - (before[name] ?? 0)]));
}

const THREE_STEPS = [
  { text: '1', toolCalls: [{ name: 'none', input: {} }] },
  { text: '2', toolCalls: [{ name: 'none', input: {} }] },
  { text: '3' },
];
const TURNS = 20;

/** Sends messages one after the other, each as soon as the turn before it has ended. */
async function turns(client: TenantClient, sessionId: string, count: number, content: string): Promise<void> {
  for (let i = 0; i < count; i++) {
    await until('the session takes the next message', async () => {
      const { status, text } = await client.command(sessionId, { type: 'message', content });
      if (status !== 202 && status !== 409) throw new Error(text);
      return status === 202;
    });
  }
}

/**
 * Promise 6: what a command and a turn cost does not depend on how long the session is. Counted on a node that accepts
 * and runs, while another node projects: there, one no-op turn is two appends and one of three steps four, no reads, no
 * SQL, at the tenth event and at the five thousandth.
 */
test(
  'round trips per command and per turn are fixed numbers, at 10 events and at 5,000',
  { timeout: 600_000 },
  async () => {
    await using reader = await startHost({ env: { AGENT_HOST_ROLES: 'projector,reads' } });
    await using node = await startHost({
      ...{ join: reader, singleProcess: true },
      env: { AGENT_HOST_ROLES: 'commands,engine' },
    });
    const tenant = await new AdminClient(reader).createTenant();
    await tenant.saveAgent();
    const client = tenant.at(node);
    const ended = async (session: string): Promise<void> => {
      await until('the last turn has ended', async () => (await tenant.session(session)).status === 'idle');
    };
    const measure = async (session: string): Promise<Record<string, Record<string, number>>> => {
      const noOp = await costOf(node.metricsUrl, async () => {
        for (let i = 0; i < TURNS; i++) {
          await client.message(session, 'hello');
          await ended(session);
        }
      });
      const three = await costOf(node.metricsUrl, async () => {
        for (let i = 0; i < TURNS; i++) {
          await client.play(session, THREE_STEPS);
          await ended(session);
        }
      });
      const cancel = await costOf(node.metricsUrl, async () => {
        for (let i = 0; i < TURNS; i++) await client.cancel(session);
      });
      return { noOp, three, cancel };
    };
    const expected = (appends: number) => ({ append: appends * TURNS, read: 0, head: 0, successor: 0, sql: 0 });
    const fixed = { noOp: expected(2), three: expected(4), cancel: expected(1) };

    await client.openSession('short');
    await turns(client, 'short', 3, 'warm');
    await ended('short');
    expect((await tenant.items('short')).length).toBeLessThan(12);
    expect(await measure('short')).toEqual(fixed);

    await client.openSession('long');
    await turns(client, 'long', 1_700, 'fill');
    await ended('long');
    const items = await tenant.items('long');
    expect(items.length).toBeGreaterThan(5_000);
    expect(await measure('long')).toEqual(fixed);

    // Two appends and three heads, at the end and at any place; nothing is read of what it inherits.
    const forks = async (session: string, cursor: string | undefined): Promise<Record<string, number>> =>
      await costOf(node.metricsUrl, async () => {
        for (let i = 0; i < TURNS; i++) {
          const ids = { requestId: 'r', idempotencyKey: randomUUID(), id: randomUUID() };
          const path = `/v1/sessions/${session}/fork`;
          expect((await client.request({ method: 'POST', path, body: { ...ids, cursor } })).status).toBe(201);
        }
      });
    const [short] = await tenant.items('short', { limit: 1 });
    expect(await forks('short', short?.cursor)).toEqual(await forks('long', items[2_500]?.cursor));
    const atEnd = await forks('long', undefined);
    expect(atEnd).toEqual(await forks('short', undefined));
    expect(atEnd).toEqual({ append: 2 * TURNS, read: 0, head: 3 * TURNS, successor: 0, sql: 0 });
  },
);

/** One turn with one action, from the message to the end, as an executor and a person's application drive it. */
async function actionTurn(session: string, { tenant, client, executor }: Driven): Promise<void> {
  await client.play(session, [{ toolCalls: [{ name: 'find', input: {} }] }, { text: 'done' }]);
  const id = await until('the action waits', async () => {
    const { status, waits } = await tenant.session(session);
    return status === 'waiting' && waits[0]?.id;
  });
  const claim = { method: 'POST', path: `/v1/actions/${id}/claim`, body: { requestId: 'c' } };
  const { claimId, generation } = claimed.parse((await executor.request(claim)).json);
  const outcome = { kind: 'completed', output: 1 };
  const result = { type: 'action_result', actionId: id, claimId, generation, outcome };
  const { status, text } = await executor.command(session, result);
  if (status !== 202) throw new Error(text);
  await until('the turn has ended', async () => (await tenant.session(session)).status === 'idle');
}

/** The same with two actions, which one request takes. */
async function twoActions(session: string, { tenant, client, executor }: Driven): Promise<void> {
  const call = { name: 'find', input: {} };
  await client.play(session, [{ toolCalls: [call, call] }, { text: 'done' }]);
  await until('the actions wait', async () => (await tenant.session(session)).waits.length === 2);
  const body = { requestId: randomUUID(), limit: 10 };
  const claim = { method: 'POST', path: '/v1/actions/claim', body };
  const { claims } = claimedAll.parse((await executor.request(claim)).json);
  expect(claims).toHaveLength(2);
  for (const { action, claimId, generation } of claims) {
    const outcome = { kind: 'completed', output: 1 };
    const result = { type: 'action_result', actionId: action.actionId, claimId, generation, outcome };
    const { status, text } = await executor.command(session, result);
    if (status !== 202) throw new Error(text);
  }
  await until('the turn has ended', async () => (await tenant.session(session)).status === 'idle');
}

interface Driven {
  /** Asks another node, so that looking costs the counted one nothing. */
  readonly tenant: TenantClient;
  readonly client: TenantClient;
  readonly executor: TenantClient;
}

test(
  'an action costs an append for its claim and one for its result, and no reading',
  { timeout: 300_000 },
  async () => {
    await using reader = await startHost({ env: { AGENT_HOST_ROLES: 'projector,reads' } });
    await using node = await startHost({
      ...{ join: reader, singleProcess: true },
      env: { AGENT_HOST_ROLES: 'commands,engine' },
    });
    const tenant = await new AdminClient(reader).createTenant();
    await tenant.saveAgent('agent', { tools: [{ name: 'find', inputSchema: {} }] });
    const key = 'an-executor-token-of-our-own';
    const body = { executors: [{ agentId: 'agent', token: key }] };
    expect((await tenant.request({ method: 'PUT', path: '/v1/executors', body })).status).toBe(200);
    const client = tenant.at(node);
    const executor = new TenantClient({ ...client.credentials, key });
    const driven = { tenant, client, executor };
    const nobody = { method: 'POST', path: '/v1/actions/ac_none/claim', body: { requestId: 'c' } };
    await until('the node knows the executor', async () => (await executor.request(nobody)).status === 404);
    const measure = async (session: string): Promise<Record<string, number>> =>
      await costOf(node.metricsUrl, async () => {
        for (let i = 0; i < TURNS; i++) await actionTurn(session, driven);
      });
    await client.openSession('short');
    await actionTurn('short', driven);
    const { sql: shortSql, ...short } = await measure('short');
    // The message, the answer with the offer, the claim, the result with the next request, the end.
    expect(short).toMatchObject({ append: 5 * TURNS, read: 0, successor: 0 });
    // Two of them cost one append more: both claims are one commit, and each result has its own.
    const { append: forTwo, successor } = await costOf(node.metricsUrl, async () => {
      for (let i = 0; i < TURNS; i++) await twoActions('short', driven);
    });
    expect({ append: forTwo, successor }).toEqual({ append: 6 * TURNS, successor: 0 });
    await client.openSession('long');
    await turns(client, 'long', 500, 'fill');
    await until('the last turn has ended', async () => (await tenant.session('long')).status === 'idle');
    const { sql: longSql, ...long } = await measure('long');
    expect(long).toEqual(short);
    // Where an open action is this node knows by itself.
    expect([shortSql, longSql]).toEqual([0, 0]);
  },
);

import { expect, test } from 'vitest';
import { AdminClient } from '../support/client.ts';
import type { EventRecord, TenantClient } from '../support/client.ts';
import { done, Executor, registerExecutor } from '../support/executor.ts';
import type { ExecutorOptions } from '../support/executor.ts';
import { startHost } from '../support/host.ts';
import { seededRandom } from '../support/random.ts';
import { until } from '../support/wait-until.ts';

const EXECUTORS = 100;
const ACTIONS = 200;
const SESSIONS = 40;
const LEASE = { AGENT_HOST_LEASE_SECONDS: '5' };

/** Sessions whose turns each wait for several actions at the same time. */
async function offer(tenant: TenantClient): Promise<Map<string, string>> {
  const tools = [{ name: 'work', inputSchema: { type: 'object' } }];
  await tenant.saveAgent('agent', { tools });
  const turns = new Map<string, string>();
  const toolCalls = Array.from({ length: ACTIONS / SESSIONS }, (_, n) => ({ name: 'work', input: { n } }));
  await Promise.all(
    Array.from({ length: SESSIONS }, async (_, n) => {
      const id = `race/${n}`;
      await tenant.openSession(id);
      const { turnId } = await tenant.play(id, [{ toolCalls }, { text: `done ${n}` }]);
      turns.set(id, turnId ?? '');
    }),
  );
  return turns;
}

/** A person who lets everything run again of which nobody knows what became of it. */
async function retryUncertain(tenant: TenantClient, ids: Iterable<string>): Promise<void> {
  for (const id of ids) {
    const { status, waits } = await tenant.session(id);
    if (status !== 'uncertain') continue;
    for (const wait of waits) {
      if (wait.kind !== 'effect') continue;
      await tenant.command(id, { type: 'respond', interactionId: wait.id, value: { resolution: 'retry' } });
    }
  }
}

interface Told {
  readonly actionId: string;
  readonly generation: number;
}

const told = (items: readonly EventRecord[], type: string): Told[] =>
  items.filter((item) => item.type === type).map(({ payload }) => payload as Told);

const nameOf = ({ actionId, generation }: Told): string => `${actionId}.${generation}`;

/** What holds whatever has been killed: each action is completed once, and claimed once per generation. */
async function checkActions(tenant: TenantClient, turns: ReadonlyMap<string, string>): Promise<readonly Told[]> {
  const claims: Told[] = [];
  const completed: string[] = [];
  for (const [id, turnId] of turns) {
    expect(await tenant.turnEnd(id, turnId, 120_000)).toMatchObject({ type: 'turn.completed' });
    const items = await tenant.items(id);
    expect(told(items, 'action.pending').map(nameOf).length).toBe(
      new Set(told(items, 'action.pending').map(nameOf)).size,
    );
    claims.push(...told(items, 'action.claimed'));
    completed.push(...told(items, 'action.completed').map(({ actionId }) => actionId));
  }
  expect(completed).toHaveLength(ACTIONS);
  expect(new Set(completed).size).toBe(ACTIONS);
  expect(new Set(claims.map(nameOf)).size, 'a generation is claimed once').toBe(claims.length);
  return claims;
}

test(
  `${EXECUTORS} executors race for ${ACTIONS} actions on two nodes: each is claimed once and completed once`,
  { timeout: 400_000 },
  async () => {
    await using first = await startHost({ env: { AGENT_HOST_LEASE_SECONDS: '120' } });
    await using second = await startHost({ join: first, env: { AGENT_HOST_LEASE_SECONDS: '120' } });
    const tenant = await new AdminClient(first).createTenant();
    await tenant.saveAgent();
    const token = await registerExecutor(tenant);
    const nodes = [first, second];
    const racing = await Promise.all(
      Array.from({ length: EXECUTORS }, async (_, n) => {
        const options = { nodes: n % 2 === 0 ? nodes : nodes.toReversed(), tenantId: tenant.tenantId, token };
        return await Executor.start({ ...options, run: ({ input }) => done(input), concurrency: 2 });
      }),
    );
    try {
      const turns = await offer(tenant);
      const claims = await checkActions(tenant, turns);
      // Nobody died: nothing was offered twice, and what the executors hold is what the history says.
      expect(claims).toHaveLength(ACTIONS);
      const held = racing.flatMap((executor) => executor.claims.map(nameOf));
      expect(held.toSorted()).toEqual(claims.map(nameOf).toSorted());
      expect(racing.filter((executor) => executor.claims.length > 0).length).toBeGreaterThan(1);
    } finally {
      await Promise.all(racing.map(async (executor) => await executor[Symbol.asyncDispose]()));
    }
  },
);

test(
  'executors and a node that are killed meanwhile lose nothing: every action is completed once',
  { timeout: 600_000 },
  async () => {
    const random = seededRandom('executors');
    await using first = await startHost({ env: LEASE });
    await using second = await startHost({ join: first, env: LEASE });
    const tenant = await new AdminClient(first).createTenant();
    await tenant.saveAgent();
    const token = await registerExecutor(tenant);
    const nodes = [first, second];
    const options: ExecutorOptions = {
      ...{ nodes, tenantId: tenant.tenantId, token, concurrency: 4 },
      // Long enough that kills meet executors at work.
      run: async ({ input }) => {
        await new Promise((resolve) => setTimeout(resolve, random.int(1, 300)));
        return done(input);
      },
    };
    const started = async (): Promise<Executor> =>
      await Executor.start({ ...options, nodes: random.int(0, 1) === 0 ? nodes : nodes.toReversed() });
    let alive = await Promise.all(Array.from({ length: 20 }, started));
    const everybody = [...alive];
    try {
      const turns = await offer(tenant);
      const results = (): number => everybody.reduce((sum, executor) => sum + executor.results.length, 0);
      for (const goal of [20, 50, 80]) {
        await until(`${goal} results are in`, () => results() >= goal, 120_000);
        for (const executor of alive.splice(0, 5)) executor.kill();
        if (goal === 50) await second.kill();
        const fresh = await Promise.all(
          Array.from({ length: 5 }, async () => await Executor.start({ ...options, nodes: [first] })),
        );
        alive = [...alive, ...fresh];
        everybody.push(...fresh);
      }
      const isOver = async (): Promise<boolean> => {
        await retryUncertain(tenant, turns.keys());
        const sessions = await Promise.all([...turns.keys()].map(async (id) => await tenant.session(id)));
        return sessions.every(({ status }) => status === 'idle');
      };
      await until('every turn has ended', isOver, 240_000);
      const claims = await checkActions(tenant, turns);
      expect(claims.length).toBeGreaterThanOrEqual(ACTIONS);
      // No two executors ever held the same generation.
      const held = everybody.flatMap((executor) => executor.claims.map(nameOf));
      expect(new Set(held).size).toBe(held.length);
    } finally {
      await Promise.all(everybody.map(async (executor) => await executor[Symbol.asyncDispose]()));
    }
  },
);

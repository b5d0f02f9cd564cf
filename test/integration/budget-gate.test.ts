import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { budgetType } from '#src/commands/aggregate.ts';
import { CommandLoop } from '#src/commands/execute.ts';
import { Repository } from '#src/commands/repository.ts';
import { budgetsRef, readBudgets } from '#src/commands/tenant/budgets.ts';
import { decideSaveBudgets } from '#src/domain/budget/decide.ts';
import { LOST_AFTER_MS, spentAt } from '#src/domain/budget/state.ts';
import { BudgetGate } from '#src/engine/budget-gate.ts';
import { systemClock } from '#src/lib/clock.ts';
import type { Clock } from '#src/lib/clock.ts';
import { newId } from '#src/lib/ids.ts';
import { eventsOf } from '#src/streams/commit.ts';
import { openLog } from '../support/jetstream.ts';
import type { TestLog } from '../support/jetstream.ts';
import { capturedLog } from '../support/logger.ts';
import { TestNats } from '../support/nats.ts';
import { until } from '../support/wait-until.ts';

const disposables = new AsyncDisposableStack();
let log: TestLog;

beforeAll(async () => {
  const nats = disposables.use(await TestNats.start());
  log = disposables.use(await openLog(nats.url));
});

afterAll(async () => {
  await disposables.disposeAsync();
});

/** What a node has of the budgets. */
function newNode({ mayAllot = false, clock = systemClock }: { mayAllot?: boolean; clock?: Clock } = {}) {
  const loop = new CommandLoop(clock, () => 1);
  const budgets = new Repository({ type: budgetType, store: log.store, cacheBytes: 1_000_000 });
  log.feed.listen({
    onCommit: (commit) => {
      if (commit.ref.kind === 'budget') budgets.live(commit);
    },
    onDisruption: () => budgets.disrupted(),
  });
  const deps = { loop, budgets, clock };
  return {
    ...deps,
    gate: new BudgetGate({ ...deps, isBudgeted: () => true, mayAllot: () => mayAllot, logger: capturedLog().logger }),
  };
}

type Node = ReturnType<typeof newNode>;

async function limitTo(node: Node, tenant: string, limitTokens: number): Promise<void> {
  await node.loop.execute(node.budgets, budgetsRef(tenant), {
    ...{ actor: 'application:test', causation: 'test' },
    decide: (state) => decideSaveBudgets(state, [{ id: 'b', scope: 'tenant', period: 'total', limitTokens }], null),
  });
}

const CALLS = 50;
const TOKENS = 10;
/** Too few for an allotment. */
const FIT = 30;

test('near the limit, what calls at the same time ask is one commit of each node, and no more of them start than fit', async () => {
  const [first, second] = [newNode({ mayAllot: true }), newNode({ mayAllot: true })];
  const tenant = newId('tn');
  const ref = budgetsRef(tenant);
  await limitTo(first, tenant, FIT * TOKENS);
  const call = (n: number) => ({ callId: `mc_${n}`, agentId: 'agent', sessionId: 's' });
  const nodeOf = (n: number) => (n % 2 === 0 ? first : second);
  const before = { costUsd: 0, tokens: TOKENS };
  const asked = await Promise.all(
    Array.from({ length: 2 * CALLS }, async (_, n) => ({
      n,
      ...(await nodeOf(n).gate.reserve(tenant, { ...call(n), before }, 'worker:w')),
    })),
  );
  const started = asked.filter(({ reserved }) => reserved);
  expect(started).toHaveLength(FIT);
  expect(asked.filter(({ refusedBy }) => refusedBy?.id === 'b')).toHaveLength(2 * CALLS - FIT);
  const settleAll = async (): Promise<void> => {
    await Promise.all(
      started.map(async ({ n }) => {
        const ended = { ...call(n), costUsd: 0, tokens: TOKENS, wasReserved: true };
        await nodeOf(n).gate.settle(tenant, ended, 'worker:w');
      }),
    );
  };
  await settleAll();
  const { budgets, underWay, allotments } = await readBudgets(first, tenant);
  expect({ underWay, allotments }).toEqual({ underWay: {}, allotments: {} });
  const [budget] = budgets;
  if (budget === undefined) throw new Error('there is a budget');
  expect(spentAt(budget, new Date().toISOString()).tokens).toBe(FIT * TOKENS);
  // The list; and of each node the first that asked, and all others together, before and after the calls.
  const { commits } = await log.store.read(ref, { after: 0, limit: 1_000 });
  expect(commits.length).toBeLessThanOrEqual(1 + 2 * 2 * 2);
  // Repeated, because an answer was lost, nothing counts again.
  await settleAll();
  expect((await readBudgets(second, tenant)).budgets).toEqual(budgets);
});

test('on an allotment calls start without a commit; another node gets back what it lacks, and a stopping one keeps nothing', async () => {
  const [first, second] = [newNode({ mayAllot: true }), newNode({ mayAllot: true })];
  disposables.defer(async () => await first.gate.stop());
  disposables.defer(async () => await second.gate.stop());
  const tenant = newId('tn');
  const limit = 10_000;
  await limitTo(first, tenant, limit);
  const call = (n: number) => ({ callId: `mc_${n}`, agentId: 'agent', sessionId: 's' });
  const reserve = async (node: Node, n: number, tokens: number) =>
    await node.gate.reserve(tenant, { ...call(n), before: { costUsd: 0, tokens } }, 'worker:w');
  const settle = async (node: Node, n: number, tokens: number) =>
    await node.gate.settle(tenant, { ...call(n), costUsd: 0, tokens, wasReserved: true }, 'worker:w');
  const commits = async (): Promise<number> =>
    (await log.store.read(budgetsRef(tenant), { after: 0, limit: 1_000 })).commits.length;
  await reserve(first, 0, TOKENS);
  const before = await commits();
  for (let n = 1; n <= 20; n++) expect(await reserve(first, n, TOKENS)).toMatchObject({ reserved: true });
  expect(await commits()).toBe(before);
  const [allotment] = Object.values((await readBudgets(second, tenant)).allotments);
  expect(allotment?.tokens).toBeGreaterThan(20 * TOKENS);
  // All but what the first node's calls in progress need.
  const rest = limit - 21 * TOKENS;
  expect(await reserve(second, 100, rest)).toMatchObject({ reserved: true });
  expect((await reserve(second, 101, 1)).refusedBy).toMatchObject({ id: 'b' });
  for (let n = 0; n <= 20; n++) await settle(first, n, TOKENS);
  await settle(second, 100, 0);
  const { budgets } = await readBudgets(second, tenant);
  expect(budgets).toMatchObject([{ spentTokens: 21 * TOKENS }]);
  // What the settlement of the last call leaves is given back.
  const held = async (): Promise<number> => Object.keys((await readBudgets(second, tenant)).allotments).length;
  await until('nothing is held', async () => (await held()) === 0);
  await reserve(first, 200, TOKENS);
  expect(await held()).toBe(1);
  await settle(first, 200, TOKENS);
  await first.gate.stop();
  expect(await held()).toBe(0);
});

const PLENTY = 10_000;
const callOf = (n: number) => ({ callId: `mc_${n}`, agentId: 'agent', sessionId: 's' });

async function reserveOne(node: Node, tenant: string, n: number): Promise<void> {
  const before = { costUsd: 0, tokens: TOKENS };
  const reply = await node.gate.reserve(tenant, { ...callOf(n), before }, 'worker:w');
  expect(reply).toMatchObject({ reserved: true });
}

test('while some node does not know allotments, each call is a commit, however much is left', async () => {
  const [node, tenant] = [newNode(), newId('tn')];
  await limitTo(node, tenant, PLENTY);
  for (let n = 0; n < 2; n++) await reserveOne(node, tenant, n);
  const { underWay, allotments } = await readBudgets(node, tenant);
  expect({ calls: Object.keys(underWay).length, allotments }).toEqual({ calls: 2, allotments: {} });
});

test('what a stopping node is granted on its way out it gives back', async () => {
  let stopped: Promise<void> | null = null;
  // The clock is asked while the request is decided.
  const clock = (): number => {
    stopped ??= node.gate.stop();
    return systemClock();
  };
  const node = newNode({ mayAllot: true, clock });
  const [tenant, reader] = [newId('tn'), newNode()];
  await limitTo(reader, tenant, PLENTY);
  await reserveOne(node, tenant, 0);
  await Promise.resolve(stopped);
  const { commits } = await log.store.read(budgetsRef(tenant), { after: 0, limit: 10 });
  const events = commits.flatMap(({ commit }) => eventsOf(commit).map(({ type }) => type));
  expect(events).toEqual(['budgets.saved', 'spend.reserved', 'allotment.granted', 'allotment.returned']);
});

test('a call that never ends leaves its allotment after its time, at what was expected of it', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  disposables.defer(() => void vi.useRealTimers());
  let aheadMs = 0;
  const node = newNode({ mayAllot: true, clock: () => systemClock() + aheadMs });
  disposables.defer(async () => await node.gate.stop());
  const tenant = newId('tn');
  await limitTo(node, tenant, PLENTY);
  await reserveOne(node, tenant, 0);
  await reserveOne(node, tenant, 1);
  await node.gate.settle(tenant, { ...callOf(0), costUsd: 0, tokens: TOKENS, wasReserved: true }, 'worker:w');
  aheadMs = LOST_AFTER_MS + 1;
  await until('nothing is held, and the lost call is spent', async () => {
    // A sign of the node, and time for what it says.
    vi.advanceTimersByTime(5_000);
    const { budgets, allotments, underWay } = await readBudgets(node, tenant);
    const held = Object.keys(allotments).length + Object.keys(underWay).length;
    return held === 0 && budgets[0]?.spentTokens === 2 * TOKENS;
  });
  // It has ended after all: it counts once.
  await node.gate.settle(tenant, { ...callOf(1), costUsd: 0, tokens: TOKENS, wasReserved: true }, 'worker:w');
  expect((await readBudgets(node, tenant)).budgets).toMatchObject([{ spentTokens: 2 * TOKENS }]);
});

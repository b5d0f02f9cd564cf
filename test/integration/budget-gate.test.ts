import { afterAll, beforeAll, expect, test } from 'vitest';
import { budgetType } from '#src/commands/aggregate.ts';
import { CommandLoop } from '#src/commands/execute.ts';
import { Repository } from '#src/commands/repository.ts';
import { budgetsRef, readBudgets } from '#src/commands/tenant/budgets.ts';
import { decideSaveBudgets } from '#src/domain/budget/decide.ts';
import { spentAt } from '#src/domain/budget/state.ts';
import { BudgetGate } from '#src/engine/budget-gate.ts';
import { systemClock } from '#src/lib/clock.ts';
import { newId } from '#src/lib/ids.ts';
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
function newNode({ mayAllot = false } = {}) {
  const loop = new CommandLoop(systemClock, () => 1);
  const budgets = new Repository({ type: budgetType, store: log.store, cacheBytes: 1_000_000 });
  log.feed.listen({
    onCommit: (commit) => {
      if (commit.ref.kind === 'budget') budgets.live(commit);
    },
    onDisruption: () => budgets.disrupted(),
  });
  const deps = { loop, budgets, clock: systemClock };
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
const FIT = 37;

test('what calls at the same time ask is one commit of each node, and no more of them start than fit', async () => {
  const [first, second] = [newNode(), newNode()];
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
  const { budgets, underWay } = await readBudgets(first, tenant);
  expect(underWay).toEqual({});
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

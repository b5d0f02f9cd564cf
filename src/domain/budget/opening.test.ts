import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { decideReserve, decideSaveBudgets, decideSettle } from './decide.ts';
import { budgetEventSchemas } from './events.ts';
import type { BudgetDefinition, BudgetEvent } from './events.ts';
import { periodStart } from './opening.ts';
import type { LedgerReading } from './opening.ts';
import { evolveBudgets, initialBudgets, spentAt } from './state.ts';
import type { BudgetState } from './state.ts';
import type { Decision } from '../kernel/decision.ts';

const AT = '2026-01-31T23:59:00.000Z';
const of = { agentId: 'a', sessionId: 's' };

function after(state: BudgetState, decision: Decision<BudgetEvent, unknown>, at = AT): BudgetState {
  if (decision.kind !== 'accepted') return state;
  return decision.events.reduce((now, event, index) => {
    expect(budgetEventSchemas[event.type].parse(JSON.parse(JSON.stringify(event.data)))).toEqual(event.data);
    return evolveBudgets(now, event, { at, position: 1, index });
  }, state);
}

const budget = (change: Partial<BudgetDefinition> = {}): BudgetDefinition => ({
  id: 'b',
  scope: 'tenant',
  period: 'day',
  limitTokens: 1_000,
  ...change,
});
const ledger = (change: Partial<LedgerReading> = {}): LedgerReading => ({
  at: AT,
  spent: [{ budgetId: 'b', costUsd: 0, tokens: 0, calls: 0 }],
  pending: [],
  counted: [],
  ...change,
});
const save = (state: BudgetState, list: readonly BudgetDefinition[], known: LedgerReading | null, at = AT) =>
  after(state, decideSaveBudgets(state, list, known), at);
const settle = (state: BudgetState, callId: string, tokens: number, at = AT) =>
  after(state, decideSettle(state, { ...of, callId, costUsd: tokens / 100, tokens }, { wasReserved: false }), at);
const spent = (state: BudgetState, id = 'b', at = AT) => {
  const found = state.budgets.find((one) => one.id === id);
  return found === undefined ? null : spentAt(found, at).tokens;
};

describe('a budget that begins', () => {
  const known = ledger({ spent: [{ budgetId: 'b', costUsd: 0.75, tokens: 60, calls: 3 }] });

  test('has spent what the ledger has of its period, and expects calls to cost as much', () => {
    const state = save(initialBudgets, [budget({ limitTokens: 100 })], known);
    expect(state.budgets[0] && spentAt(state.budgets[0], AT)).toEqual({ usd: 0.75, tokens: 60 });
    const call = { ...of, callId: 'next', before: null };
    expect(after(state, decideReserve(state, call, AT)).underWay['next']).toMatchObject({ tokens: 20, costUsd: 0.25 });
  });

  test('begins its next period with nothing, also when it came while the ledger was read', () => {
    const state = save(initialBudgets, [budget()], known, '2026-02-01T00:00:00.000Z');
    expect([spent(state), spent(state, 'b', '2026-02-01T00:00:00.000Z')]).toEqual([60, 0]);
  });

  test('leaves one that stays as it is', () => {
    const before = settle(save(initialBudgets, [budget()], known), 'x', 10);
    const both = [budget(), budget({ id: 'c' })];
    const later = ledger({ spent: both.map(({ id }) => ({ budgetId: id, costUsd: 0, tokens: 70, calls: 4 })) });
    const state = save(before, both, { ...later, counted: ['x'] });
    expect([spent(state), spent(state, 'c')]).toEqual([70, 70]);
  });

  test('again, after all were taken away, knows nothing but the ledger', () => {
    const before = save(settle(save(initialBudgets, [budget()], known), 'x', 10), [], null);
    expect(before).toEqual(initialBudgets);
    expect(spent(save(before, [budget()], ledger()))).toBe(0);
  });
});

describe('a call at the moment when a budget begins', () => {
  test.each([
    ['settled, and its end in the ledger', { counted: ['x'], tokens: 10 }],
    ['settled, and its end not in the log yet', { pending: ['x'], tokens: 0 }],
    ['started and settled since the ledger was read', { tokens: 0 }],
  ])('counts once when it is %s', (_, { counted = [], pending = [], tokens }: Known) => {
    const listed = settle(initialBudgets, 'x', 10);
    const reading = ledger({
      spent: [{ budgetId: 'b', costUsd: tokens / 100, tokens, calls: tokens / 10 }],
      pending: pending.map((callId) => ({ ...of, callId })),
      counted,
    });
    const state = save(listed, [budget()], reading);
    expect([spent(state), Object.keys(state.underWay)]).toEqual([10, []]);
    expect(spent(settle(state, 'x', 10))).toBe(10);
  });

  interface Known {
    readonly counted?: string[];
    readonly pending?: string[];
    readonly tokens: number;
  }

  test('counts as under way with what calls cost on average, and once it is settled with what it cost', () => {
    const reading = ledger({
      spent: [{ budgetId: 'b', costUsd: 0, tokens: 60, calls: 2 }],
      pending: [{ ...of, callId: 'x' }],
    });
    const state = save(initialBudgets, [budget({ limitTokens: 100 })], reading);
    expect(state.underWay['x']).toMatchObject({ tokens: 30 });
    expect(decideReserve(state, { ...of, callId: 'y', before: null }, AT)).toMatchObject({
      reply: { refusedBy: { id: 'b' } },
    });
    const ended = settle(state, 'x', 5);
    expect([spent(ended), spent(settle(ended, 'x', 5))]).toEqual([65, 65]);
  });

  test('counts when its worker did not know of the budget, once', () => {
    const ended = settle(save(initialBudgets, [budget()], ledger()), 'unknown', 7);
    expect([spent(ended), spent(settle(ended, 'unknown', 7))]).toEqual([7, 7]);
  });

  test('that was settled yesterday is not of today', () => {
    const listed = settle(initialBudgets, 'x', 10, '2026-01-30T23:59:59.999Z');
    expect(spent(save(listed, [budget()], ledger()))).toBe(0);
  });
});

test('whenever the ledger is read and the budget saved, what it has spent in the end is what all calls used', () => {
  // Of each call: when it starts, is settled, and has its end in the ledger, in steps of the same clock.
  const life = fc.tuple(fc.nat(20), fc.nat(20), fc.nat(20)).map((times) => times.toSorted((a, b) => a - b));
  fc.assert(
    fc.property(fc.array(life, { maxLength: 12 }), fc.nat(20), fc.nat(10), (lives, readAt, late) => {
      const savedAt = readAt + late;
      const ids = lives.map((_, i) => `c${i}`);
      const inLedger = (i: number): boolean => (lives[i]?.[2] ?? 0) <= readAt && (lives[i]?.[1] ?? 0) <= readAt;
      let state: BudgetState = initialBudgets;
      const settleAll = (from: number, to: number): void => {
        lives.forEach(([, settled = 0], i) => {
          if (settled > from && settled <= to) state = settle(state, `c${i}`, 10);
        });
      };
      settleAll(-1, savedAt);
      const seen = ids.filter((_, i) => (lives[i]?.[1] ?? 0) <= readAt);
      const reading = ledger({
        spent: [{ budgetId: 'b', costUsd: 0, tokens: 10 * ids.filter((_, i) => inLedger(i)).length, calls: 0 }],
        pending: ids
          .filter((_, i) => (lives[i]?.[0] ?? 0) <= readAt && !inLedger(i))
          .map((callId) => ({ ...of, callId })),
        counted: seen.filter((id) => inLedger(ids.indexOf(id))),
      });
      state = save(state, [budget()], reading);
      settleAll(savedAt, 40);
      expect([spent(state), Object.keys(state.underWay)]).toEqual([10 * lives.length, []]);
    }),
  );
});

test.each([
  ['day', '2026-01-31T00:00:00.000Z'],
  ['month', '2026-01-01T00:00:00.000Z'],
  ['total', ''],
] as const)('the %s of a time began at %j', (period, began) => {
  expect(periodStart(period, AT)).toBe(began);
});

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { Decision } from '../kernel/decision.ts';
import { decideRaiseBudget, decideReserve, decideSaveBudgets, decideSettle } from './decide.ts';
import type { ExpectedCall } from './decide.ts';
import { budgetEventSchemas } from './events.ts';
import type { BudgetDefinition, BudgetEvent } from './events.ts';
import { evolveBudgets, initialBudgets, spentAt } from './state.ts';
import type { BudgetState } from './state.ts';

const AT = '2026-01-31T23:59:00.000Z';

function after(state: BudgetState, decision: Decision<BudgetEvent, unknown>, at = AT): BudgetState {
  if (decision.kind !== 'accepted') return state;
  return decision.events.reduce((now, event, index) => {
    const stored: unknown = JSON.parse(JSON.stringify(event.data));
    expect(budgetEventSchemas[event.type].parse(stored)).toEqual(stored);
    return evolveBudgets(now, event, { at, position: 1, index });
  }, state);
}

const budget = (change: Partial<BudgetDefinition> = {}): BudgetDefinition => ({
  id: 'b',
  scope: 'tenant',
  period: 'total',
  limitTokens: 100,
  ...change,
});
const having = (...budgets: BudgetDefinition[]): BudgetState =>
  after(initialBudgets, decideSaveBudgets(initialBudgets, budgets, null));
const call = (n: number, change: Partial<ExpectedCall> = {}): ExpectedCall => ({
  callId: `mc_${n}`,
  agentId: 'a',
  sessionId: 's',
  before: null,
  ...change,
});
const reserve = (state: BudgetState, one: ExpectedCall, at = AT) => {
  const decision = decideReserve(state, one, at);
  if (decision.kind === 'rejected') throw new Error('a reservation is never rejected');
  return { refusedBy: decision.reply.refusedBy?.id ?? null, state: after(state, decision, at) };
};
const settle = (state: BudgetState, n: number, tokens: number, { at = AT, wasReserved = false } = {}) => {
  const ended = { callId: `mc_${n}`, agentId: 'a', sessionId: 's', costUsd: tokens / 100, tokens };
  return after(state, decideSettle(state, ended, { wasReserved }), at);
};
/** One call from its start to its end. */
const used = (state: BudgetState, n: number, tokens: number, at = AT) =>
  settle(reserve(state, call(n), at).state, n, tokens, { at, wasReserved: true });

describe('a call', () => {
  test('starts while nothing is known of what calls cost, and counts once it has ended', () => {
    const state = used(having(budget()), 1, 60);
    expect(spentAt(state.budgets[0] as never, AT)).toEqual({ usd: 0.6, tokens: 60 });
    expect(state.underWay).toEqual({});
  });

  test('that would pass the budget, as calls go, does not start', () => {
    const state = used(having(budget()), 1, 60);
    expect(reserve(state, call(2)).refusedBy).toBe('b');
    expect(reserve(state, call(2, { before: { costUsd: 0, tokens: 40 } })).refusedBy).toBeNull();
    expect(reserve(state, call(2, { before: { costUsd: 0, tokens: 41 } })).refusedBy).toBe('b');
  });

  test('is expected to cost what others did that used anything: failures make no call cheaper', () => {
    const failed = Array.from({ length: 50 }, (_, n) => n + 2).reduce(
      (state, n) => used(state, n, 0),
      used(having(budget({ limitTokens: 119 })), 1, 60),
    );
    expect(reserve(failed, call(99)).refusedBy).toBe('b');
  });

  test('counts while it is under way', () => {
    const before = { costUsd: 0, tokens: 50 };
    const first = reserve(having(budget()), call(1, { before }));
    const second = reserve(first.state, call(2, { before }));
    expect([first.refusedBy, second.refusedBy, reserve(second.state, call(3, { before })).refusedBy]).toEqual([
      null,
      null,
      'b',
    ]);
    const ended = settle(second.state, 1, 10);
    expect(reserve(ended, call(3, { before: { costUsd: 0, tokens: 40 } })).refusedBy).toBeNull();
  });

  test('is counted once, however often it is reserved and settled', () => {
    const once = reserve(having(budget()), call(1)).state;
    expect(decideReserve(once, call(1), AT).kind).toBe('unchanged');
    const ended = settle(once, 1, 30);
    expect(settle(ended, 1, 30)).toBe(ended);
  });

  test('that was reserved is counted once, however late it is settled again', () => {
    const first = used(having(budget()), 1, 30);
    const state = Array.from({ length: 200 }, (_, n) => n + 2).reduce((now, n) => used(now, n, 0), first);
    expect(decideReserve(first, call(500), AT)).toMatchObject({ reply: { reserved: true } });
    expect(settle(state, 1, 30, { wasReserved: true })).toBe(state);
  });

  test('that its worker let start without a budget counts when it ends', () => {
    const state = having(budget());
    expect(decideReserve(initialBudgets, call(1), AT)).toMatchObject({ reply: { reserved: false } });
    expect(spentAt(settle(state, 1, 30).budgets[0] as never, AT).tokens).toBe(30);
  });

  test('that never ends is taken to have cost what was expected', () => {
    const lost = reserve(having(budget()), call(1, { before: { costUsd: 0, tokens: 70 } })).state;
    const later = '2026-02-01T01:00:00.000Z';
    const { state } = reserve(lost, call(2, { before: { costUsd: 0, tokens: 1 } }), later);
    expect(Object.keys(state.underWay)).toEqual(['mc_2']);
    expect(spentAt(state.budgets[0] as never, later).tokens).toBe(70);
  });

  test('that never ends is not in the way for ever, also where no call may start because of it', () => {
    const first = having(budget({ period: 'day', limitTokens: 100 }));
    const lost = reserve(first, call(1, { before: { costUsd: 0, tokens: 90 } }), '2026-01-31T10:00:00.000Z').state;
    const next = call(2, { before: { costUsd: 0, tokens: 20 } });
    const sameDay = reserve(lost, next, '2026-01-31T14:00:00.000Z');
    expect(sameDay.refusedBy).toBe('b');
    expect(sameDay.state.underWay).toEqual({});
    expect(reserve(sameDay.state, next, '2026-02-01T00:00:00.000Z').refusedBy).toBeNull();
    // Noticed on the next day, it is nothing of that day's.
    const later = '2026-02-01T12:00:00.000Z';
    const nextDay = reserve(lost, next, later);
    expect(nextDay.refusedBy).toBeNull();
    expect(spentAt(nextDay.state.budgets[0] as never, later).tokens).toBe(0);
  });
});

test.each([
  [{ scope: 'agent', agentId: 'a' }, 'b'],
  [{ scope: 'agent', agentId: 'other' }, null],
  [{ scope: 'session', sessionId: 's' }, 'b'],
  [{ scope: 'session', sessionId: 'other' }, null],
] as const)('a budget of %j counts what it is about', (scope, refusedBy) => {
  const state = used(having(budget({ ...scope, limitTokens: 10 })), 1, 60);
  expect(reserve(state, call(2)).refusedBy).toBe(refusedBy);
});

test.each([
  ['day', '2026-02-01T00:00:00.000Z'],
  ['month', '2026-02-01T00:00:00.000Z'],
] as const)('a %s begins with nothing spent', (period, next) => {
  const state = used(having(budget({ period })), 1, 100);
  expect(reserve(state, call(2)).refusedBy).toBe('b');
  expect(reserve(state, call(2), next).refusedBy).toBeNull();
});

describe('raising', () => {
  const spent = used(having(budget({ limitUsd: 1 })), 1, 100);

  test('lets calls start again', () => {
    const raised = after(spent, decideRaiseBudget(spent, { budgetId: 'b', limitTokens: 1_000, limitUsd: 10 }, AT));
    expect(reserve(raised, call(2)).refusedBy).toBeNull();
  });

  test('to no more than is spent is refused', () => {
    expect(decideRaiseBudget(spent, { budgetId: 'b', limitTokens: 100, limitUsd: 10 }, AT)).toMatchObject({
      kind: 'rejected',
      code: 'invalid_request',
    });
    expect(decideRaiseBudget(spent, { budgetId: 'b', limitTokens: 1_000 }, AT).kind).toBe('rejected');
  });

  test('of what is not there any more changes nothing', () => {
    expect(decideRaiseBudget(spent, { budgetId: 'gone', limitUsd: 1 }, AT).kind).toBe('unchanged');
  });
});

test('saving the list again keeps what was spent of budgets that stay', () => {
  const state = used(having(budget(), budget({ id: 'c' })), 1, 60);
  const list = [budget({ limitTokens: 200 }), budget({ id: 'c', scope: 'agent', agentId: 'a' })];
  const saved = after(state, decideSaveBudgets(state, list, null));
  expect(saved.budgets).toMatchObject([
    { id: 'b', limitTokens: 200, spentTokens: 60 },
    { id: 'c', spentTokens: 0 },
  ]);
  expect(decideSaveBudgets(saved, list, null).kind).toBe('unchanged');
});

test('whatever starts and ends, no call starts that would pass the limit', () => {
  const step = fc.record({
    n: fc.integer({ min: 0, max: 9 }),
    tokens: fc.integer({ min: 0, max: 40 }),
    ends: fc.boolean(),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      let state = having(budget());
      for (const { n, tokens, ends } of steps) {
        if (ends) {
          // It costs what was expected of it: then nothing ever passes the limit.
          const known = state.underWay[`mc_${n}`];
          if (known !== undefined) state = settle(state, n, known.tokens);
        } else {
          state = reserve(state, call(n, { before: { costUsd: 0, tokens } })).state;
        }
        const underWay = Object.values(state.underWay).reduce((sum, one) => sum + one.tokens, 0);
        expect(spentAt(state.budgets[0] as never, AT).tokens + underWay).toBeLessThanOrEqual(100);
      }
    }),
  );
});

import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { Decision } from '../kernel/decision.ts';
import { decideBudgetRequests } from './batch.ts';
import type { Settlement } from './batch.ts';
import { decideReserve, decideSaveBudgets, decideSettle } from './decide.ts';
import type { ExpectedCall } from './decide.ts';
import type { BudgetEvent } from './events.ts';
import { evolveBudgets, initialBudgets } from './state.ts';
import type { BudgetState } from './state.ts';

const AT = '2026-01-31T12:00:00.000Z';

function after(state: BudgetState, decision: Decision<BudgetEvent, unknown>): BudgetState {
  if (decision.kind !== 'accepted') return state;
  return decision.events.reduce(
    (now, event, index) => evolveBudgets(now, event, { at: AT, position: 1, index }),
    state,
  );
}

const budgets = after(
  initialBudgets,
  decideSaveBudgets(
    initialBudgets,
    [
      { id: 'all', scope: 'tenant', period: 'total', limitTokens: 200 },
      { id: 'a', scope: 'agent', agentId: 'a', period: 'day', limitTokens: 90 },
    ],
    null,
  ),
);

type Asked = Settlement | { readonly kind: 'reserve'; readonly call: ExpectedCall };

const call = {
  n: fc.integer({ min: 0, max: 12 }),
  tokens: fc.integer({ min: 0, max: 40 }),
  agent: fc.constantFrom('a', 'b'),
};
const request = fc.oneof(
  fc.record(call).map(({ n, tokens, agent }): Asked => {
    const expected = { callId: `mc_${n}`, agentId: agent, sessionId: 's', before: { costUsd: 0, tokens } };
    return { kind: 'reserve', call: expected };
  }),
  fc.record({ ...call, wasReserved: fc.boolean() }).map(({ n, tokens, agent, wasReserved }): Asked => {
    return {
      kind: 'settle',
      call: { callId: `mc_${n}`, agentId: agent, sessionId: 's', costUsd: 0, tokens },
      wasReserved,
    };
  }),
);

test('requests that are decided together get the answers, and leave the budgets, of one after the other', () => {
  fc.assert(
    fc.property(fc.array(fc.array(request, { maxLength: 8 }), { maxLength: 12 }), (batches) => {
      let [together, alone] = [budgets, budgets];
      for (const requests of batches) {
        const decision = decideBudgetRequests(together, requests, AT);
        together = after(together, decision);
        const replies = requests.map((one) => {
          const single =
            one.kind === 'reserve' ? decideReserve(alone, one.call, AT) : decideSettle(alone, one.call, one);
          alone = after(alone, single);
          return single.kind === 'rejected' ? single.code : single.reply;
        });
        expect(decision.kind === 'rejected' ? decision.code : decision.reply).toEqual(replies);
        expect(together).toEqual(alone);
      }
    }),
  );
});

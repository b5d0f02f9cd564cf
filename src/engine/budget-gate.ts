import { budgetsRef } from '../commands/tenant/budgets.ts';
import type { BudgetDeps } from '../commands/tenant/budgets.ts';
import { decideReserve, decideSettle } from '../domain/budget/decide.ts';
import type { ExpectedCall, Reserved } from '../domain/budget/decide.ts';
import type { CountedCall } from '../domain/budget/events.ts';
import type { BudgetState } from '../domain/budget/state.ts';
import { timestamp } from '../lib/clock.ts';

export interface BudgetGateDeps extends BudgetDeps {
  /** Whether the tenant has any budget: without one a call does not read them. */
  readonly isBudgeted: (tenantId: string) => boolean;
  /** Called for each call that may not start, for the metrics. */
  readonly onRefused?: () => void;
}

/** A call that has ended. */
interface SettledCall extends CountedCall {
  /** As `reserve` answered. */
  readonly wasReserved: boolean;
}

/** Asks the tenant's budgets whether a model call may start, and tells them what it cost. */
export class BudgetGate {
  readonly #deps: BudgetGateDeps;

  constructor(deps: BudgetGateDeps) {
    this.#deps = deps;
  }

  /** Whether the call may start, and whether the budgets count it as in progress. @throws UnavailableError (streams) */
  async reserve(tenant: string, call: ExpectedCall, actor: string): Promise<Reserved> {
    if (!this.#deps.isBudgeted(tenant)) return { refusedBy: null, reserved: false };
    const { loop, budgets, clock } = this.#deps;
    const at = timestamp(clock());
    const outcome = await loop.execute(budgets, budgetsRef(tenant), {
      actor,
      causation: call.callId,
      urgent: true,
      decide: (state: BudgetState) => decideReserve(state, call, at),
    });
    if (outcome.kind === 'rejected') throw new Error(`a reservation was refused: ${outcome.code}`);
    if (outcome.reply.refusedBy !== null) this.#deps.onRefused?.();
    return outcome.reply;
  }

  /** May be repeated, by any process and at any time, if the call was reserved. @throws UnavailableError (streams) */
  async settle(tenant: string, { wasReserved, ...call }: SettledCall, actor: string): Promise<void> {
    if (!this.#deps.isBudgeted(tenant)) return;
    const { loop, budgets } = this.#deps;
    await loop.execute(budgets, budgetsRef(tenant), {
      actor,
      causation: call.callId,
      urgent: true,
      decide: (state: BudgetState) => decideSettle(state, call, { wasReserved }),
    });
  }
}

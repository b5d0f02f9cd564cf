import { budgetsRef } from '../commands/tenant/budgets.ts';
import type { BudgetParts } from '../commands/tenant/budgets.ts';
import { decideReserve, decideSettle } from '../domain/budget/decide.ts';
import type { ExpectedCall } from '../domain/budget/decide.ts';
import type { CountedCall } from '../domain/budget/events.ts';
import type { Budget, BudgetState } from '../domain/budget/state.ts';
import { timestamp } from '../lib/clock.ts';

export interface BudgetGateParts extends BudgetParts {
  /** Whether the tenant has any budget: without one a call costs no look at them. */
  readonly isBudgeted: (tenantId: string) => boolean;
  /** Told of each call that may not start, for the metrics. */
  readonly onRefused?: () => void;
}

/** Asks for each model call whether the tenant's budgets let it start, and tells them what it cost. */
export class BudgetGate {
  readonly #parts: BudgetGateParts;

  constructor(parts: BudgetGateParts) {
    this.#parts = parts;
  }

  /** The budget that stands in the way; null: the call may start. @throws LogUnavailableError */
  async reserve(tenant: string, call: ExpectedCall, actor: string): Promise<Budget | null> {
    if (!this.#parts.isBudgeted(tenant)) return null;
    const { loop, budgets, clock } = this.#parts;
    const at = timestamp(clock());
    const outcome = await loop.execute(budgets, budgetsRef(tenant), {
      actor,
      causation: call.callId,
      decide: (state: BudgetState) => decideReserve(state, call, at),
    });
    if (outcome.kind === 'rejected') throw new Error(`a reservation was refused: ${outcome.code}`);
    const { refusedBy } = outcome.reply;
    if (refusedBy !== null) this.#parts.onRefused?.();
    return refusedBy;
  }

  /** May be repeated. @throws LogUnavailableError */
  async settle(tenant: string, call: CountedCall, actor: string): Promise<void> {
    if (!this.#parts.isBudgeted(tenant)) return;
    const { loop, budgets } = this.#parts;
    await loop.execute(budgets, budgetsRef(tenant), {
      actor,
      causation: call.callId,
      decide: (state: BudgetState) => decideSettle(state, call),
    });
  }
}

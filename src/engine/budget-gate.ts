import { budgetsRef } from '../commands/tenant/budgets.ts';
import type { BudgetDeps } from '../commands/tenant/budgets.ts';
import type { ExpectedCall, Reserved } from '../domain/budget/decide.ts';
import type { CountedCall } from '../domain/budget/events.ts';
import type { Logger } from '../lib/logger.ts';
import { UnavailableError } from '../lib/unavailable.ts';
import { BudgetAllotments } from './budget-allotments.ts';
import { BudgetQueue } from './budget-queue.ts';

export interface BudgetGateDeps extends BudgetDeps {
  /** Whether the tenant has any budget: without one a call does not read them. */
  readonly isBudgeted: (tenantId: string) => boolean;
  /** Called for each call that may not start, for the metrics. */
  readonly onRefused?: () => void;
  /** Whether every node knows allotments. */
  readonly mayAllot: () => boolean;
  readonly logger: Logger;
}

/** A call that has ended. */
interface SettledCall extends CountedCall {
  /** As `reserve` answered. */
  readonly wasReserved: boolean;
}

const NOTHING: Reserved = { refusedBy: null, reserved: false, awaits: false };
/** A holder that is silent for 20 s has lost what it held. */
const AWAITS_MAX_MS = 60_000;
/** How often a call asks again without a word of a change, ms. */
const AGAIN_MS = 500;

/**
 * Asks the tenant's budgets whether a model call may start, and tells them what it cost. While they have plenty, a node has
 * an allotment and asks nothing.
 */
export class BudgetGate {
  readonly #deps: BudgetGateDeps;
  readonly #queue: BudgetQueue;
  readonly #allotments: BudgetAllotments;

  constructor(deps: BudgetGateDeps) {
    this.#deps = deps;
    this.#queue = new BudgetQueue(deps);
    this.#allotments = new BudgetAllotments({ ...deps, queue: this.#queue });
  }

  /** Gives back what this node holds; bounded. */
  async stop(): Promise<void> {
    await this.#allotments.stop();
  }

  /**
   * Whether the call may start, and whether the budgets count it as in progress. It waits while other nodes give back what
   * the call lacks. @throws UnavailableError (streams); also once `signal` has aborted while it waits
   */
  async reserve(tenant: string, call: ExpectedCall, actor: string, signal?: AbortSignal): Promise<Reserved> {
    if (!this.#deps.isBudgeted(tenant)) return NOTHING;
    const began = performance.now();
    for (;;) {
      if (await this.#allotments.draw(tenant, call)) return { ...NOTHING, reserved: true };
      const reply = await this.#ask(tenant, call, actor);
      if (reply.refusedBy !== null) this.#deps.onRefused?.();
      if (!reply.awaits) return reply;
      if (signal?.aborted === true || performance.now() - began > AWAITS_MAX_MS) {
        throw new UnavailableError('streams', 'what other nodes hold of a budget has not come back yet');
      }
      await this.#changed(tenant, signal);
    }
  }

  /** May be repeated, by any process and at any time, if the call was reserved. @throws UnavailableError (streams) */
  async settle(tenant: string, { wasReserved, ...call }: SettledCall, actor: string): Promise<void> {
    // Without budgets nothing is counted, and what a call held of an allotment is free.
    if (!this.#deps.isBudgeted(tenant)) return this.#allotments.settled(tenant, call.callId);
    const on = this.#allotments.of(tenant, call.callId);
    await this.#queue.ask(tenant, { kind: 'settle', call, wasReserved, on }, actor);
    this.#allotments.settled(tenant, call.callId);
  }

  async #ask(tenant: string, call: ExpectedCall, actor: string): Promise<Reserved> {
    const wish = this.#allotments.wish(tenant, call.agentId, actor);
    try {
      return (await this.#queue.ask(tenant, { kind: 'reserve', call: { ...call, wish } }, actor)) ?? NOTHING;
    } finally {
      if (wish !== undefined) await this.#allotments.asked(tenant, call.agentId, wish);
    }
  }

  async #changed(tenant: string, signal: AbortSignal | undefined): Promise<void> {
    await new Promise<void>((resolve) => {
      const unwatch = this.#deps.budgets.watch(budgetsRef(tenant), () => over());
      const timer = setTimeout(() => over(), AGAIN_MS);
      const over = (): void => {
        unwatch();
        clearTimeout(timer);
        signal?.removeEventListener('abort', over);
        resolve();
      };
      signal?.addEventListener('abort', over, { once: true });
    });
  }
}

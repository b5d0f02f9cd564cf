import { budgetsRef } from '../commands/tenant/budgets.ts';
import type { BudgetDeps } from '../commands/tenant/budgets.ts';
import { decideBudgetRequests } from '../domain/budget/batch.ts';
import type { BudgetRequest } from '../domain/budget/batch.ts';
import type { Reserved } from '../domain/budget/decide.ts';
import type { BudgetState } from '../domain/budget/state.ts';
import { timestamp } from '../lib/clock.ts';

interface Waiting {
  readonly request: BudgetRequest;
  readonly actor: string;
  readonly resolve: (reply: Reserved | null) => void;
  readonly reject: (error: unknown) => void;
}

/** Requests of one commit: far below what a message of the log may hold. */
const TOGETHER_MAX = 200;

/**
 * What a node asks of tenants' budgets. One commit of a tenant is in flight at a time, and takes with it whatever has come
 * since the one before: with many calls at once each waits for two appends at most, not for a queue of them.
 */
export class BudgetQueue {
  readonly #deps: BudgetDeps;
  /** By tenant; an entry exists while a commit of it is in flight. */
  readonly #waiting = new Map<string, Waiting[]>();

  constructor(deps: BudgetDeps) {
    this.#deps = deps;
  }

  /** The answer, once it is on disk; null: there is none to such a request. @throws UnavailableError (streams) */
  async ask(tenant: string, request: BudgetRequest, actor: string): Promise<Reserved | null> {
    return await new Promise((resolve, reject) => {
      const one = { request, actor, resolve, reject };
      const waiting = this.#waiting.get(tenant);
      if (waiting !== undefined) {
        waiting.push(one);
        return;
      }
      this.#waiting.set(tenant, [one]);
      void this.#work(tenant);
    });
  }

  async #work(tenant: string): Promise<void> {
    const waiting = this.#waiting.get(tenant) ?? [];
    while (waiting.length > 0) await this.#commit(tenant, waiting.splice(0, TOGETHER_MAX));
    this.#waiting.delete(tenant);
  }

  /** Never throws: each request is answered, or gets the error. */
  async #commit(tenant: string, asked: readonly Waiting[]): Promise<void> {
    const [first] = asked;
    if (first === undefined) return;
    const { loop, budgets, clock } = this.#deps;
    const requests = asked.map(({ request }) => request);
    try {
      const outcome = await loop.execute(budgets, budgetsRef(tenant), {
        ...{ actor: first.actor, causation: causationOf(first.request), urgent: true },
        decide: (state: BudgetState) => decideBudgetRequests(state, requests, timestamp(clock())),
      });
      if (outcome.kind === 'rejected') throw new Error(`the budgets refused what a worker asks: ${outcome.code}`);
      for (const [index, { resolve }] of asked.entries()) resolve(outcome.reply[index] ?? null);
    } catch (error) {
      for (const { reject } of asked) reject(error);
    }
  }
}

function causationOf(request: BudgetRequest): string {
  return request.kind === 'keep' ? request.allotmentId : request.call.callId;
}

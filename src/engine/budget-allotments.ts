import { budgetsRef } from '../commands/tenant/budgets.ts';
import type { BudgetDeps } from '../commands/tenant/budgets.ts';
import { ALLOTMENT_MS, decideDraw, plus } from '../domain/budget/allot.ts';
import type { AllotmentWish, Amount, DrawnOn, Holding } from '../domain/budget/allot.ts';
import { expectedOf } from '../domain/budget/decide.ts';
import { LOST_AFTER_MS } from '../domain/budget/state.ts';
import type { ExpectedCall } from '../domain/budget/decide.ts';
import type { CountedCall } from '../domain/budget/events.ts';
import type { Clock } from '../lib/clock.ts';
import { newId } from '../lib/ids.ts';
import type { Logger } from '../lib/logger.ts';
import { OutageLog } from '../lib/outage-log.ts';
import type { BudgetQueue } from './budget-queue.ts';

export interface BudgetAllotmentDeps extends Pick<BudgetDeps, 'budgets'> {
  readonly queue: BudgetQueue;
  readonly clock: Clock;
  /** Whether every node knows allotments. */
  readonly mayAllot: () => boolean;
  readonly logger: Logger;
}

const NOTHING: Amount = { costUsd: 0, tokens: 0 };
/** Three signs in the time of an allotment. */
const SIGN_MS = ALLOTMENT_MS / 3;
/** A stopping node waits no longer for the log; what it held comes back with the end of the allotment, ms. */
const STOP_MS = 2_000;

/** In progress, at what it is expected to cost. */
interface HeldCall extends CountedCall {
  readonly sinceMs: number;
}

/** An allotment of this node. */
interface Held {
  readonly tenant: string;
  readonly allotmentId: string;
  readonly holder: string;
  readonly agentId: string;
  readonly calls: Map<string, HeldCall>;
  /** Since the last sign. */
  isUsed: boolean;
  /** Nothing more starts on it. */
  isClosing: boolean;
}

/**
 * What this node may spend of tenants' budgets without asking. A call that starts on an allotment costs no append; when it
 * has ended it is settled like every other. Whether one may start is decided on the fold, so that a recall by another node
 * counts from the moment in which it is heard of.
 */
export class BudgetAllotments {
  readonly #deps: BudgetAllotmentDeps;
  readonly #outage: OutageLog;
  /** By tenant. */
  readonly #held = new Map<string, Set<Held>>();
  /** Tenants and agents for which one is being asked. */
  readonly #wishing = new Map<string, PromiseWithResolvers<void>>();
  readonly #unwatch = new Map<string, () => void>();
  #signs: NodeJS.Timeout | null = null;
  #isStopping = false;

  constructor(deps: BudgetAllotmentDeps) {
    this.#deps = deps;
    this.#outage = new OutageLog(deps.logger, 'the word to budgets of what this node holds of them');
  }

  /** Gives everything back. Bounded. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    if (this.#signs !== null) clearInterval(this.#signs);
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<void>((resolve) => (timer = setTimeout(resolve, STOP_MS)));
    const all = this.#all().map(async (held) => await this.#close(held));
    // What is granted from now on is given back at once.
    const asked = [...this.#wishing.values()].map(async ({ promise }) => await promise);
    await Promise.race([Promise.all([...all, ...asked]), late]);
    clearTimeout(timer);
    for (const unwatch of this.#unwatch.values()) unwatch();
    this.#unwatch.clear();
  }

  /**
   * Whether the call may start on an allotment of this node: then it counts there until it is settled, or lost. One that
   * is run again, because what became of it is not known, counts where it did before.
   */
  async draw(tenant: string, call: ExpectedCall): Promise<boolean> {
    if (this.#holding(tenant, call.callId) !== undefined) return true;
    const held = this.#current(tenant, call.agentId);
    if (held === null) return false;
    const { state } = await this.#deps.budgets.load(budgetsRef(tenant));
    if (held.isClosing) return false;
    const expected = expectedOf(state, call);
    const nowMs = this.#deps.clock();
    const may = decideDraw(state, holdingOf(held), { call, expected, nowMs });
    // Used up, recalled, or too small for the call: what is left of it goes back.
    if (may === 'over') void this.#close(held);
    if (may !== 'yes') return false;
    const { callId, agentId, sessionId } = call;
    held.calls.set(callId, { callId, agentId, sessionId, ...expected, sinceMs: nowMs });
    held.isUsed = true;
    return true;
  }

  /** A wish for a new one, which `asked` follows; undefined: there is one, or one is asked for. */
  wish(tenant: string, agentId: string, holder: string): AllotmentWish | undefined {
    const key = `${tenant} ${agentId}`;
    if (this.#isStopping || this.#wishing.has(key) || !this.#deps.mayAllot()) return undefined;
    if (this.#current(tenant, agentId) !== null) return undefined;
    this.#wishing.set(key, Promise.withResolvers());
    return { allotmentId: newId('al'), holder };
  }

  /** The request with the wish has been answered, or has failed. */
  async asked(tenant: string, agentId: string, wish: AllotmentWish): Promise<void> {
    const key = `${tenant} ${agentId}`;
    const isGranted = await this.#isGranted(tenant, wish.allotmentId);
    const over = this.#wishing.get(key);
    this.#wishing.delete(key);
    if (isGranted) await this.#hold({ tenant, ...wish, agentId, calls: new Map(), isUsed: true, isClosing: false });
    over?.resolve();
  }

  async #hold(held: Held): Promise<void> {
    const { tenant } = held;
    this.#held.set(tenant, (this.#held.get(tenant) ?? new Set()).add(held));
    if (this.#isStopping) return await this.#close(held);
    if (!this.#unwatch.has(tenant)) {
      const unwatch = this.#deps.budgets.watch(budgetsRef(tenant), () => void this.#check(tenant));
      this.#unwatch.set(tenant, unwatch);
    }
    this.#signs ??= setInterval(() => this.#sign(), SIGN_MS).unref();
  }

  /** The allotment that a call started on. */
  of(tenant: string, callId: string): DrawnOn | undefined {
    const held = this.#holding(tenant, callId);
    if (held === undefined) return undefined;
    const { allotmentId, isClosing, calls } = held;
    return { allotmentId, frees: (isClosing ? calls.get(callId) : undefined) ?? NOTHING };
  }

  /** The call is settled: what it held is free again. */
  settled(tenant: string, callId: string): void {
    const held = this.#holding(tenant, callId);
    held?.calls.delete(callId);
    if (held?.isClosing === true && held.calls.size === 0) void this.#close(held);
  }

  /** If that cannot be found out, what was granted comes back with its end. */
  async #isGranted(tenant: string, allotmentId: string): Promise<boolean> {
    try {
      const { state } = await this.#deps.budgets.load(budgetsRef(tenant));
      return state.allotments[allotmentId] !== undefined;
    } catch (error) {
      this.#outage.failed(error);
      return false;
    }
  }

  #holding(tenant: string, callId: string): Held | undefined {
    return [...(this.#held.get(tenant) ?? [])].find(({ calls }) => calls.has(callId));
  }

  #current(tenant: string, agentId: string): Held | null {
    const all = [...(this.#held.get(tenant) ?? [])];
    return all.find((held) => held.agentId === agentId && !held.isClosing) ?? null;
  }

  /** Another node, or a new list of budgets, may have recalled what this one holds. */
  async #check(tenant: string): Promise<void> {
    try {
      const { state } = await this.#deps.budgets.load(budgetsRef(tenant));
      for (const held of this.#held.get(tenant) ?? []) {
        const phase = state.allotments[held.allotmentId]?.phase;
        if (phase === 'recalled' || (phase !== 'open' && !held.isClosing)) void this.#close(held);
      }
    } catch (error) {
      this.#outage.failed(error);
    }
  }

  #all(): readonly Held[] {
    return [...this.#held.values()].flatMap((held) => [...held]);
  }

  #sign(): void {
    for (const held of this.#all()) {
      void this.#giveUpLost(held);
      if (held.isClosing || (!held.isUsed && held.calls.size === 0)) void this.#close(held);
      else void this.#renew(held);
      held.isUsed = false;
    }
  }

  /** As a call that was reserved by itself: it is assumed to have cost what was expected, and holds nothing any more. */
  async #giveUpLost({ tenant, allotmentId, holder, calls }: Held): Promise<void> {
    for (const { sinceMs, ...call } of calls.values()) {
      if (this.#deps.clock() - sinceMs <= LOST_AFTER_MS) continue;
      const on = { allotmentId, frees: NOTHING };
      try {
        await this.#deps.queue.ask(tenant, { kind: 'settle', call, wasReserved: true, on }, holder);
        this.settled(tenant, call.callId);
      } catch (error) {
        this.#outage.failed(error);
      }
    }
  }

  /** Finds out with it what the live feed may have lost. */
  async #renew(held: Held): Promise<void> {
    await this.#keep(held, true);
    await this.#check(held.tenant);
  }

  /** Starts nothing more on it, and gives back what no call in progress needs. */
  async #close(held: Held): Promise<void> {
    held.isClosing = true;
    const isEmpty = held.calls.size === 0;
    if (!(await this.#keep(held, false)) || !isEmpty) return;
    const all = this.#held.get(held.tenant);
    all?.delete(held);
    if (all?.size !== 0) return;
    this.#held.delete(held.tenant);
    this.#unwatch.get(held.tenant)?.();
    this.#unwatch.delete(held.tenant);
  }

  async #keep(held: Held, isWanted: boolean): Promise<boolean> {
    try {
      await this.#deps.queue.ask(held.tenant, { kind: 'keep', ...holdingOf(held), isWanted }, held.holder);
      this.#outage.worked();
      return true;
    } catch (error) {
      // The next sign says it again.
      this.#outage.failed(error);
      return false;
    }
  }
}

function holdingOf({ allotmentId, calls }: Held): Holding {
  return { allotmentId, held: [...calls.values()].reduce(plus, NOTHING), calls: calls.size };
}

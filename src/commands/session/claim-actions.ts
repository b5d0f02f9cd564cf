import type { Action } from '../../domain/action/state.ts';
import type { ActionLocation, ExecutorOf, OpenActionList } from './action-locator.ts';
import type { ClaimPlan, ClaimPlans, PlannedAction } from './claim-plans.ts';
import { claimIn } from './hold-action.ts';
import type { HeldAction, HoldActionDeps } from './hold-action.ts';

export interface ClaimActionsDeps extends HoldActionDeps {
  readonly open: OpenActionList;
  readonly plans: ClaimPlans;
}

export interface ClaimActionsInput {
  readonly executor: ExecutorOf;
  readonly requestId: string;
  readonly actor: string;
  readonly limit: number;
}

/** Plans of one request, each made because others had taken everything in the previous one. */
const PLANS_MAX = 20;
/** How long this node does not plan for other requests what it planned for one, ms. */
const PLANNED_MS = 1_000;

/**
 * An executor takes the oldest pending actions of its agent, in one request. They are in several sessions, so each claim
 * is a commit of its own; the plan that is written first makes them one: the same request, sent again to any node after any
 * crash, gets what was claimed and what is left of the plan, and nothing twice. A plan whose actions others have all
 * taken is replaced. No claim at all: nothing is pending.
 */
export class ActionClaims {
  readonly #deps: ClaimActionsDeps;
  /** Requests in progress: a repetition of one meanwhile gets what it gets. */
  readonly #running = new Map<string, Promise<readonly HeldAction[]>>();
  /** By action, until when it is planned for a request, ms. */
  readonly #planned = new Map<string, number>();
  /** Whether the list of open actions has had everything that the log held, since the log was last away. */
  #isListWhole = false;

  constructor(deps: ClaimActionsDeps) {
    this.#deps = deps;
  }

  /**
   * @throws UnavailableError (streams) when the log is unavailable; sending the same request again is safe
   */
  async claim(input: ClaimActionsInput): Promise<readonly HeldAction[]> {
    const { tenantId, agentId } = input.executor;
    const key = `${tenantId}\0${agentId}\0${input.requestId}`;
    const running = this.#running.get(key) ?? this.#claim(input).finally(() => this.#running.delete(key));
    this.#running.set(key, running);
    return await running;
  }

  async #claim(input: ClaimActionsInput): Promise<readonly HeldAction[]> {
    try {
      return (await this.#claimKnown(input)) ?? (await this.#claimPlanned(input));
    } catch (error) {
      // The log was away, or may have been: what happened meanwhile may be missing from the list of open actions.
      this.#isListWhole = false;
      throw error;
    }
  }

  /**
   * A request that nothing is known of, while the list of open actions has some: its plan is written without having been
   * looked for, and the log is not asked whether there are more. Null: it has to be found out what the request has got.
   */
  async #claimKnown(input: ClaimActionsInput): Promise<readonly HeldAction[] | null> {
    const { open, plans } = this.#deps;
    const { executor, requestId, limit } = input;
    if (!this.#isListWhole || open.claimedUnder(executor, requestId).length > 0) return null;
    const actions = this.#choose(executor, limit, null);
    if (actions.length === 0) return null;
    const plan = await plans.write(executor, requestId, { revision: 0, actions });
    if (plan === null) {
      // It is a repetition, and gets what its first plan says: these are free for others.
      for (const { actionId } of actions) this.#planned.delete(actionId);
      return null;
    }
    const held = await this.#go(input, plan.actions);
    return held.length > 0 ? held : null;
  }

  async #claimPlanned(input: ClaimActionsInput): Promise<readonly HeldAction[]> {
    const { open, plans } = this.#deps;
    const { executor, requestId, limit } = input;
    let plan = await plans.read(executor, requestId);
    for (let made = 0; made < PLANS_MAX; made++) {
      const held = plan === null ? [] : await this.#go(input, plan.actions);
      if (held.length > 0) return held;
      // Of an earlier request, which may have been answered: what it claimed has ended, and it gets nothing else.
      if (plan !== null && made === 0 && !(await this.#areOthers(input, plan.actions))) return [];
      await open.reached();
      this.#isListWhole = true;
      const again: readonly HeldAction[] = plan === null ? await this.#again(input) : [];
      if (again.length > 0) return again;
      const actions = this.#choose(executor, limit, plan);
      if (actions.length === 0) return [];
      plan = await plans.write(executor, requestId, { revision: plan?.revision ?? 0, actions });
      plan ??= await plans.read(executor, requestId);
    }
    return [];
  }

  /** Whether other requests hold all of these. */
  async #areOthers({ executor, requestId }: ClaimActionsInput, actions: readonly PlannedAction[]): Promise<boolean> {
    const held = actions.map(async ({ actionId, sessionId, generation }) => {
      const action = await this.#actionOf(executor, { actionId, sessionId });
      return action?.generation === generation && action.claim !== null && action.claim.requestId !== requestId;
    });
    return (await Promise.all(held)).every(Boolean);
  }

  async #actionOf(
    { tenantId: tenant }: ExecutorOf,
    { actionId, sessionId: id }: Pick<PlannedAction, 'actionId' | 'sessionId'>,
  ): Promise<Action | null> {
    const { state } = await this.#deps.sessions.load({ tenant, kind: 'session', id });
    return (state.status === 'open' ? state.turn?.work.actions[actionId] : undefined) ?? null;
  }

  /** What was claimed under the request when its plan has expired: after a long outage. */
  async #again(input: ClaimActionsInput): Promise<readonly HeldAction[]> {
    const { executor, requestId } = input;
    const made: PlannedAction[] = [];
    for (const place of this.#deps.open.claimedUnder(executor, requestId)) {
      if ((await this.#actionOf(executor, place))?.claim?.requestId === requestId) made.push(place);
    }
    return await this.#go(input, made);
  }

  async #go(input: ClaimActionsInput, actions: readonly PlannedAction[]): Promise<readonly HeldAction[]> {
    const { limit: _, ...by } = input;
    const sessions = Map.groupBy(actions, ({ sessionId }) => sessionId);
    const outcomes = await Promise.all(
      [...sessions].map(async ([sessionId, wanted]) => await claimIn(this.#deps, sessionId, { ...by, wanted })),
    );
    const held = outcomes.flatMap((outcome) => (outcome.kind === 'rejected' ? [] : outcome.reply));
    const claims = new Map(held.map((one) => [one.action.actionId, one]));
    // As they were planned: the oldest first.
    return actions.flatMap(({ actionId }) => claims.get(actionId) ?? []);
  }

  /** The oldest ones; those that are being claimed here for others only when there is nothing else. */
  #choose(executor: ExecutorOf, limit: number, before: ClaimPlan | null): readonly ActionLocation[] {
    const nowMs = performance.now();
    for (const [actionId, untilMs] of this.#planned) {
      // In insertion order: after one that is still planned, all are.
      if (untilMs > nowMs) break;
      this.#planned.delete(actionId);
    }
    const lost = new Set(before?.actions.map(nameOf));
    const oldest = this.#deps.open
      .pending(executor, limit + lost.size + this.#planned.size)
      .filter((place) => !lost.has(nameOf(place)));
    const free = oldest.filter(({ actionId }) => !this.#planned.has(actionId));
    const chosen = (free.length > 0 ? free : oldest).slice(0, limit);
    for (const { actionId } of chosen) {
      this.#planned.delete(actionId);
      this.#planned.set(actionId, nowMs + PLANNED_MS);
    }
    return chosen;
  }
}

function nameOf({ actionId, generation }: PlannedAction): string {
  return `${actionId}.${generation}`;
}

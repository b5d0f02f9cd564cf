import { WeightedLru } from '../../lib/lru.ts';

/** Whose executor asks: its actions are those of its agent. */
export interface ExecutorOf {
  readonly tenantId: string;
  readonly agentId: string;
}

/** Finds the session of an action. A hint: what becomes of the action is decided on the session's fold. */
export interface ActionFinder {
  /** Null: the agent has no such action, as far as is known there. */
  readonly sessionOf: (executor: ExecutorOf, actionId: string) => Promise<string | null>;
  /** Resolves when the finder knows what the log held before, or when that takes too long. */
  readonly fresh: () => Promise<void>;
}

/** Actions whose sessions a process remembers; an executor claims what it was shown a moment before. */
const REMEMBERED_MAX = 50_000;

/** Where actions are: remembered from what was shown and claimed here, else looked up. */
export class ActionPlaces {
  readonly #finder: ActionFinder;
  readonly #known = new WeightedLru<string>(REMEMBERED_MAX);

  constructor(finder: ActionFinder) {
    this.#finder = finder;
  }

  remember(executor: ExecutorOf, actions: readonly { readonly actionId: string; readonly sessionId: string }[]): void {
    for (const { actionId, sessionId } of actions) this.#known.set(keyOf(executor, actionId), sessionId, 1);
  }

  /** The session of an action of this agent; null: it has no such action. */
  async sessionOf(executor: ExecutorOf, actionId: string): Promise<string | null> {
    const known = this.#known.get(keyOf(executor, actionId));
    if (known !== undefined) return known;
    let found = await this.#finder.sessionOf(executor, actionId);
    if (found === null) {
      // It may be one that the read model does not have yet.
      await this.#finder.fresh();
      found = await this.#finder.sessionOf(executor, actionId);
    }
    if (found !== null) this.remember(executor, [{ actionId, sessionId: found }]);
    return found;
  }
}

function keyOf({ tenantId, agentId }: ExecutorOf, actionId: string): string {
  return `${tenantId}\0${agentId}\0${actionId}`;
}

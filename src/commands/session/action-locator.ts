import { WeightedLru } from '../../lib/lru.ts';

/** The agent whose executor asks: only its actions are visible. */
export interface ExecutorOf {
  readonly tenantId: string;
  readonly agentId: string;
}

/** Where an open action is. A hint: what becomes of it is decided on the session's fold. */
export interface ActionLocation {
  readonly actionId: string;
  readonly sessionId: string;
  readonly generation: number;
  /** Of the commit that this comes from; an older fold of the session does not know it. */
  readonly position: number;
}

/** The open actions of all sessions, without the database. */
export interface OpenActionList {
  /**
   * Resolves when everything that the log held before is known here.
   * @throws UnavailableError (streams)
   */
  readonly reached: () => Promise<void>;
  /** Those that wait for an executor, oldest first. */
  readonly pending: (executor: ExecutorOf, limit: number) => readonly ActionLocation[];
  readonly find: (executor: ExecutorOf, actionId: string) => ActionLocation | null;
  /** Those claimed by this request, and some more whose request is not known. */
  readonly claimedUnder: (executor: ExecutorOf, requestId: string) => readonly ActionLocation[];
}

/** Finds the session of an action that may have ended. Null: none; undefined: not known just now. */
export type EndedActions = (executor: ExecutorOf, actionId: string) => Promise<string | null | undefined>;

/** Actions whose sessions a process remembers; an executor claims what it was shown a moment before. */
const REMEMBERED_MAX = 50_000;

/** Where actions are: remembered from what was shown and claimed here, else looked up. */
export class ActionLocator {
  readonly #open: OpenActionList;
  readonly #ended: EndedActions;
  readonly #known = new WeightedLru<string>(REMEMBERED_MAX);

  constructor(open: OpenActionList, ended: EndedActions) {
    this.#open = open;
    this.#ended = ended;
  }

  remember(executor: ExecutorOf, actions: readonly { readonly actionId: string; readonly sessionId: string }[]): void {
    for (const { actionId, sessionId } of actions) this.#known.set(keyOf(executor, actionId), sessionId, 1);
  }

  /**
   * The session of an action of this agent; null: it has no such action; undefined: no open one, and whether there was
   * one is not known just now.
   * @throws UnavailableError (streams)
   */
  async sessionOf(executor: ExecutorOf, actionId: string): Promise<string | null | undefined> {
    const known = this.#known.get(keyOf(executor, actionId)) ?? this.#open.find(executor, actionId)?.sessionId;
    if (known !== undefined) return known;
    // It may not be known here yet.
    await this.#open.reached();
    const found = this.#open.find(executor, actionId)?.sessionId ?? (await this.#ended(executor, actionId));
    if (typeof found === 'string') this.remember(executor, [{ actionId, sessionId: found }]);
    return found;
  }
}

function keyOf({ tenantId, agentId }: ExecutorOf, actionId: string): string {
  return `${tenantId}\0${agentId}\0${actionId}`;
}

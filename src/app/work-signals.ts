import type { WorkFeed } from '../http/discovery.ts';
import { delay } from '../lib/backoff.ts';
import type { Logger } from '../lib/logger.ts';
import { OutageLog } from '../lib/outage-log.ts';
import type { ExecutorRef, OpenAction, OpenActions } from '../projections/actions/open-actions.ts';
import type { ActionView } from '../projections/actions/views.ts';

export interface WorkSignalDeps {
  readonly open: Pick<OpenActions, 'reached' | 'pending' | 'find' | 'listen'>;
  /** Pending ones as their executor sees them; those that have ended are left out. */
  readonly show: (executor: ExecutorRef, actions: readonly OpenAction[]) => Promise<readonly ActionView[]>;
  readonly logger: Logger;
}

type OnWork = (actions: readonly ActionView[]) => void;

/** Actions that a signal names. */
const NAMED_MAX = 20;
const RETRY_MS = 250;

/** The executors of one agent that are connected here. */
interface Listening {
  readonly executor: ExecutorRef;
  readonly told: Set<OnWork>;
  /** Those not told yet of what was there before them. */
  readonly waiting: Set<OnWork>;
  /** Offered since the last signal, at most as many as one names. */
  readonly offered: Map<string, OpenAction>;
  /** More were offered than that: which ones, the open actions know. */
  isOver: boolean;
  isTelling: boolean;
  unlisten: () => void;
}

/**
 * Tells the executors that are connected to this node of new work, wherever it was offered. It hears of it from the
 * open actions, which know of everything that the log holds; what a node lists or claims comes from there too, so a
 * notified client finds it, and neither needs the database.
 */
export class WorkSignals implements WorkFeed {
  readonly #deps: WorkSignalDeps;
  readonly #outage: OutageLog;
  readonly #stop = new AbortController();
  /** By tenant and agent. */
  readonly #listening = new Map<string, Listening>();

  constructor(deps: WorkSignalDeps) {
    this.#deps = deps;
    this.#outage = new OutageLog(deps.logger, 'the word to executors that there is work');
  }

  stop(): void {
    this.#stop.abort();
    for (const { unlisten } of this.#listening.values()) unlisten();
    this.#listening.clear();
  }

  listen(executor: ExecutorRef, onWork: OnWork): () => void {
    const key = `${executor.tenantId} ${executor.agentId}`;
    const listening = this.#listening.get(key) ?? this.#begin(key, executor);
    listening.waiting.add(onWork);
    this.#tell(listening);
    return () => {
      listening.told.delete(onWork);
      listening.waiting.delete(onWork);
      if (listening.told.size + listening.waiting.size > 0 || this.#listening.get(key) !== listening) return;
      listening.unlisten();
      this.#listening.delete(key);
    };
  }

  #begin(key: string, executor: ExecutorRef): Listening {
    const listening: Listening = {
      ...{ executor, told: new Set<OnWork>(), waiting: new Set<OnWork>(), offered: new Map<string, OpenAction>() },
      ...{ isOver: false, isTelling: false, unlisten: () => undefined },
    };
    listening.unlisten = this.#deps.open.listen(executor, (action) => {
      if (listening.offered.size < NAMED_MAX) listening.offered.set(action.actionId, action);
      else listening.isOver = true;
      this.#tell(listening);
    });
    this.#listening.set(key, listening);
    return listening;
  }

  /** One at a time for an agent: what arrives meanwhile is signalled together afterwards. */
  #tell(listening: Listening): void {
    if (listening.isTelling) return;
    listening.isTelling = true;
    void this.#tellAll(listening);
  }

  async #tellAll(listening: Listening): Promise<void> {
    const isDue = (): boolean => listening.isOver || listening.waiting.size + listening.offered.size > 0;
    while (isDue() && !this.#stop.signal.aborted) {
      try {
        await this.#tellOnce(listening);
        this.#outage.worked();
      } catch (error) {
        this.#outage.failed(error);
        await delay(RETRY_MS, this.#stop.signal);
      }
    }
    listening.isTelling = false;
  }

  async #tellOnce(listening: Listening): Promise<void> {
    const { open, show } = this.#deps;
    const { executor, told, waiting, offered, isOver } = listening;
    if (isOver) this.#refill(listening);
    const fresh = [...waiting];
    // What was there before them, too.
    if (fresh.length > 0) await open.reached();
    const isWaiting = ({ actionId, generation }: OpenAction): boolean => {
      const now = open.find(executor, actionId);
      return now?.status === 'pending' && now.generation === generation;
    };
    const before = fresh.length > 0 ? open.pending(executor, NAMED_MAX) : [];
    const named = [...offered.values()].filter(isWaiting).slice(0, NAMED_MAX);
    const views = await show(executor, [...new Set([...before, ...named])]);
    for (const { actionId } of named) offered.delete(actionId);
    for (const [actionId, action] of offered) if (!isWaiting(action)) offered.delete(actionId);
    welcome(listening, fresh, views);
    const news = views.filter(({ actionId }) => named.some((one) => one.actionId === actionId));
    if (news.length > 0) for (const onWork of told) if (!fresh.includes(onWork)) onWork(news);
    // All have ended, and the open actions are yet to hear of it: others may come after these.
    if (isOver && news.length === 0 && named.length === NAMED_MAX) await this.#lookAgain(listening);
  }

  /** Those offered first may be gone by now, and a signal that names none is not sent. */
  #refill(listening: Listening): void {
    const { executor, offered } = listening;
    listening.isOver = false;
    for (const action of this.#deps.open.pending(executor, NAMED_MAX)) offered.set(action.actionId, action);
  }

  async #lookAgain(listening: Listening): Promise<void> {
    listening.isOver = true;
    await delay(RETRY_MS, this.#stop.signal);
  }
}

function welcome({ told, waiting }: Listening, fresh: readonly OnWork[], views: readonly ActionView[]): void {
  for (const onWork of fresh) {
    // One that has left meanwhile gets no signal.
    if (!waiting.delete(onWork)) continue;
    told.add(onWork);
    if (views.length > 0) onWork(views);
  }
}

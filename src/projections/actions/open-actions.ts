import type { SessionEvent } from '../../domain/session/events.ts';
import { UnavailableError } from '../../lib/unavailable.ts';
import { delay } from '../../lib/backoff.ts';
import { BackgroundTask } from '../../lib/background-task.ts';
import type { OnRound, Round } from '../../lib/background-task.ts';
import type { Logger } from '../../lib/logger.ts';
import { eventsOf } from '../../streams/commit.ts';
import type { StoredCommit } from '../../streams/commit.ts';
import { commitPlace } from '../../streams/event-store.ts';
import type { CommitSource, FollowedCommit } from '../../streams/event-store.ts';
import { actionIdOf } from './views.ts';
import type { ActionView } from './views.ts';

/** An executor of a tenant: its actions are those of its agent. */
export interface ExecutorRef {
  readonly tenantId: string;
  readonly agentId: string;
}

/** Where an open action is. What becomes of it is decided on its session's fold. */
export interface OpenAction {
  readonly actionId: string;
  readonly sessionId: string;
  readonly generation: number;
  readonly status: ActionView['status'];
  readonly createdAt: string;
  /** Of the claim; null: none, or it is older than this process. */
  readonly requestId: string | null;
  /** Of the commit that this comes from; 0: it is older than this process. */
  readonly position: number;
}

/** The open actions in the read model: a starting point. */
export interface OpenActionsSeed {
  /** By stream, up to where the rows have every commit; they may have some of those behind it. */
  readonly positions: ReadonlyMap<number, number>;
  readonly actions: readonly (Omit<OpenAction, 'requestId' | 'position'> & ExecutorRef)[];
}

export interface OpenActionsDeps {
  readonly source: CommitSource;
  /** @throws when the read model is unavailable */
  readonly seed: () => Promise<OpenActionsSeed>;
  readonly logger: Logger;
  readonly onRound?: OnRound;
}

const SEED_WITHIN_MS = 5_000;
const REACHED_WITHIN_MS = 2_000;
const RETRY_MS = 500;
const BUFFER = 500;

/** Actions of one agent. */
interface AgentActions {
  readonly open: Map<string, OpenAction>;
  /** Those that wait for an executor, oldest first. */
  readonly pending: OpenAction[];
  readonly listeners: Set<(action: OpenAction) => void>;
}

/**
 * The open actions of all sessions, in memory, from the log: executors find their work here, whether the database is
 * available or not. It starts from the read model, and reads the log from the first commit that its rows lack; an action
 * of which it reads events again is, after the last of them, where its row had it. A node that starts without the read
 * model reads the log from its beginning. An entry is some hundred bytes; what an action asks for is in the fold of its session.
 */
export class OpenActions {
  readonly #deps: OpenActionsDeps;
  readonly #tenants = new Map<string, Map<string, AgentActions>>();
  /** By tenant and action, the agent it belongs to. */
  readonly #agentOf = new Map<string, string>();
  readonly #positions = new Map<number, number>();
  readonly #waiting = new Set<{ shard: number; position: number; resolve: () => void }>();
  #following: readonly BackgroundTask[] = [];

  constructor(deps: OpenActionsDeps) {
    this.#deps = deps;
  }

  async start(): Promise<void> {
    await this.#plant();
    const { source, logger, onRound } = this.#deps;
    this.#following = Array.from({ length: source.shards }, (_, shard) => {
      const work = async (round: Round): Promise<void> => await this.#follow(shard, round);
      const what = `the list of open actions of stream ${shard}`;
      return new BackgroundTask({ name: 'open-actions', what, work, pauseMs: RETRY_MS, logger, onRound });
    });
    for (const task of this.#following) task.start();
  }

  async stop(): Promise<void> {
    await Promise.all(this.#following.map(async (task) => await task.stop()));
  }

  /**
   * Resolves when everything that the log held at the call is known here. @throws UnavailableError (streams) when the
   * log does not answer, or has not been read that far yet
   */
  async reached(): Promise<void> {
    const { source } = this.#deps;
    const shards = Array.from({ length: source.shards }, (_, shard) => shard);
    await Promise.all(shards.map(async (shard) => await this.#comeTo(shard, await source.newest(shard, ['session']))));
  }

  /** Those that wait for an executor of the agent, oldest first. */
  pending({ tenantId, agentId }: ExecutorRef, limit: number): readonly OpenAction[] {
    return this.#tenants.get(tenantId)?.get(agentId)?.pending.slice(0, limit) ?? [];
  }

  /** Null: the agent has no open action of this id. */
  find({ tenantId, agentId }: ExecutorRef, actionId: string): OpenAction | null {
    return this.#tenants.get(tenantId)?.get(agentId)?.open.get(actionId) ?? null;
  }

  /** Those claimed by this request, or by one that is not known here. */
  claimedUnder({ tenantId, agentId }: ExecutorRef, requestId: string): readonly OpenAction[] {
    const open = this.#tenants.get(tenantId)?.get(agentId)?.open.values() ?? [];
    return [...open].filter(
      (action) => action.status === 'claimed' && (action.requestId === requestId || action.requestId === null),
    );
  }

  /** Calls back with each action that is offered to the agent from now on. Returns the function that ends it. */
  listen({ tenantId, agentId }: ExecutorRef, onOffer: (action: OpenAction) => void): () => void {
    const { listeners } = this.#agent(tenantId, agentId);
    listeners.add(onOffer);
    return () => {
      listeners.delete(onOffer);
      this.#tidy(tenantId, agentId);
    };
  }

  async #plant(): Promise<void> {
    const waiting = new AbortController();
    try {
      const late = delay(SEED_WITHIN_MS, waiting.signal).then(() => null);
      const seed = await Promise.race([this.#deps.seed(), late]);
      if (seed === null) throw new Error('the read model does not answer');
      const { positions, actions } = seed;
      for (const [shard, position] of positions) this.#positions.set(shard, position);
      for (const { tenantId, agentId, ...action } of actions) {
        this.#put(tenantId, agentId, { ...action, requestId: null, position: 0 });
      }
    } catch (error) {
      this.#deps.logger.warn({ err: error }, 'open actions are read from the log, from its beginning');
    } finally {
      waiting.abort();
    }
  }

  async #follow(shard: number, { signal, worked }: Round): Promise<void> {
    const after = this.#positions.get(shard) ?? 0;
    const options = { shard, kinds: ['session'] as const, after, signal, buffer: BUFFER };
    for await (const batch of this.#deps.source.follow(options)) {
      this.#takeAll(shard, batch);
      worked();
    }
  }

  #takeAll(shard: number, batch: readonly FollowedCommit[]): void {
    for (const followed of batch) this.#take(shard, followed);
    this.#arrived(shard);
  }

  #take(shard: number, followed: FollowedCommit): void {
    // Its key has been destroyed, and with it everything of the tenant.
    if (followed.kind === 'erased') this.#forget(followed.ref.tenant);
    if (followed.kind === 'commit') {
      for (const event of eventsOf<SessionEvent>(followed.stored.commit)) this.#apply(followed.stored, event);
    }
    this.#positions.set(shard, commitPlace(followed).position);
  }

  #apply({ ref, position, commit }: StoredCommit, event: SessionEvent): void {
    const { tenant } = ref;
    if (event.type === 'action.pending') {
      const { agentId, actionId, generation } = event.data;
      const createdAt = this.find({ tenantId: tenant, agentId }, actionId)?.createdAt ?? commit.at;
      const place = { actionId, sessionId: ref.id, generation, createdAt, requestId: null, position };
      const action: OpenAction = { ...place, status: 'pending' };
      this.#put(tenant, agentId, action);
      for (const onOffer of this.#tenants.get(tenant)?.get(agentId)?.listeners ?? []) onOffer(action);
      return;
    }
    const actionId = actionIdOf(event);
    const agentId = actionId === null ? undefined : this.#agentOf.get(keyOf(tenant, actionId));
    if (actionId === null || agentId === undefined) return;
    const action = this.find({ tenantId: tenant, agentId }, actionId);
    if (action === null) return;
    const status = statusAfter(event);
    if (status === null) {
      this.#remove(tenant, agentId, action);
    } else {
      const requestId = event.type === 'action.claimed' ? event.data.requestId : null;
      this.#put(tenant, agentId, { ...action, status, requestId, position });
    }
  }

  #forget(tenantId: string): void {
    for (const { open } of this.#tenants.get(tenantId)?.values() ?? []) {
      for (const actionId of open.keys()) this.#agentOf.delete(keyOf(tenantId, actionId));
    }
    this.#tenants.delete(tenantId);
  }

  #agent(tenantId: string, agentId: string): AgentActions {
    const agents = this.#tenants.get(tenantId) ?? new Map<string, AgentActions>();
    const agent = agents.get(agentId) ?? { open: new Map(), pending: [], listeners: new Set() };
    this.#tenants.set(tenantId, agents.set(agentId, agent));
    return agent;
  }

  #put(tenantId: string, agentId: string, action: OpenAction): void {
    const { open, pending } = this.#agent(tenantId, agentId);
    const before = open.get(action.actionId);
    open.set(action.actionId, action);
    this.#agentOf.set(keyOf(tenantId, action.actionId), agentId);
    if (before?.status === 'pending') pending.splice(placeOf(pending, before), 1);
    if (action.status === 'pending') pending.splice(placeOf(pending, action), 0, action);
  }

  #remove(tenantId: string, agentId: string, action: OpenAction): void {
    const { open, pending } = this.#agent(tenantId, agentId);
    open.delete(action.actionId);
    this.#agentOf.delete(keyOf(tenantId, action.actionId));
    if (action.status === 'pending') pending.splice(placeOf(pending, action), 1);
    this.#tidy(tenantId, agentId);
  }

  #tidy(tenantId: string, agentId: string): void {
    const agents = this.#tenants.get(tenantId);
    const agent = agents?.get(agentId);
    if (agent !== undefined && agent.open.size === 0 && agent.listeners.size === 0) agents?.delete(agentId);
    if (agents?.size === 0) this.#tenants.delete(tenantId);
  }

  #arrived(shard: number): void {
    const position = this.#positions.get(shard) ?? 0;
    for (const waiter of this.#waiting) {
      if (waiter.shard === shard && waiter.position <= position) waiter.resolve();
    }
  }

  async #comeTo(shard: number, position: number): Promise<void> {
    if ((this.#positions.get(shard) ?? 0) >= position) return;
    await new Promise<void>((resolve, reject) => {
      const late = setTimeout(() => {
        this.#waiting.delete(waiter);
        reject(new UnavailableError('streams', 'open actions are still being read from the log'));
      }, REACHED_WITHIN_MS);
      const waiter = {
        shard,
        position,
        resolve: (): void => {
          clearTimeout(late);
          this.#waiting.delete(waiter);
          resolve();
        },
      };
      this.#waiting.add(waiter);
    });
  }
}

function keyOf(tenantId: string, actionId: string): string {
  return `${tenantId}\0${actionId}`;
}

/** The status after an event of the action; null: it has ended. */
function statusAfter(event: SessionEvent): OpenAction['status'] | null {
  switch (event.type) {
    case 'action.claimed':
      return 'claimed';
    case 'action.uncertain':
      return 'uncertain';
    case 'interaction.opened':
      return 'asked';
    default:
      return null;
  }
}

/** Where an action is, or belongs, among those that are sorted by age. */
function placeOf(sorted: readonly OpenAction[], action: OpenAction): number {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    const other = sorted[middle];
    if (other !== undefined && isOlder(other, action)) low = middle + 1;
    else high = middle;
  }
  return low;
}

function isOlder(a: OpenAction, b: OpenAction): boolean {
  return a.createdAt === b.createdAt ? a.actionId < b.actionId : a.createdAt < b.createdAt;
}

import type { SessionEvent } from '../domain/session/events.ts';
import type { WorkFeed } from '../http/discovery.ts';
import { delay } from '../lib/backoff.ts';
import type { Logger } from '../lib/logger.ts';
import { OutageLog } from '../lib/outage-log.ts';
import type { ActionIndex, ExecutorRef } from '../projections/actions/queries.ts';
import type { ProjectionProgress } from '../projections/progress.ts';
import { ReadStoreUnavailableError } from '../projections/unavailable.ts';
import { eventsOf } from '../streams/commit.ts';
import type { CommitSource, LiveCommit, LiveFeed } from '../streams/event-store.ts';

export interface WorkSignalParts {
  readonly feed: LiveFeed;
  readonly source: CommitSource;
  readonly progress: ProjectionProgress;
  readonly actions: Pick<ActionIndex, 'withWork'>;
  readonly logger: Logger;
  /** After so much silence a stream is asked whether it has more than has been seen, ms. */
  readonly silenceMs?: number;
}

const SILENCE_MS = 5_000;
const RETRY_MS = 250;

interface Listener extends ExecutorRef {
  readonly onWork: () => void;
}

/** Offers of one stream that executors here are to hear of once the read model has them. */
interface Offers {
  position: number;
  readonly listeners: Set<Listener>;
}

/**
 * Tells the executors that are connected to this node of new work, wherever it was offered. What it says comes after the
 * read model has it, so that whoever lists then sees it on any node.
 * The node's one live subscription is a hint here too: positions of a stream are consecutive, and where one is missing,
 * after a disruption, or when a silent stream has grown, all executors here are looked up at once in the read model.
 */
export class WorkSignals implements WorkFeed {
  readonly #parts: WorkSignalParts;
  readonly #outage: OutageLog;
  readonly #stop = new AbortController();
  /** By tenant and agent. Commits of other tenants are not even decoded. */
  readonly #listeners = new Map<string, Map<string, Set<Listener>>>();
  readonly #offers = new Map<number, Offers>();
  readonly #telling = new Set<number>();
  /** The newest position of each stream that has been seen, and when, ms. */
  readonly #seen = new Map<number, { readonly position: number; readonly atMs: number }>();
  /** Those whose work has to be looked up in the read model. */
  readonly #unlooked = new Set<Listener>();
  #isLooking = false;
  #looking: Promise<void> = Promise.resolve();
  #unlisten: () => void = () => undefined;
  #timer: NodeJS.Timeout | null = null;

  constructor(parts: WorkSignalParts) {
    this.#parts = parts;
    this.#outage = new OutageLog(parts.logger, 'the look for work of executors');
  }

  start(): void {
    const { feed, silenceMs = SILENCE_MS } = this.#parts;
    this.#unlisten = feed.listen({ onCommit: (commit) => this.#take(commit), onDisruption: () => this.#lookAll() });
    this.#timer = setInterval(() => void this.#compare(silenceMs), silenceMs);
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    this.#unlisten();
    if (this.#timer !== null) clearInterval(this.#timer);
    await this.#looking;
  }

  listen(executor: ExecutorRef, onWork: () => void): () => void {
    const { tenantId, agentId } = executor;
    const listener: Listener = { tenantId, agentId, onWork };
    const agents = this.#listeners.get(tenantId) ?? new Map<string, Set<Listener>>();
    const listeners = agents.get(agentId) ?? new Set();
    this.#listeners.set(tenantId, agents.set(agentId, listeners.add(listener)));
    // Heard from here on; what was offered before is looked up.
    this.#look([listener]);
    return () => {
      listeners.delete(listener);
      if (listeners.size === 0 && agents.get(agentId) === listeners) agents.delete(agentId);
      if (agents.size === 0 && this.#listeners.get(tenantId) === agents) this.#listeners.delete(tenantId);
    };
  }

  #take(commit: LiveCommit): void {
    const { shard, position, ref } = commit;
    const last = this.#seen.get(shard)?.position;
    this.#seen.set(shard, { position: Math.max(last ?? 0, position), atMs: Date.now() });
    if (last !== undefined && position > last + 1) this.#lookAll();
    const agents = ref.kind === 'session' ? this.#listeners.get(ref.tenant) : undefined;
    if (agents === undefined) return;
    for (const event of eventsOf<SessionEvent>(commit.stored().commit)) {
      if (event.type !== 'action.pending') continue;
      for (const listener of agents.get(event.data.agentId) ?? []) this.#offer(shard, position, listener);
    }
  }

  #offer(shard: number, position: number, listener: Listener): void {
    const offers = this.#offers.get(shard) ?? { position, listeners: new Set() };
    offers.position = Math.max(offers.position, position);
    offers.listeners.add(listener);
    this.#offers.set(shard, offers);
    if (this.#telling.has(shard)) return;
    this.#telling.add(shard);
    void this.#tell(shard);
  }

  async #tell(shard: number): Promise<void> {
    for (let offers = this.#offers.get(shard); offers !== undefined; offers = this.#offers.get(shard)) {
      this.#offers.delete(shard);
      while (!(await this.#parts.progress.reach('sessions', shard, offers.position))) {
        await delay(RETRY_MS, this.#stop.signal);
        if (this.#stop.signal.aborted) return;
      }
      for (const { onWork } of offers.listeners) onWork();
    }
    // In the same step in which there was nothing more: an offer that comes after it begins anew.
    this.#telling.delete(shard);
  }

  #lookAll(): void {
    for (const agents of this.#listeners.values()) for (const listeners of agents.values()) this.#look(listeners);
  }

  /** Those who come while a look is under way are looked up after it, together. */
  #look(listeners: Iterable<Listener>): void {
    for (const listener of listeners) this.#unlooked.add(listener);
    if (this.#isLooking) return;
    this.#isLooking = true;
    this.#looking = this.#lookUp();
  }

  async #lookUp(): Promise<void> {
    while (this.#unlooked.size > 0 && !this.#stop.signal.aborted) {
      const listeners = [...this.#unlooked].filter((one) => this.#isListening(one));
      this.#unlooked.clear();
      if (await this.#tellOfPending(listeners)) continue;
      // Of what the read model does not have yet nobody would tell them later.
      for (const listener of listeners) this.#unlooked.add(listener);
      await delay(RETRY_MS, this.#stop.signal);
    }
    this.#isLooking = false;
  }

  #isListening(listener: Listener): boolean {
    return this.#listeners.get(listener.tenantId)?.get(listener.agentId)?.has(listener) === true;
  }

  /** Returns whether that was all that the log held when this was asked. */
  async #tellOfPending(listeners: readonly Listener[]): Promise<boolean> {
    try {
      const isFresh = await this.#fresh();
      await this.#tellThoseWithWork(listeners);
      this.#outage.worked();
      return isFresh;
    } catch (error) {
      this.#outage.failed(error);
      return false;
    }
  }

  async #tellThoseWithWork(listeners: readonly Listener[]): Promise<void> {
    const executors = new Map(
      listeners.map(({ tenantId, agentId }) => [`${tenantId} ${agentId}`, { tenantId, agentId }]),
    );
    const withWork = new Set<string>();
    try {
      for (const one of await this.#parts.actions.withWork([...executors.values()])) {
        withWork.add(`${one.tenantId} ${one.agentId}`);
      }
    } catch (error) {
      if (!(error instanceof ReadStoreUnavailableError)) throw error;
      // Nobody can tell just now. A hint too many costs a look, one that is missing leaves work lying.
      for (const key of executors.keys()) withWork.add(key);
    }
    for (const { tenantId, agentId, onWork } of listeners) if (withWork.has(`${tenantId} ${agentId}`)) onWork();
  }

  /** Whether the read model has everything that the log held when this was asked. */
  async #fresh(): Promise<boolean> {
    const { source, progress } = this.#parts;
    const reached = Array.from({ length: source.shards }, async (_, shard) => {
      const newest = await source.newest(shard, ['session']);
      return newest === 0 || (await progress.reach('sessions', shard, newest));
    });
    return (await Promise.all(reached)).every(Boolean);
  }

  /** What is lost at the end of a stream leaves no gap: a silent one is asked how long it is. */
  async #compare(silenceMs: number): Promise<void> {
    if (this.#listeners.size === 0) return;
    try {
      for (let shard = 0; shard < this.#parts.source.shards; shard++) {
        const before = this.#seen.get(shard);
        if (before !== undefined && Date.now() - before.atMs < silenceMs) continue;
        const newest = await this.#parts.source.newest(shard, 'all');
        if (newest <= (this.#seen.get(shard)?.position ?? 0)) continue;
        this.#seen.set(shard, { position: newest, atMs: Date.now() });
        this.#lookAll();
      }
    } catch (error) {
      this.#outage.failed(error);
    }
  }
}

import { startHeartbeat } from '../lib/heartbeat.ts';
import type { Logger } from '../lib/logger.ts';
import type { KeyValue } from '../streams/key-value.ts';

/** A worker that is silent for this long is considered dead. Whole seconds: the server's resolution. */
const LEASE_TTL_MS = 4_000;
const RENEW_MS = 1_000;
/** Own renewals this far apart mean that the server stalled, or could not be reached, in between, ms. */
const OUTAGE_MS = 2_500;
/**
 * How long a worker has after an outage to renew a lease that expired during it: a renewal that was lost, and the next.
 */
const AMNESTY_MS = 3_500;
const PREFIX = 'worker';

/**
 * Who is alive, by leases that expire. A hint that decides when to check, never who may write: a worker that is wrongly
 * considered dead is fenced by the log.
 * A lease is kept per node, with the id of the process as its value: a node that restarts ends the claims of its
 * predecessor at once, without waiting for a lease to expire.
 */
export class WorkerLiveness {
  readonly #leases: KeyValue;
  readonly #logger: Logger;
  readonly #alive = new Map<string, string>();
  /** By node: the predecessor of its current worker. */
  readonly #replaced = new Map<string, string>();
  /** Nodes whose lease expired while it could not have been renewed. */
  readonly #doubted = new Set<string>();
  /** On the clock of `performance.now`; null: this process announces no worker. */
  #renewedAt: number | null = null;
  #amnesty: NodeJS.Timeout | null = null;
  readonly #stop = new AbortController();
  #stopBeating = (): void => undefined;
  #revision = 0;

  constructor(leases: KeyValue, logger: Logger) {
    this.#leases = leases;
    this.#logger = logger;
  }

  /** Resolves once the leases of all nodes are known. */
  async start(): Promise<void> {
    await this.#leases.watch(
      PREFIX,
      (change) => {
        if (change.kind === 'put') this.#take(change.entry.key, change.entry.value);
        else this.#ranOut(change.key);
      },
      this.#stop.signal,
    );
  }

  isAlive(workerId: string): boolean {
    return this.#alive.values().some((alive) => alive === workerId);
  }

  /**
   * Whether another worker of the same node has come after this one. The data directory of a node is locked, so that
   * process has certainly ended, while a merely unknown one may be too new.
   */
  isReplaced(workerId: string): boolean {
    return this.#replaced.values().some((replaced) => replaced === workerId);
  }

  #take(node: string, workerId: string): void {
    const before = this.#alive.get(node);
    if (before !== undefined && before !== workerId) this.#replaced.set(node, before);
    this.#alive.set(node, workerId);
    this.#doubted.delete(node);
  }

  /**
   * A lease that expired while the server could not be reached says nothing about its worker: a living one renews it as
   * soon as the server is back. If workers were considered dead at once, every living worker of an installation would
   * lose its turns after every outage, and their pending model calls would be made again.
   */
  #ranOut(node: string): void {
    if (this.#amnesty === null && !this.#isOutage) this.#forget(node);
    else this.#doubted.add(node);
  }

  get #isOutage(): boolean {
    return this.#renewedAt !== null && performance.now() - this.#renewedAt > OUTAGE_MS;
  }

  #renewed(revision: number): void {
    this.#revision = revision;
    if (this.#isOutage) {
      if (this.#amnesty !== null) clearTimeout(this.#amnesty);
      this.#amnesty = setTimeout(() => {
        this.#amnesty = null;
        for (const node of this.#doubted) this.#forget(node);
      }, AMNESTY_MS);
    }
    this.#renewedAt = performance.now();
  }

  #forget(node: string): void {
    this.#alive.delete(node);
    this.#replaced.delete(node);
    this.#doubted.delete(node);
  }

  /** Whether any worker is alive. */
  get anyAlive(): boolean {
    return this.#alive.size > 0;
  }

  /** Announces this process as the node's worker and keeps saying so until `stop`. */
  async announce(nodeId: string, workerId: string): Promise<void> {
    const key = `${PREFIX}.${nodeId}`;
    await this.#renew(key, workerId);
    const beat = async (): Promise<void> => await this.#renew(key, workerId);
    this.#stopBeating = startHeartbeat({ what: 'the worker lease', beat, everyMs: RENEW_MS, logger: this.#logger });
  }

  async #renew(key: string, workerId: string): Promise<void> {
    const renewed = await this.#leases.swap(key, workerId, { expected: this.#revision, ttlMs: LEASE_TTL_MS });
    if (renewed !== null) {
      this.#renewed(renewed);
      return;
    }
    // Another process of this node wrote it (a predecessor), or it expired: take it over from its current revision.
    this.#revision = (await this.#leases.get(key))?.revision ?? 0;
    const taken = await this.#leases.swap(key, workerId, { expected: this.#revision, ttlMs: LEASE_TTL_MS });
    if (taken === null) this.#revision = 0;
    else this.#renewed(taken);
  }

  /** Releases the lease, so that others need not wait for it to expire. */
  async stop(nodeId: string | null): Promise<void> {
    this.#stopBeating();
    if (this.#amnesty !== null) clearTimeout(this.#amnesty);
    this.#stop.abort();
    if (nodeId !== null) await this.#leases.remove(`${PREFIX}.${nodeId}`);
  }
}

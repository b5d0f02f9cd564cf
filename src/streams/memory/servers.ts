import type { Clock } from '../../lib/clock.ts';
import { UnavailableError } from '../../lib/unavailable.ts';
import type { KeyValue } from '../key-value.ts';
import type { Signals } from '../signals.ts';
import type { WorkItem, WorkQueue } from '../work-queue.ts';
import { MemoryKeyValue } from './key-value.ts';
import { MemorySignals } from './signals.ts';
import { MemoryStreams } from './streams.ts';
import { MemoryWorkQueue } from './work-queue.ts';

/** An item whose worker has not said that it is done with it is delivered again after this, ms. */
const ACK_WAIT_MS = 10_000;

/** What a node of a Host in memory has in the place of servers. */
export interface MemoryPorts {
  readonly streams: MemoryStreams;
  readonly directory: KeyValue;
  readonly snapshots: KeyValue;
  readonly leases: KeyValue;
  readonly secrets: KeyValue;
  readonly work: WorkQueue;
  readonly signals: Signals;
}

/** What the nodes of a Host in memory share in the place of servers. */
export class MemoryServers implements MemoryPorts {
  readonly streams: MemoryStreams;
  readonly directory: MemoryKeyValue;
  readonly snapshots: MemoryKeyValue;
  readonly leases: MemoryKeyValue;
  readonly secrets: MemoryKeyValue;
  readonly work: MemoryWorkQueue;
  readonly signals = new MemorySignals();

  constructor({ shards, clock }: { readonly shards: number; readonly clock: Clock }) {
    this.streams = new MemoryStreams(shards, clock);
    this.directory = new MemoryKeyValue();
    this.snapshots = new MemoryKeyValue();
    this.leases = new MemoryKeyValue();
    this.secrets = new MemoryKeyValue();
    this.work = new MemoryWorkQueue(ACK_WAIT_MS);
  }

  /** No timer of them runs any more. */
  close(): void {
    for (const bucket of [this.directory, this.snapshots, this.leases, this.secrets]) bucket.close();
    this.work.close();
  }
}

/** A node's connection to these servers, which can be cut as by its death. */
export class MemoryLink implements MemoryPorts {
  readonly streams: MemoryStreams;
  readonly directory: KeyValue;
  readonly snapshots: KeyValue;
  readonly leases: KeyValue;
  readonly secrets: KeyValue;
  readonly work: WorkQueue;
  readonly signals: Signals;
  readonly #leases: KeyValue;
  /** What this node holds of the leases, with the revisions that it wrote. */
  readonly #held = new Map<string, number>();
  /** Items that it was given and has said nothing about. */
  readonly #items = new Set<WorkItem>();
  readonly #dead = new AbortController();

  constructor(servers: MemoryServers) {
    this.#leases = servers.leases;
    this.streams = this.#guarded(servers.streams);
    this.directory = this.#cuttable(servers.directory);
    this.snapshots = this.#cuttable(servers.snapshots);
    this.leases = this.#cuttable(this.#noting(servers.leases));
    this.secrets = this.#cuttable(servers.secrets);
    this.work = this.#taking(servers.work);
    this.signals = servers.signals;
  }

  /** From now on the node reaches nothing. What it leased has run out, and what it was given is given to others. */
  async cut(): Promise<void> {
    if (this.#isCut) return;
    this.#dead.abort();
    for (const item of this.#items) await item.giveBack(0);
    for (const [key, revision] of this.#held) {
      if ((await this.#leases.get(key))?.revision === revision) await this.#leases.remove(key);
    }
  }

  get #isCut(): boolean {
    return this.#dead.signal.aborted;
  }

  #check(): void {
    if (this.#isCut) throw new UnavailableError('streams', 'this node has been cut off');
  }

  /** The streams answer at once, and tell everyone what is stored. */
  #guarded(streams: MemoryStreams): MemoryStreams {
    return new Proxy(streams, {
      get: (target, name) => {
        const value: unknown = Reflect.get(target, name, target);
        if (typeof value !== 'function') return value;
        return (...args: readonly unknown[]): unknown => {
          if (name !== 'shardOf' && name !== 'listen') this.#check();
          return Reflect.apply(value, target, args);
        };
      },
    });
  }

  /** The same, refusing every call once the link is cut, also those under way. */
  #cuttable<T extends object>(port: T): T {
    return new Proxy(port, {
      get: (target, name) => {
        const value: unknown = Reflect.get(target, name, target);
        if (typeof value !== 'function') return value;
        return async (...args: readonly unknown[]): Promise<unknown> => {
          this.#check();
          const answer: unknown = await Reflect.apply(value, target, args);
          this.#check();
          return answer;
        };
      },
    });
  }

  #noting(leases: KeyValue): KeyValue {
    return {
      get: async (key) => await leases.get(key),
      newest: async (key) => await leases.newest(key),
      put: async (key, value) => this.#note(key, await leases.put(key, value)),
      swap: async (key, value, options) => {
        const revision = await leases.swap(key, value, options);
        return revision === null ? null : this.#note(key, revision);
      },
      remove: async (key) => await leases.remove(key),
      shred: async (key) => await leases.shred(key),
      erase: async (prefix) => await leases.erase(prefix),
      watch: async (prefix, onChange, signal) => await leases.watch(prefix, onChange, signal),
    };
  }

  #note(key: string, revision: number): number {
    this.#held.set(key, revision);
    return revision;
  }

  #taking(work: WorkQueue): WorkQueue {
    return {
      offer: async (ref) => {
        this.#check();
        await work.offer(ref);
      },
      depth: async () => {
        this.#check();
        return await work.depth();
      },
      take: async (handle, { hasRoom, signal }) => {
        const given = (item: WorkItem): void => {
          if (this.#isCut) {
            void item.giveBack(0);
            return;
          }
          this.#items.add(item);
          handle({
            ...item,
            done: async () => {
              this.#check();
              this.#items.delete(item);
              await item.done();
            },
            giveBack: async (afterMs) => {
              this.#check();
              this.#items.delete(item);
              await item.giveBack(afterMs);
            },
          });
        };
        await work.take(given, { hasRoom, signal: AbortSignal.any([signal, this.#dead.signal]) });
      },
    };
  }
}

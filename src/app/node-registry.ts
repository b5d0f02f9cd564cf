import { timestamp } from '../lib/clock.ts';
import type { Clock } from '../lib/clock.ts';
import { startHeartbeat } from '../lib/heartbeat.ts';
import type { Logger } from '../lib/logger.ts';
import type { KeyValue } from '../streams/key-value.ts';

/** One process of the installation, as the Admin status shows it. */
export interface NodeEntry {
  readonly nodeId: string;
  readonly roles: readonly string[];
  readonly version: string;
  readonly startedAt: string;
  readonly lastSeenAt: string;
}

/**
 * What this version knows, for those that would record it while other nodes do not. By name, not by version: a build
 * between two releases has the version of the last one. `models`: fallbacks, and the settings that came with them;
 * `prices`: a tenant's own.
 */
const KNOWN = ['mcp', 'allotments', 'vaults', 'sandboxes', 'models', 'prices'] as const;

/** What a node writes of itself; without `knows`: it is of a version that did not say. */
type StoredEntry = NodeEntry & { readonly knows?: readonly string[] };

/** Before the names of nodes in the keys of their entries. */
export const NODE_PREFIX = 'node';
/** A node silent for this long is no longer listed. Whole seconds: the server's resolution. */
const TTL_MS = 10_000;
const RENEW_MS = 3_000;

/** The processes of the installation, by expiring entries: for people, and for what not all of them know yet. */
export class NodeRegistry {
  readonly #leases: KeyValue;
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #nodes = new Map<string, StoredEntry>();
  readonly #stop = new AbortController();
  #stopBeating = (): void => undefined;
  #own: Omit<NodeEntry, 'lastSeenAt'> | null = null;

  constructor(parts: { readonly leases: KeyValue; readonly clock: Clock; readonly logger: Logger }) {
    this.#leases = parts.leases;
    this.#clock = parts.clock;
    this.#logger = parts.logger;
  }

  get nodes(): readonly NodeEntry[] {
    const entries = this.#nodes.values().map(entryOf);
    return [...entries].toSorted((a, b) => a.startedAt.localeCompare(b.startedAt));
  }

  /** Whether this process of the node still reports itself alive. */
  isAlive(nodeId: string, startedAt: string): boolean {
    return this.#nodes.get(`${NODE_PREFIX}.${nodeId}`)?.startedAt === startedAt;
  }

  /** Whether a node is listed that does not know it. */
  readonly isNewToSome = (what: (typeof KNOWN)[number]): boolean =>
    this.#nodes.values().some(({ knows = [] }) => !knows.includes(what));

  /** Lists this node and learns of the others. Returns when this process started. */
  async start(own: Omit<NodeEntry, 'startedAt' | 'lastSeenAt'>): Promise<string> {
    const startedAt = timestamp(this.#clock());
    this.#own = { ...own, startedAt };
    await this.#renew();
    await this.#leases.watch(
      NODE_PREFIX,
      (change) => {
        if (change.kind === 'removed') this.#nodes.delete(change.key);
        // Written by `#renew` of some node.
        // oxlint-disable-next-line typescript/no-unsafe-type-assertion
        else this.#nodes.set(change.entry.key, JSON.parse(change.entry.value) as StoredEntry);
      },
      this.#stop.signal,
    );
    const beat = async (): Promise<void> => await this.#renew();
    this.#stopBeating = startHeartbeat({
      what: 'the entry of this node',
      beat,
      everyMs: RENEW_MS,
      logger: this.#logger,
    });
    return startedAt;
  }

  async stop(): Promise<void> {
    this.#stopBeating();
    this.#stop.abort();
    if (this.#own !== null) await this.#leases.remove(`${NODE_PREFIX}.${this.#own.nodeId}`);
  }

  async #renew(): Promise<void> {
    if (this.#own === null) return;
    const key = `${NODE_PREFIX}.${this.#own.nodeId}`;
    const value = JSON.stringify({ ...this.#own, lastSeenAt: timestamp(this.#clock()), knows: KNOWN });
    const expected = (await this.#leases.get(key))?.revision ?? 0;
    await this.#leases.swap(key, value, { expected, ttlMs: TTL_MS });
  }
}

function entryOf({ nodeId, roles, version, startedAt, lastSeenAt }: StoredEntry): NodeEntry {
  return { nodeId, roles, version, startedAt, lastSeenAt };
}

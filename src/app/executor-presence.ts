import type { Presence } from '../http/discovery.ts';
import type { Logger } from '../lib/logger.ts';
import { OutageLog } from '../lib/outage-log.ts';
import type { KeyValue, KeyValueChange } from '../streams/key-value.ts';

export interface PresenceDeps {
  readonly leases: KeyValue;
  readonly nodeId: string;
  /** When this process started: tells what it wrote from what an earlier process of the node did. */
  readonly startedAt: string;
  /** Whether that process of that node still reports itself alive. */
  readonly isAlive: (nodeId: string, startedAt: string) => boolean;
  readonly logger: Logger;
}

/** What one node says of one tenant. */
interface PresenceEntry {
  readonly tenantId: string;
  readonly nodeId: string;
  readonly startedAt: string;
  readonly agents: readonly string[];
}

const PREFIX = 'executor';
/** Streams that come and go at once are reported once. */
const GATHER_MS = 100;
const RETRY_MS = 1_000;
/** Clears what a node that never returns has left; its own entry shows much sooner that it is gone. */
const TTL_MS = 60_000;
const RENEW_MS = 20_000;

/**
 * Which executors are connected, to whichever node: an entry for each node and tenant, written when it changes. It counts
 * while the process that wrote it is alive by the node registry, so a crash is known as soon as that runs out (10 s).
 * For people; nothing is decided on it.
 */
export class ExecutorPresence implements Presence {
  readonly #deps: PresenceDeps;
  readonly #outage: OutageLog;
  /** Open streams of this node, by tenant and agent. */
  readonly #open = new Map<string, Map<string, number>>();
  /** What other nodes say, by tenant and node. */
  readonly #others = new Map<string, Map<string, PresenceEntry>>();
  readonly #changed = new Set<string>();
  readonly #stop = new AbortController();
  #renewal: NodeJS.Timeout | null = null;
  #pending: NodeJS.Timeout | null = null;
  #writing: Promise<void> = Promise.resolve();

  constructor(deps: PresenceDeps) {
    this.#deps = deps;
    this.#outage = new OutageLog(deps.logger, 'the list of connected executors');
  }

  /** Resolves once the other nodes' reports are known. */
  async start(): Promise<void> {
    await this.#deps.leases.watch(PREFIX, (change) => this.#take(change), this.#stop.signal);
    this.#renewal = setInterval(() => {
      for (const tenantId of this.#open.keys()) this.#tell(tenantId);
    }, RENEW_MS);
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    if (this.#renewal !== null) clearInterval(this.#renewal);
    if (this.#pending !== null) clearTimeout(this.#pending);
    // What is left in the bucket ends with this node's entry in the registry.
    await this.#writing;
  }

  /** Executors that are connected to this node. */
  get here(): number {
    return this.#open.values().reduce((count, agents) => count + agents.size, 0);
  }

  opened(tenantId: string, agentId: string): () => void {
    this.#count(tenantId, agentId, 1);
    return () => this.#count(tenantId, agentId, -1);
  }

  connected(tenantId: string): ReadonlySet<string> {
    const found = new Set(this.#open.get(tenantId)?.keys());
    for (const { nodeId, startedAt, agents } of this.#others.get(tenantId)?.values() ?? []) {
      if (!this.#deps.isAlive(nodeId, startedAt)) continue;
      for (const agentId of agents) found.add(agentId);
    }
    return found;
  }

  #count(tenantId: string, agentId: string, by: 1 | -1): void {
    const agents = this.#open.get(tenantId) ?? new Map<string, number>();
    const before = agents.get(agentId) ?? 0;
    if (before + by > 0) agents.set(agentId, before + by);
    else agents.delete(agentId);
    if (agents.size > 0) this.#open.set(tenantId, agents);
    else this.#open.delete(tenantId);
    if (before === 0 || before + by === 0) this.#tell(tenantId);
  }

  #take(change: KeyValueChange): void {
    const [, tenantId = '', ...node] = (change.kind === 'put' ? change.entry.key : change.key).split('.');
    const nodeId = node.join('.');
    if (nodeId === this.#deps.nodeId) return;
    const nodes = this.#others.get(tenantId) ?? new Map<string, PresenceEntry>();
    // Written by `#write` of some node.
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion
    if (change.kind === 'put') nodes.set(nodeId, JSON.parse(change.entry.value) as PresenceEntry);
    else nodes.delete(nodeId);
    if (nodes.size > 0) this.#others.set(tenantId, nodes);
    else this.#others.delete(tenantId);
  }

  #tell(tenantId: string): void {
    this.#changed.add(tenantId);
    this.#writeIn(GATHER_MS);
  }

  #writeIn(ms: number): void {
    if (this.#pending !== null || this.#stop.signal.aborted) return;
    this.#pending = setTimeout(() => {
      this.#writing = this.#writeAll();
    }, ms);
  }

  async #writeAll(): Promise<void> {
    let wait = GATHER_MS;
    for (const tenantId of this.#changed) {
      this.#changed.delete(tenantId);
      try {
        await this.#write(tenantId);
        this.#outage.worked();
      } catch (error) {
        this.#outage.failed(error);
        this.#changed.add(tenantId);
        wait = RETRY_MS;
        break;
      }
    }
    this.#pending = null;
    if (this.#changed.size > 0) this.#writeIn(wait);
  }

  async #write(tenantId: string): Promise<void> {
    const { leases, nodeId, startedAt } = this.#deps;
    const key = `${PREFIX}.${tenantId}.${nodeId}`;
    const agents = [...(this.#open.get(tenantId)?.keys() ?? [])];
    if (agents.length === 0) {
      await leases.remove(key);
      return;
    }
    const entry: PresenceEntry = { tenantId, nodeId, startedAt, agents };
    const expected = (await leases.get(key))?.revision ?? 0;
    // Only this node writes this key; it can expire in between, and is then written with the next heartbeat.
    const written = await leases.swap(key, JSON.stringify(entry), { expected, ttlMs: TTL_MS });
    if (written === null) this.#changed.add(tenantId);
  }
}

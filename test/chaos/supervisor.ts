import { delay } from '#src/lib/backoff.ts';
import type { Cluster, ClusterNode } from '../support/cluster/cluster.ts';
import { withDescendants } from '#src/drivers/sandbox/child-process.ts';
import { isRunning } from '../support/host.ts';
import { seenNow } from './box-evidence.ts';
import type { Seen } from './box-evidence.ts';

const LOOK_MS = 300;
const AGAIN_MS = 500;
/** Ten minutes: a database that was dropped comes back when it is whole, and what fills it may be killed on the way. */
const TRIES_MAX = 1_200;

/** Does again what fails because another fault is not over yet, within a bound. */
export async function startAgain(start: () => Promise<void>): Promise<void> {
  let failure: unknown = null;
  for (let tries = 0; tries < TRIES_MAX; tries++) {
    try {
      await start();
      return;
    } catch (error) {
      failure = error;
      await delay(AGAIN_MS);
    }
  }
  throw new Error('a part does not start again', { cause: failure });
}

/** Starts Hosts again that have ended, as systemd or Kubernetes do. */
export class Supervisor {
  /** Hosts that ended although nobody killed them, with the last lines that they wrote. */
  readonly exits: string[] = [];
  readonly #orphans = new Map<number, string>();
  readonly #cluster: Cluster;
  readonly #restarting = new Set<ClusterNode>();

  constructor(cluster: Cluster) {
    this.#cluster = cluster;
  }

  /** What the Hosts that were killed had started. */
  get orphans(): Seen {
    return this.#orphans;
  }

  /** Until `stop`, and then until whatever is being started runs. */
  async run(stop: AbortSignal): Promise<void> {
    const restarts = new Set<Promise<void>>();
    while (!stop.aborted) {
      for (const node of this.#cluster.nodes) {
        if (this.#restarting.has(node) || isRunning(node.host)) continue;
        this.exits.push(`${node.name}: ${node.host.output().slice(-1_000)}`);
        const restart = this.#restart(node).finally(() => restarts.delete(restart));
        restarts.add(restart);
      }
      await delay(LOOK_MS, stop);
    }
    await Promise.all(restarts);
  }

  /** Kills a Host with SIGKILL; resolves when it runs again. */
  async kill(node: ClusterNode, downMs: number): Promise<void> {
    if (this.#restarting.has(node)) return;
    this.#restarting.add(node);
    const [, ...started] = withDescendants(node.host.pid);
    for (const [pid, identity] of seenNow(started)) this.#orphans.set(pid, identity);
    await node.host.kill();
    await delay(downMs);
    await this.#restart(node);
  }

  async #restart(node: ClusterNode): Promise<void> {
    this.#restarting.add(node);
    try {
      await startAgain(async () => await node.host.start());
    } finally {
      this.#restarting.delete(node);
    }
  }
}

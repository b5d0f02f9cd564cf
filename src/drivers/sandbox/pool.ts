import type { SandboxChild } from './child-process.ts';
import { FairTurns } from './fair-turns.ts';
import { SandboxUnavailableError } from './port.ts';

export interface PoolOptions {
  /** Children that run scripts at the same time, and those of one tenant. */
  readonly children: number;
  readonly childrenPerTenant: number;
  /** Children that run none, and wait for the next of their tenant, or of any. */
  readonly childrenIdle: number;
  /** Calls that wait for one, together and of one tenant. */
  readonly waiting: number;
  readonly waitingPerTenant: number;
  /** A child that has not been used for this long ends. */
  readonly idleMs: number;
  /** Maximum calls of one child. */
  readonly callsPerChild: number;
}

const SPARE_FACTOR = 10;
/** A tenant keeps its turn for as long as it takes to start a process for another, so that half of the time at least is of calls. */
const KEPT_MS_MIN = 300;
const KEPT_MS_MAX = 2_000;

/**
 * Who may run a script now, and in which process. Tenants take turns, each has its share at most, and a process that has
 * run a script of one tenant never runs one of another: it is ended, and another one, started in advance, takes its
 * place.
 */
export class ChildPool {
  readonly #options: PoolOptions;
  readonly #start: () => Promise<SandboxChild>;
  readonly #turns: FairTurns;
  readonly #idle: SandboxChild[] = [];
  readonly #alive = new Set<SandboxChild>();
  readonly #reaper: NodeJS.Timeout;
  #starting = 0;
  #startMs = 0;
  #spare: Promise<void> | null = null;
  #isStopped = false;

  constructor(options: PoolOptions, start: () => Promise<SandboxChild>) {
    this.#options = options;
    this.#start = start;
    const { children, childrenPerTenant, waiting, waitingPerTenant } = options;
    this.#turns = new FairTurns({
      atOnce: children,
      perTenant: childrenPerTenant,
      waiting,
      waitingPerTenant,
      keptMs: () => Math.min(KEPT_MS_MAX, Math.max(KEPT_MS_MIN, this.#startMs)),
    });
    this.#reaper = setInterval(() => this.#reap(), Math.max(100, options.idleMs / 4)).unref();
  }

  get counts(): { readonly children: number; readonly busy: number; readonly waiting: number } {
    return { children: this.#alive.size, busy: this.#turns.busy, waiting: this.#turns.waiting };
  }

  /**
   * A child for one call of a tenant, once it is its turn. `give` must be called with it afterwards.
   * @throws QueueFullError, SandboxUnavailableError, the signal's reason
   */
  async take(tenant: string, signal: AbortSignal): Promise<SandboxChild> {
    if (this.#isStopped) throw stopped();
    await this.#turns.take(tenant, signal);
    try {
      const ready = this.#idleOf(tenant) ?? this.#idleOf(null);
      const child = ready ?? (await this.#started());
      if (ready === undefined) this.#turns.restart(tenant);
      child.tenant = tenant;
      child.calls += 1;
      this.#keepSpare();
      return child;
    } catch (error) {
      this.#turns.end(tenant);
      throw error;
    }
  }

  /** After a call: the child can be used again, or is ended. Resolves when it has been. */
  async give(child: SandboxChild, isReusable: boolean): Promise<void> {
    const stays = isReusable && !child.isGone && !child.isDemoted && child.calls < this.#options.callsPerChild;
    if (stays && !this.#isStopped) {
      child.idleSinceMs = performance.now();
      this.#idle.push(child);
    } else {
      await this.#kill(child);
    }
    this.#turns.end(child.tenant ?? '');
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    clearInterval(this.#reaper);
    this.#turns.refuse(stopped());
    await this.#spare;
    await Promise.all([...this.#alive].map(async (child) => await this.#kill(child)));
  }

  /** The one that was used last, so that the others can end. */
  #idleOf(tenant: string | null): SandboxChild | undefined {
    const at = this.#idle.findLastIndex((child) => child.tenant === tenant && !child.isGone);
    return at < 0 ? undefined : this.#idle.splice(at, 1)[0];
  }

  async #started(): Promise<SandboxChild> {
    if (this.#spare !== null) {
      await this.#spare;
      const spare = this.#idleOf(null);
      if (spare !== undefined) return spare;
    }
    await this.#makeRoom();
    return await this.#startOne();
  }

  async #startOne(): Promise<SandboxChild> {
    if (this.#isStopped) throw stopped();
    this.#starting += 1;
    try {
      const askedMs = performance.now();
      const child = await this.#start();
      this.#startMs = performance.now() - askedMs;
      this.#alive.add(child);
      void child.ended.then(() => this.#alive.delete(child));
      if (!this.#isStopped) return child;
      await child.kill();
      throw stopped();
    } finally {
      this.#starting -= 1;
    }
  }

  /** For one more: the child that has been idle for longest ends. */
  async #makeRoom(): Promise<void> {
    const { children, childrenIdle } = this.#options;
    if (this.#alive.size + this.#starting < children + childrenIdle) return;
    const oldest = this.#idle.shift();
    if (oldest !== undefined) await this.#kill(oldest);
  }

  #keepSpare(): void {
    if (this.#isStopped || this.#spare !== null || this.#idle.some(({ tenant }) => tenant === null)) return;
    this.#spare = (async () => {
      try {
        await this.#makeRoom();
        const child = await this.#startOne();
        child.idleSinceMs = performance.now();
        this.#idle.push(child);
      } catch {
        // The call that needs one finds out why.
      } finally {
        this.#spare = null;
      }
    })();
  }

  #reap(): void {
    const { idleMs } = this.#options;
    for (const child of [...this.#idle]) {
      const idleForMs = performance.now() - child.idleSinceMs;
      // The one that is ready for the next caller stays longer.
      const mayMs = child.tenant === null ? SPARE_FACTOR * idleMs : idleMs;
      if (child.isGone || idleForMs > mayMs) void this.#kill(child);
    }
  }

  async #kill(child: SandboxChild): Promise<void> {
    const at = this.#idle.indexOf(child);
    if (at >= 0) this.#idle.splice(at, 1);
    await child.kill();
    this.#alive.delete(child);
  }
}

function stopped(): SandboxUnavailableError {
  return new SandboxUnavailableError('this node is stopping; another one takes over');
}

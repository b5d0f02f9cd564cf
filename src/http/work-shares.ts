import type { Clock } from '../lib/clock.ts';
import { ProblemError } from './problem.ts';

/** How long another tenant's last request counts as competition, ms: one that asks now and then is to notice nothing. */
const RECENT_MS = 5_000;
/** Work that a turn of the event loop may have, ms, until fewer requests are worked on: each of them waits for some ten turns. */
const TURN_MS = 2;
/** Requests in work at a time, of all tenants that compete. */
const WIDTH = { min: 2, max: 1_024 } as const;
const NARROWER = 0.5;
const WIDER = 1.05;
/** While requests wait and none ends, how often the loop is measured, ms. */
const AGAIN_MS = 5;

const RETRY_AFTER_SECONDS = '1';

export interface WorkSharesOptions {
  /** Ms that never go back. */
  readonly clock: Clock;
  /** Resolves to how much work a turn of the event loop has now, ms. */
  readonly measureTurn: () => Promise<number>;
  /** How long a request waits, ms. */
  readonly waitMs: number;
  /** Requests of one tenant that wait at a time. */
  readonly waitingMax: number;
  /** Called when a request that had to wait is worked on, ms after it came. */
  readonly onWaited: (waitedMs: number) => void;
  readonly onRefused: () => void;
}

interface Tenant {
  inWork: number;
  /** In the order in which they came. */
  readonly waiting: Set<() => void>;
}

/**
 * The requests that a node works on at a time, shared by tenants. What a request waits for in an event loop is what
 * others have ready in each of its turns. So while tenants compete and the turns are full, fewer requests are worked on
 * at a time, and the next is one of the tenant that has fewest in work; a tenant that has none is admitted at once. A
 * tenant that is alone, and a loop that keeps up, know no bound.
 */
export class WorkShares {
  readonly #options: WorkSharesOptions;
  /** Those with requests in work or waiting. */
  readonly #tenants = new Map<string, Tenant>();
  #newest = { name: '', at: Number.NEGATIVE_INFINITY };
  /** When any but the newest tenant was last seen. */
  #otherAt = Number.NEGATIVE_INFINITY;
  #width: number = WIDTH.max;
  #inWork = 0;
  #isMeasuring = false;
  #isPlanned = false;

  constructor(options: WorkSharesOptions) {
    this.#options = options;
  }

  /** Begins with a request of the tenant, if it need not wait; null: it has to. Returns the function that ends it. */
  takeNow(name: string): (() => void) | null {
    this.#seen(name);
    const tenant = this.#tenants.get(name) ?? { inWork: 0, waiting: new Set() };
    const isFree = tenant.inWork === 0 || !this.#isCrowded();
    if (tenant.waiting.size > 0 || !isFree) return null;
    this.#tenants.set(name, tenant);
    this.#begin(tenant);
    this.#measure();
    return () => this.#end(name, tenant);
  }

  /**
   * Resolves once the request may be worked on, to the function that ends it.
   * @throws ProblemError rate_limited when too many of the tenant's wait, or this one has for too long; the signal's
   * reason when it aborts before
   */
  async take(name: string, signal: AbortSignal): Promise<() => void> {
    const { clock, onWaited } = this.#options;
    const begun = clock();
    const taken = this.takeNow(name);
    if (taken !== null) return taken;
    const tenant = this.#tenants.get(name);
    if (tenant === undefined) throw new Error('a tenant that has to wait has requests');
    await this.#turn(tenant, signal);
    onWaited(clock() - begun);
    return () => this.#end(name, tenant);
  }

  #seen(name: string): void {
    const at = this.#options.clock();
    if (this.#newest.name !== name) this.#otherAt = this.#newest.at;
    this.#newest = { name, at };
  }

  /** Whether tenants compete for a loop that does not keep up. */
  #isCrowded(): boolean {
    return this.#isShared() && this.#inWork >= this.#width;
  }

  #isShared(): boolean {
    return this.#options.clock() - this.#otherAt < RECENT_MS;
  }

  #begin(tenant: Tenant): void {
    tenant.inWork++;
    this.#inWork++;
  }

  #end(name: string, tenant: Tenant): void {
    tenant.inWork--;
    this.#inWork--;
    if (tenant.inWork === 0 && tenant.waiting.size === 0) this.#tenants.delete(name);
    this.#serve();
    this.#measure();
  }

  async #turn({ waiting }: Tenant, signal: AbortSignal): Promise<void> {
    const { waitMs, waitingMax } = this.#options;
    signal.throwIfAborted();
    if (waiting.size >= waitingMax) throw this.#refusal();
    await new Promise<void>((resolve, reject) => {
      const leave = (reason: unknown): void => {
        settled();
        // An error by the signal's contract; its owner decides which.
        reject(reason instanceof Error ? reason : new Error('no longer wanted'));
      };
      const gone = (): void => leave(signal.reason);
      const admit = (): void => {
        settled();
        resolve();
      };
      const settled = (): void => {
        clearTimeout(timer);
        signal.removeEventListener('abort', gone);
        waiting.delete(admit);
      };
      const timer = setTimeout(() => leave(this.#refusal()), waitMs);
      signal.addEventListener('abort', gone, { once: true });
      waiting.add(admit);
      this.#measure();
    });
  }

  #refusal(): ProblemError {
    this.#options.onRefused();
    const message =
      'This tenant has more requests under way than it may while others have some. Send fewer at a time, and this one again in a moment.';
    return new ProblemError({ code: 'rate_limited', message, headers: { 'retry-after': RETRY_AFTER_SECONDS } });
  }

  #serve(): void {
    while (!this.#isCrowded()) {
      const tenant = this.#next();
      const [admit] = tenant?.waiting ?? [];
      if (tenant === null || admit === undefined) return;
      this.#begin(tenant);
      admit();
    }
  }

  /** Of those that wait, the one that has fewest in work. */
  #next(): Tenant | null {
    let found: Tenant | null = null;
    for (const tenant of this.#tenants.values()) {
      if (tenant.waiting.size > 0 && (found === null || tenant.inWork < found.inWork)) found = tenant;
    }
    return found;
  }

  /** Looks how long the loop takes, and how many requests it should therefore have in work: one look at a time. */
  #measure(): void {
    if (this.#isMeasuring || (this.#inWork <= WIDTH.min && this.#next() === null)) return;
    if (!this.#isShared()) {
      this.#serve();
      return;
    }
    this.#isMeasuring = true;
    void this.#options.measureTurn().then((ms) => {
      this.#isMeasuring = false;
      this.#width = ms > TURN_MS ? Math.min(this.#width, this.#inWork) * NARROWER : this.#width * WIDER;
      this.#width = Math.min(WIDTH.max, Math.max(WIDTH.min, this.#width));
      this.#serve();
      // Those in work may all be waiting for something themselves.
      if (this.#next() !== null) this.#measureLater();
    });
  }

  #measureLater(): void {
    if (this.#isPlanned) return;
    this.#isPlanned = true;
    setTimeout(() => {
      this.#isPlanned = false;
      this.#measure();
    }, AGAIN_MS);
  }
}

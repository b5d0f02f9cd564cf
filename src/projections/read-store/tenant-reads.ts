import type { CommonQueryMethods } from 'slonik';
import { UnavailableError } from '../../lib/unavailable.ts';
import { FairBudget } from '../../lib/fair-budget.ts';
import type { RowSeals } from '../../streams/row-seals.ts';
import { ReadsBusyError } from '../unavailable.ts';
import { reading } from './pool.ts';
import type { ReadStore } from './pool.ts';

/** The operator of the installation reads in a tenant's stead: no id of a tenant is empty. */
export const OPERATOR = '';

/** The connections that serve reads. Each tenant has a share of them, so a queue of one is not a queue for another. */
export interface TenantReads {
  /**
   * Runs a read of a tenant once its turn has come. A read within a read would wait for itself.
   * @throws ReadsBusyError when its turn did not come in time, UnavailableError (database)
   */
  read<T>(tenant: string, work: (pool: CommonQueryMethods) => Promise<T>): Promise<T>;
}

/** Reads of rows that hold what tenants wrote. */
export interface SealedReads {
  readonly reads: TenantReads;
  readonly seals: RowSeals;
}

/** What the queries over a group of read models read with. */
export interface GroupReads extends SealedReads {
  /** For this process's own reads. */
  readonly pool: ReadStore;
}

export interface SharedReadsOptions {
  /** Of these connections alone: nothing else waits for them. */
  readonly pool: ReadStore;
  /** All that the pool opens. */
  readonly connections: number;
  /** For one statement, as the pool has it. */
  readonly statementMs: number;
  /** How long a read waits for its turn. */
  readonly waitMs: number;
  /** Reads of one tenant that wait at a time. */
  readonly waitingMax: number;
  /** Called when the turn of a read has come, ms after it was asked for. */
  readonly onTurn: (waitedMs: number) => void;
  readonly onRefused: () => void;
}

/** On the way to the database and back; what takes longer than its statement and this is no longer waited for, ms. */
const ON_THE_WAY_MS = 2_000;

/**
 * A tenant has no more of the connections than it leaves to others: half of them when it is alone, a third when two
 * compete, and a newcomer's first read finds a connection however long the others' take.
 */
export class SharedReads implements TenantReads {
  readonly #options: SharedReadsOptions;
  readonly #budget: FairBudget;
  readonly #waiting = new Map<string, number>();

  constructor(options: SharedReadsOptions) {
    const { connections } = options;
    this.#options = options;
    this.#budget = new FairBudget({ total: connections, perName: connections, leavesAsMuch: true });
  }

  async read<T>(tenant: string, work: (pool: CommonQueryMethods) => Promise<T>): Promise<T> {
    const { pool, onTurn } = this.#options;
    const begun = performance.now();
    const giveBack = this.#budget.takeNow(tenant, 1) ?? (await this.#turn(tenant));
    onTurn(performance.now() - begun);
    // Its connection is taken until it ends, whether it is still waited for or not.
    const read = reading(async () => await work(pool)).finally(giveBack);
    return await this.#answered(read);
  }

  async #turn(tenant: string): Promise<() => void> {
    const { waitMs, waitingMax, onRefused } = this.#options;
    const waiting = this.#waiting.get(tenant) ?? 0;
    if (waiting >= waitingMax) {
      onRefused();
      throw new ReadsBusyError('too many reads of the tenant wait');
    }
    this.#waiting.set(tenant, waiting + 1);
    const late = new AbortController();
    const timer = setTimeout(() => {
      onRefused();
      late.abort(new ReadsBusyError('a read of the tenant has waited for too long'));
    }, waitMs);
    try {
      return await this.#budget.take(tenant, 1, late.signal);
    } finally {
      clearTimeout(timer);
      const left = (this.#waiting.get(tenant) ?? 1) - 1;
      if (left > 0) this.#waiting.set(tenant, left);
      else this.#waiting.delete(tenant);
    }
  }

  /** The database ends a statement that takes too long; if it can no longer be reached, nothing does. */
  async #answered<T>(read: Promise<T>): Promise<T> {
    const withinMs = this.#options.statementMs + ON_THE_WAY_MS;
    return await new Promise<T>((resolve, reject) => {
      const timer = setTimeout(
        () => reject(new UnavailableError('database', 'the database does not answer')),
        withinMs,
      );
      read.then(resolve, reject).finally(() => clearTimeout(timer));
    });
  }
}

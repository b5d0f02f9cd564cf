import { delay } from '../lib/backoff.ts';
import { Wake } from '../lib/wake.ts';
import type { ProjectionGroup } from './projection.ts';

/** Commits of one transaction. */
export const BATCH_MAX = 500;
/**
 * How long arrivals are left to gather after a batch, ms: a transaction costs a dozen statements however many commits it
 * has, and a document is written once for all of them. A full batch means a backlog, which does not wait.
 */
const GATHER_MS = 200;
/** The same while somebody waits for what has arrived. */
const WANTED_MS = 20;
/**
 * A batch of fewer means little load: who waits for rows is not kept, and where they say so arrivals gather for so many
 * times as long as it took. Without that, two turns at a time kept Node and Postgres busier than sixty-four, a transaction for each commit.
 */
const GATHER_FROM = 8;
const RESTS = 9;

/** The topics of the signals that say so. */
export const ROWS_WANTED = 'rows-wanted.';

/** That of one projector. */
export function rowsWanted({ schema, shard }: { readonly schema: string; readonly shard: number }): string {
  return `${ROWS_WANTED}${schema}.${shard}`;
}

/** When a projector takes its next batch: under load late, but not for who asks. */
export class Gathering {
  readonly #wanted = new Wake();
  readonly #rests: number;

  constructor({ isAskedFor }: Pick<ProjectionGroup, 'isAskedFor'>) {
    this.#rests = isAskedFor === true ? RESTS : 0;
  }

  /** Somebody waits for the rows of a commit that has been stored; the next wait, or the present one, is short. */
  hurry(): void {
    this.#wanted.raise();
  }

  /** Resolves when the batch after one of so many commits, which took so long, is to be taken. */
  async after(commits: number, tookMs: number): Promise<void> {
    if (commits >= BATCH_MAX) return;
    if (commits < GATHER_FROM) {
      if (this.#rests > 0) await this.#wanted.wait(Math.min(GATHER_MS, this.#rests * tookMs));
      return;
    }
    await delay(WANTED_MS);
    await this.#wanted.wait(GATHER_MS - WANTED_MS);
  }
}

import type { Clock } from '../lib/clock.ts';
import type { StoredCommit } from '../streams/commit.ts';
import type { CommitSource } from '../streams/event-store.ts';
import { readCheckpoint } from './checkpoint.ts';
import { completeTo, OF_SESSIONS } from './complete-to.ts';
import { NewestWrites } from './newest-writes.ts';
import type { ProjectionProgress } from './progress.ts';
import type { TenantReads } from './read-store/tenant-reads.ts';
import { SCHEMAS } from './schemas.ts';

export interface OwnWritesDeps {
  readonly reads: TenantReads;
  readonly source: CommitSource;
  readonly progress: Pick<ProjectionProgress, 'reach'>;
  readonly clock: Clock;
}

/**
 * How long a list waits for its projector at most, ms: a person who lists what they have just started does not notice
 * it.
 */
const WITHIN_MS = 100;

/**
 * The newest commit of sessions that this process has recorded for each tenant and stream, so that a list right after a
 * command shows what the command did.
 */
export class OwnWrites {
  readonly #deps: OwnWritesDeps;
  readonly #newest: NewestWrites;

  constructor(deps: OwnWritesDeps) {
    this.#deps = deps;
    this.#newest = new NewestWrites(deps.progress, SCHEMAS.sessions);
  }

  recorded(stored: StoredCommit): void {
    this.#newest.heard(stored);
  }

  /** Waits, briefly, until the read model of sessions has what this process recorded for the tenant. */
  async reached(tenant: string): Promise<void> {
    await this.#newest.reached(tenant, WITHIN_MS);
  }

  /**
   * The same. Returns the time up to
   * which a list that is read from then on is complete, ms since 1970: now, unless the projector is behind or has parked a
   * commit of the tenant.
   * @throws UnavailableError (database), UnavailableError (streams)
   */
  async shown(tenant: string): Promise<number> {
    const behind = (await this.#newest.reached(tenant, WITHIN_MS)).filter(({ isReached }) => !isReached);
    const applied = await Promise.all(behind.map(async ({ shard }) => await this.#completeTo(tenant, shard)));
    const whole = await completeTo(this.#deps, OF_SESSIONS, tenant);
    return Math.min(this.#deps.clock(), ...applied, whole ?? Number.POSITIVE_INFINITY);
  }

  /** Just before the first commit that has not been applied. */
  async #completeTo(tenant: string, shard: number): Promise<number> {
    const { reads, source } = this.#deps;
    const reached = await reads.read(tenant, async (pool) => await readCheckpoint(pool, SCHEMAS.sessions, shard));
    const firstMissing = await source.timeAfter(shard, ['session'], reached);
    return firstMissing === null ? Number.POSITIVE_INFINITY : firstMissing - 1;
  }
}

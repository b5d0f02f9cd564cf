import type { TenantState } from '../../domain/tenant/state.ts';
import { backoffMs, delay } from '../../lib/backoff.ts';
import { BackgroundTask } from '../../lib/background-task.ts';
import type { OnRound, Round } from '../../lib/background-task.ts';
import type { Logger } from '../../lib/logger.ts';
import { isUnavailableError } from '../../lib/unavailable.ts';
import { commitPlace, lastPosition } from '../../streams/event-store.ts';
import type { CommitSource, FollowedCommit } from '../../streams/event-store.ts';
import type { KeyValue } from '../../streams/key-value.ts';
import type { Directory } from './directory.ts';

export interface DirectoryProjectorDeps {
  readonly directory: Directory;
  readonly bucket: KeyValue;
  readonly source: CommitSource;
  /** The tenant's fold with everything that is in the log now. */
  readonly load: (tenantId: string) => Promise<{ readonly state: TenantState; readonly position: number }>;
  readonly logger: Logger;
  readonly onRound?: OnRound;
}

const RETRY = { baseMs: 50, capMs: 2_000 };

/**
 * Feeds the directory from the log, for what a node that died could not publish itself. It may run on every node: an
 * older entry never replaces a newer one. Its checkpoint is in the bucket, so it needs no Postgres either.
 */
export class DirectoryProjector {
  readonly #deps: DirectoryProjectorDeps;
  readonly #tasks: readonly BackgroundTask[];

  constructor(deps: DirectoryProjectorDeps) {
    this.#deps = deps;
    const { source, logger, onRound } = deps;
    this.#tasks = Array.from({ length: source.shards }, (_, shard) => {
      const work = async (round: Round): Promise<void> => await this.#run(shard, round);
      const what = `the directory projector of stream ${shard}`;
      const pauseMs = (failures: number): number => backoffMs(failures, RETRY);
      return new BackgroundTask({ name: 'directory-projector', what, work, pauseMs, logger, onRound });
    });
  }

  start(): void {
    for (const task of this.#tasks) task.start();
  }

  async stop(): Promise<void> {
    await Promise.all(this.#tasks.map(async (task) => await task.stop()));
  }

  async #run(shard: number, { signal }: Round): Promise<void> {
    const { bucket, source } = this.#deps;
    const key = `checkpoint.${shard}`;
    const after = Number((await bucket.get(key).catch(() => null))?.value ?? '0');
    const options = { shard, kinds: ['tenant'] as const, after, signal, buffer: 100 };
    for await (const batch of source.follow(options)) {
      for (const tenantId of tenantsIn(batch)) await this.#publishUntilDone(shard, tenantId, signal);
      const position = lastPosition(batch);
      // A checkpoint that was not written costs the next start a second read, nothing else.
      if (position !== undefined && !signal.aborted) {
        await bucket.put(key, String(position)).catch((error: unknown) => this.#warn(shard, error));
      }
    }
  }

  /** While the log is unavailable this waits, and holds up what comes after it: a revoked key must not stay alive. */
  async #publishUntilDone(shard: number, tenantId: string, signal: AbortSignal): Promise<void> {
    for (let attempt = 0; !signal.aborted; attempt++) {
      try {
        await this.#publish(tenantId);
        return;
      } catch (error) {
        this.#warn(shard, error);
        // Any other error concerns this tenant's commits; repetition does not fix it, and it must not stop the others.
        if (!isUnavailableError(error, 'streams')) return;
        await delay(backoffMs(attempt, RETRY), signal);
      }
    }
  }

  #warn(shard: number, error: unknown): void {
    this.#deps.logger.warn({ err: error, shard }, 'the directory could not be brought up to date');
  }

  /** A commit only says which tenant to read: what there is to publish is the tenant's whole fold. */
  async #publish(tenantId: string): Promise<void> {
    const { state, position } = await this.#deps.load(tenantId);
    await this.#deps.directory.publish(state, position);
  }
}

function tenantsIn(batch: readonly FollowedCommit[]): ReadonlySet<string> {
  const ids = batch.map((followed) => {
    if (followed.kind === 'erased') return null;
    return commitPlace(followed).ref.id;
  });
  return new Set(ids.filter((id) => id !== null));
}

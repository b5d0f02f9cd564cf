import { removeOrphan } from '../commands/artifact/remove-orphan.ts';
import { settleOverdue } from '../commands/artifact/settle.ts';
import { artifactRef } from '../commands/artifact/deps.ts';
import type { ArtifactDeps } from '../commands/artifact/deps.ts';
import type { StoredObject } from '../drivers/objects/port.ts';
import { BackgroundTask } from '../lib/background-task.ts';
import type { OnRound, Round } from '../lib/background-task.ts';
import { timestamp } from '../lib/clock.ts';
import type { Logger } from '../lib/logger.ts';
import { FIRST_PLACE } from '../projections/artifacts/queries.ts';
import type { ArtifactQueries } from '../projections/artifacts/queries.ts';

export interface ArtifactReconcilerOptions {
  readonly deps: ArtifactDeps;
  /** The source of candidates; what happens to them is decided on folds. */
  readonly queries: ArtifactQueries;
  /** How long bytes that no version names are left alone, ms. */
  readonly orphanMs: number;
  readonly logger: Logger;
  readonly onRound?: OnRound;
}

/**
 * Between two sweeps for orphans, ms: a quarter of their grace period, within these bounds. A sweep lists the whole
 * store.
 */
const SWEEP_MS = { min: 1_000, max: 21_600_000 };
/**
 * A deleted session's artifacts go with the request that deletes it; this finds what that request left behind. A pass
 * costs the same however many artifacts there are, and all of them are visited in as many passes as there are
 * thousands.
 */
const ORPHANS_MS = { min: 1_000, max: 10_000 };
const POLL_MS = { min: 250, max: 5_000 };
/** Objects of other kinds have reconcilers of their own. */
const OWN = 'af_';

/**
 * Finishes what was started with artifacts: uploads and removals whose process has died, artifacts whose session is
 * deleted, and bytes that no version names. It takes no input; several may run at once, as the log lets each step
 * happen only once.
 */
export class ArtifactReconciler {
  readonly #options: ArtifactReconcilerOptions;
  readonly #tasks: readonly BackgroundTask[];
  /** How far the walk for orphans has come. */
  #walked = FIRST_PLACE;

  constructor(options: ArtifactReconcilerOptions) {
    this.#options = options;
    const { deps, orphanMs, logger, onRound } = options;
    const every = (name: string, ms: number, what: string, work: (round: Round) => Promise<void>) =>
      new BackgroundTask({ name, what, work, pauseMs: ms, firstPauseMs: ms, logger, onRound });
    const poll = within(deps.operationMs / 4, POLL_MS);
    const orphans = within(deps.operationMs * 2, ORPHANS_MS);
    const sweep = within(orphanMs / 4, SWEEP_MS);
    this.#tasks = [
      every('artifact-settling', poll, 'the settling of artifact operations', async (on) => await this.#settle(on)),
      every('artifact-orphans', orphans, 'the removal of orphaned artifacts', async (on) => {
        await this.#removeOrphans(on);
      }),
      every('artifact-sweep', sweep, 'the sweeping of orphaned objects', async (on) => await this.#sweep(on)),
    ];
  }

  start(): void {
    for (const task of this.#tasks) task.start();
  }

  async stop(): Promise<void> {
    await Promise.all(this.#tasks.map(async (task) => await task.stop()));
  }

  async #settle({ signal }: Round): Promise<void> {
    const { deps, queries } = this.#options;
    const failures: unknown[] = [];
    for (const tenant of await queries.overdue(timestamp(deps.clock()))) {
      if (signal.aborted) return;
      // One tenant that cannot be settled (its data key is being destroyed, perhaps) does not hold up the others.
      await settleOverdue(deps, tenant, deps.clock()).catch((error: unknown) => failures.push(error));
    }
    if (failures.length > 0) throw failures[0];
  }

  async #removeOrphans({ signal }: Round): Promise<void> {
    const { deps, queries } = this.#options;
    const { orphans, next } = await queries.orphans(this.#walked);
    const failures: unknown[] = [];
    for (const { tenant, id } of orphans) {
      if (signal.aborted) return;
      // One that cannot be removed does not hold up the others; the next walk tries it again.
      await removeOrphan(deps, tenant, id).catch((error: unknown) => failures.push(error));
    }
    this.#walked = next;
    if (failures.length > 0) throw failures[0];
  }

  async #sweep({ signal }: Round): Promise<void> {
    const { deps, queries, orphanMs } = this.#options;
    const before = deps.clock() - orphanMs;
    await deps.objects.removeUnfinished(before);
    for await (const page of deps.objects.list()) {
      if (signal.aborted) return;
      const old = page.filter(({ owner, modifiedAtMs }) => owner.startsWith(OWN) && modifiedAtMs < before);
      if (old.length === 0) continue;
      for (const { tenant, owner, name } of await queries.unnamed(old))
        await this.#removeOrphan({ tenant, owner, name });
    }
  }

  /** The rows may be stale; the artifact's own history is not. */
  async #removeOrphan({ tenant, owner, name }: Pick<StoredObject, 'tenant' | 'owner' | 'name'>): Promise<void> {
    const { deps, logger } = this.#options;
    const { state } = await deps.artifacts.refresh(artifactRef(tenant, owner));
    if (state.status === 'stored' && state.versions.some(({ objects }) => objects.includes(name))) return;
    await deps.objects.remove({ tenant, owner, name });
    logger.info({ tenant, owner, name }, 'bytes that no version names were removed');
  }
}

function within(ms: number, { min, max }: { readonly min: number; readonly max: number }): number {
  return Math.min(max, Math.max(min, ms));
}

import { backoffMs, delay } from '../lib/backoff.ts';
import { BackgroundTask } from '../lib/background-task.ts';
import type { OnRound, Round } from '../lib/background-task.ts';
import { faultPoint } from '../lib/fault-points.ts';
import type { FaultPoint } from '../lib/fault-points.ts';
import type { Logger } from '../lib/logger.ts';
import { OutageLog } from '../lib/outage-log.ts';
import { AGGREGATE_KINDS, escapeToken } from '../streams/subjects.ts';
import type { AggregateKind } from '../streams/subjects.ts';
import type { EventStore } from '../streams/event-store.ts';
import type { KeyValue } from '../streams/key-value.ts';

export interface TenantDeletionDeps {
  readonly store: EventStore;
  readonly snapshots: KeyValue;
  readonly eraseSecrets: (tenantId: string) => Promise<void>;
  /** The data key of a tenant, by which everything of it that is sealed can be read. */
  readonly keys: {
    readonly destroy: (tenantId: string) => Promise<void>;
    /** The very last step: the id is free. */
    readonly finish: (tenantId: string) => Promise<void>;
  };
  /** Tenants that this node knows to be in deletion, and how their last trace is removed. */
  readonly directory: {
    readonly deleting: () => readonly string[];
    /** Those that are about to be: they take no message until their deletion begins or is given up. */
    readonly draining: () => readonly string[];
    readonly remove: (tenantId: string) => Promise<void>;
  };
  /** Opens a tenant again if its drain is overdue: who began it is gone. */
  readonly reopenOverdue: (tenantId: string) => Promise<void>;
  /** Resolves when the read models have everything that the log holds now. @throws when that takes too long */
  readonly caughtUp: () => Promise<void>;
  /** Removes the tenant's rows from every read model, or from those that are made of such aggregates. */
  readonly eraseRows: (tenantId: string, kinds?: readonly AggregateKind[]) => Promise<void>;
  /** Makes what was removed from unsealed rows unreadable on disk. */
  readonly scrubRows: () => Promise<void>;
  /** Removes the tenant's bytes from the object store. */
  readonly eraseObjects: (tenantId: string) => Promise<void>;
  readonly logger: Logger;
  readonly onRound?: OnRound;
}

/** Longer than any node takes to learn that the tenant's keys are dead (a second). */
const QUIET_MS = 1_500;
const SWEEP_MS = 5_000;
/** A step that never fits into its time would hold locks for as long as it tries. */
const RETRY_MS = { baseMs: SWEEP_MS, capMs: 3_600_000 };

/**
 * Removes everything of a tenant, step by step; each step may be repeated, and the entry in the directory and the open
 * tombstone of the data key, which go last, say that the steps are not finished. So a crash at any point is finished by
 * the next sweep of any node.
 *
 *   keys dead everywhere → data key destroyed → read models caught up → log (all but the tenant's own subject) → rows →
 *     objects → snapshots, secrets → the tenant's own subject → rows of that again → files of unsealed rows → directory entry →
 *     tombstone
 *
 * It takes no input: whatever is in deletion is deleted, no matter who asked for it. What was only about to be, when the
 * node that was asked ended, is open again once the time that it was given is over.
 */
export class TenantDeletion {
  readonly #deps: TenantDeletionDeps;
  readonly #outage: OutageLog;
  readonly #tasks: readonly BackgroundTask[];
  readonly #running = new Map<string, Promise<void>>();
  /** Tenants that the last sweep could not delete. */
  readonly #failed = new Map<string, { readonly attempts: number; readonly dueAtMs: number }>();

  constructor(deps: TenantDeletionDeps) {
    this.#deps = deps;
    this.#outage = new OutageLog(deps.logger, 'the deletion of a tenant');
    const every = (name: string, what: string, work: (round: Round) => Promise<void>) =>
      new BackgroundTask({ name, what, work, pauseMs: SWEEP_MS, logger: deps.logger, onRound: deps.onRound });
    // Two tasks: a deletion may take an hour, for which no other tenant stays closed.
    this.#tasks = [
      every('tenant-deletion', 'the search for tenants to delete', async () => await this.#sweep()),
      every('tenant-reopening', 'the opening of tenants', async (round) => await this.#reopen(round)),
    ];
  }

  start(): void {
    for (const task of this.#tasks) task.start();
  }

  async stop(): Promise<void> {
    await Promise.all(this.#tasks.map(async (task) => await task.stop()));
    await Promise.allSettled(this.#running.values());
  }

  /** Deletes one tenant now; several callers share one run. */
  async erase(tenantId: string): Promise<void> {
    const running = this.#running.get(tenantId);
    if (running !== undefined) {
      await running;
      return;
    }
    const mine = this.#steps(tenantId).finally(() => this.#running.delete(tenantId));
    this.#running.set(tenantId, mine);
    await mine;
  }

  async #sweep(): Promise<void> {
    const deleting = this.#deps.directory.deleting();
    for (const tenantId of this.#failed.keys()) if (!deleting.includes(tenantId)) this.#failed.delete(tenantId);
    for (const tenantId of deleting) {
      if ((this.#failed.get(tenantId)?.dueAtMs ?? 0) > performance.now()) continue;
      await this.erase(tenantId).then(
        () => this.#worked(tenantId),
        (error: unknown) => this.#backOff(tenantId, error),
      );
    }
  }

  async #reopen({ signal }: Round): Promise<void> {
    const failures: unknown[] = [];
    for (const tenantId of this.#deps.directory.draining()) {
      if (signal.aborted) return;
      await this.#deps.reopenOverdue(tenantId).catch((error: unknown) => failures.push(error));
    }
    if (failures.length > 0) throw failures[0];
  }

  #worked(tenantId: string): void {
    this.#failed.delete(tenantId);
    this.#outage.worked();
  }

  /** The next sweep tries it again, later ones less and less often. */
  #backOff(tenantId: string, error: unknown): void {
    const attempts = this.#failed.get(tenantId)?.attempts ?? 0;
    this.#failed.set(tenantId, { attempts: attempts + 1, dueAtMs: performance.now() + backoffMs(attempts, RETRY_MS) });
    this.#outage.failed(error);
  }

  async #steps(tenantId: string): Promise<void> {
    await delay(QUIET_MS);
    for (const [done, step] of this.#plan(tenantId)) {
      // Another node was faster: the id may belong to a new tenant by now.
      if (!this.#deps.directory.deleting().includes(tenantId)) return;
      await step();
      await faultPoint(done);
    }
  }

  #plan(tenantId: string): readonly (readonly [FaultPoint, () => Promise<void>])[] {
    const { store, keys, directory, eraseRows, eraseObjects, scrubRows } = this.#deps;
    return [
      ['deletion.quiet', async () => await Promise.resolve()],
      ['deletion.key-destroyed', async () => await keys.destroy(tenantId)],
      ['deletion.log-erased', async () => await this.#eraseWork(tenantId)],
      ['deletion.rows-erased', async () => await eraseRows(tenantId)],
      ['deletion.objects-erased', async () => await eraseObjects(tenantId)],
      [
        'deletion.tenant-erased',
        async () => {
          await this.#eraseValues(tenantId);
          await store.erase(tenantId, ['tenant']);
          // Once more: a rebuild that started since may have read the tenant's own commits, if they were stored
          // unsealed.
          await eraseRows(tenantId, ['tenant']);
        },
      ],
      ['deletion.scrubbed', scrubRows],
      ['deletion.removed', async () => await directory.remove(tenantId)],
      ['deletion.finished', async () => await keys.finish(tenantId)],
    ];
  }

  async #eraseWork(tenantId: string): Promise<void> {
    // Commits that a projector is still processing would bring rows back after they were removed.
    await this.#deps.caughtUp();
    await this.#deps.store.erase(
      tenantId,
      AGGREGATE_KINDS.filter((kind) => kind !== 'tenant'),
    );
  }

  async #eraseValues(tenantId: string): Promise<void> {
    const { snapshots, eraseSecrets } = this.#deps;
    for (const kind of AGGREGATE_KINDS) await snapshots.erase(`${kind}.${escapeToken(tenantId)}`);
    await eraseSecrets(tenantId);
  }
}

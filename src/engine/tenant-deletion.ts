import { delay } from '../lib/backoff.ts';
import { faultPoint } from '../lib/fault-points.ts';
import type { Logger } from '../lib/logger.ts';
import { OutageLog } from '../lib/outage-log.ts';
import { AGGREGATE_KINDS, escapeToken } from '../streams/subjects.ts';
import type { EventStore } from '../streams/event-store.ts';
import type { KeyValue } from '../streams/key-value.ts';

export interface TenantDeletionParts {
  readonly store: EventStore;
  readonly snapshots: KeyValue;
  /** Tenants that this node knows to be in deletion, and how their last trace is taken away. */
  readonly directory: {
    readonly deleting: () => readonly string[];
    readonly remove: (tenantId: string) => Promise<void>;
  };
  /** Resolves when the read models have everything that the log holds now. @throws when that takes too long */
  readonly caughtUp: () => Promise<void>;
  /** Removes the tenant's rows from every read model. */
  readonly eraseRows: (tenantId: string) => Promise<void>;
  readonly logger: Logger;
}

/** Longer than any node takes to learn that the tenant's keys are dead (wire contract, section 3: a second). */
const QUIET_MS = 1_500;
const SWEEP_MS = 5_000;

/**
 * Takes everything of a tenant away, step by step; each step may be repeated, and the entry in the directory, which goes
 * last, says that the steps are not done. So a crash at any point is finished by the next sweep of any node.
 *
 *   keys dead everywhere → read models caught up → log (all but the tenant's own subject) → rows → snapshots
 *     → the tenant's own subject → directory entry
 *
 * It takes no input: whatever is in deletion is deleted, whoever asked for it.
 */
export class TenantDeletion {
  readonly #parts: TenantDeletionParts;
  readonly #outage: OutageLog;
  readonly #stop = new AbortController();
  readonly #running = new Map<string, Promise<void>>();
  #loop: Promise<void> = Promise.resolve();

  constructor(parts: TenantDeletionParts) {
    this.#parts = parts;
    this.#outage = new OutageLog(parts.logger, 'the deletion of a tenant');
  }

  start(): void {
    this.#loop = this.#sweep();
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#loop;
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
    while (!this.#stop.signal.aborted) {
      for (const tenantId of this.#parts.directory.deleting()) {
        await this.erase(tenantId).then(
          () => this.#outage.worked(),
          (error: unknown) => this.#outage.failed(error),
        );
      }
      await delay(SWEEP_MS, this.#stop.signal);
    }
  }

  async #steps(tenantId: string): Promise<void> {
    const { store, snapshots, directory, caughtUp, eraseRows } = this.#parts;
    await delay(QUIET_MS);
    await faultPoint('deletion.quiet');
    // Commits that a projector has still in hand would bring rows back after they were removed.
    await caughtUp();
    await store.erase(
      tenantId,
      AGGREGATE_KINDS.filter((kind) => kind !== 'tenant'),
    );
    await faultPoint('deletion.log-erased');
    await eraseRows(tenantId);
    await faultPoint('deletion.rows-erased');
    for (const kind of AGGREGATE_KINDS) await snapshots.erase(`${kind}.${escapeToken(tenantId)}`);
    await store.erase(tenantId, ['tenant']);
    // Once more: a rebuild that began since has read the tenant's own commits.
    await eraseRows(tenantId);
    await faultPoint('deletion.tenant-erased');
    await directory.remove(tenantId);
  }
}

import { quotaRef } from '../commands/artifact/deps.ts';
import { freeBytes } from '../commands/sandbox/account.ts';
import { removeIfOrphaned } from '../commands/sandbox/open-sandbox.ts';
import { sandboxRef } from '../commands/sandbox/deps.ts';
import type { SandboxDeps } from '../commands/sandbox/deps.ts';
import { heldBy } from '../domain/quota/workspaces.ts';
import { changeOf, WORKSPACE_PREFIX } from '../domain/sandbox/changes.ts';
import type { StoredObject } from '../drivers/objects/port.ts';
import { BackgroundTask } from '../lib/background-task.ts';
import type { OnRound, Round } from '../lib/background-task.ts';
import { timestamp } from '../lib/clock.ts';
import type { Logger } from '../lib/logger.ts';
import { FIRST_USE } from '../projections/workspaces/queries.ts';
import type { UseRow, WorkspaceName, WorkspaceQueries } from '../projections/workspaces/queries.ts';

export interface WorkspaceSweeperOptions {
  readonly deps: SandboxDeps;
  readonly queries: WorkspaceQueries;
  /** Whether the rows have, a moment later at most, everything that the log had when it was asked. */
  readonly isComplete: () => Promise<boolean>;
  /** How long bytes that nothing names are left alone, ms. */
  readonly orphanMs: number;
  readonly logger: Logger;
  readonly onRound?: OnRound;
}

/** Between two sweeps, ms: a quarter of the grace period, within these bounds. A sweep lists the whole store. */
const SWEEP_MS = { min: 1_000, max: 21_600_000 };
const WALK_MS = { min: 1_000, max: 60_000 };

/**
 * Removes what no workspace needs any longer, and sandboxes whose session is gone. An object is garbage when the change that
 * wrote it was never recorded, or when nothing is left that may name the workspace that it is in: no sandbox with files
 * there and no session with such files in its history. Neither is undone by what comes later: names are not used
 * again, and only what may name a workspace passes it on. So it is enough that the rows have everything up to the moment
 * at which it was found to be garbage; whether users are gone is asked of the log.
 */
export class WorkspaceSweeper {
  readonly #options: WorkspaceSweeperOptions;
  readonly #tasks: readonly BackgroundTask[];
  /** How far the walk for orphaned sandboxes has come. */
  #walked = FIRST_USE;

  constructor(options: WorkspaceSweeperOptions) {
    this.#options = options;
    const { deps, orphanMs, logger, onRound } = options;
    const every = (name: string, ms: number, what: string, work: (round: Round) => Promise<void>) =>
      new BackgroundTask({ name, what, work, pauseMs: ms, firstPauseMs: ms, logger, onRound });
    const sweep = within(orphanMs / 4, SWEEP_MS);
    const walk = within(deps.operationMs * 2, WALK_MS);
    this.#tasks = [
      every('workspace-sweep', sweep, 'the sweeping of workspaces', async (round) => await this.#sweep(round)),
      every('sandbox-orphans', walk, 'the removal of orphaned sandboxes', async (round) => await this.#orphans(round)),
    ];
  }

  start(): void {
    for (const task of this.#tasks) task.start();
  }

  async stop(): Promise<void> {
    await Promise.all(this.#tasks.map(async (task) => await task.stop()));
  }

  /** A process may die between making a sandbox and opening its session, or between deleting the two. */
  async #orphans({ signal }: Round): Promise<void> {
    const { deps, queries } = this.#options;
    const before = timestamp(deps.clock() - deps.operationMs * 2);
    const { orphans, left, next } = await queries.walk(this.#walked, before);
    const failures: unknown[] = [];
    const meta = { actor: 'keeper', causation: 'session gone' };
    for (const one of left) {
      if (signal.aborted) return;
      await this.#free(one).catch((error: unknown) => failures.push(error));
    }
    for (const { tenant, sandboxId } of orphans) {
      if (signal.aborted) return;
      await removeIfOrphaned(deps, tenant, { sandboxId, meta }).catch((error: unknown) => failures.push(error));
    }
    this.#walked = next;
    if (failures.length > 0) throw failures[0];
  }

  /** The workspace of a sandbox that is gone holds bytes of its tenant for as long as a session names its files. */
  async #free(left: WorkspaceName): Promise<void> {
    const { deps, queries, isComplete } = this.#options;
    const { state } = await deps.quotas.load(quotaRef(left.tenant));
    if (heldBy(state, left.name) === 0 || (await this.#isUsed(left))) return;
    if ((await queries.hasParked()) || !(await isComplete())) return;
    if (!(await this.#isUsed(left))) await this.#freed(left);
  }

  async #freed({ tenant, name: workspace }: WorkspaceName): Promise<void> {
    await freeBytes(this.#options.deps, tenant, { workspace, meta: { actor: 'keeper', causation: 'workspace gone' } });
  }

  async #sweep({ signal }: Round): Promise<void> {
    const { deps, orphanMs } = this.#options;
    const before = deps.clock() - orphanMs;
    for await (const page of deps.objects.list()) {
      if (signal.aborted) return;
      const old = page.filter(({ owner, modifiedAtMs }) => owner.startsWith(WORKSPACE_PREFIX) && modifiedAtMs < before);
      if (old.length > 0) await this.#sweepPage(old);
    }
  }

  async #sweepPage(page: readonly StoredObject[]): Promise<void> {
    const { deps, queries, isComplete, logger } = this.#options;
    const { garbage: suspects } = await this.#garbageOf(page);
    if (suspects.length === 0) return;
    if ((await queries.hasParked()) || !(await isComplete())) return;
    // With the rows of everything that had happened when they were suspected.
    const { garbage, dead } = await this.#garbageOf(suspects);
    // While something of them is there to be found again.
    for (const workspace of dead) await this.#freed(workspace);
    for (const { tenant, owner, name } of garbage) await deps.objects.remove({ tenant, owner, name });
    if (garbage.length > 0) logger.info({ objects: garbage.length }, 'bytes that no workspace names were removed');
  }

  async #garbageOf(
    objects: readonly StoredObject[],
  ): Promise<{ readonly garbage: readonly StoredObject[]; readonly dead: readonly WorkspaceName[] }> {
    const { queries } = this.#options;
    const changes = new Map<string, WorkspaceName>();
    const workspaces = new Map<string, WorkspaceName>();
    for (const { tenant, owner, name } of objects) {
      const change = changeOf(`${owner}/${name}`);
      if (change !== null) changes.set(`${tenant} ${change}`, { tenant, name: change });
      workspaces.set(`${tenant} ${owner}`, { tenant, name: owner });
    }
    const named = await queries.unrecorded([...changes.values()]);
    const unrecorded = new Set(named.map(({ tenant, name }) => `${tenant} ${name}`));
    const dead = new Map<string, WorkspaceName>();
    for (const [key, workspace] of workspaces) if (!(await this.#isUsed(workspace))) dead.set(key, workspace);
    const garbage = objects.filter(({ tenant, owner, name }) => {
      const change = changeOf(`${owner}/${name}`);
      return dead.has(`${tenant} ${owner}`) || (change !== null && unrecorded.has(`${tenant} ${change}`));
    });
    return { garbage, dead: [...dead.values()] };
  }

  async #isUsed(workspace: WorkspaceName): Promise<boolean> {
    for (const use of await this.#options.queries.usesOf(workspace)) {
      if (await this.#isThere(workspace.tenant, use)) return true;
    }
    return false;
  }

  async #isThere(tenant: string, { workspace, sandboxId, sessionId }: UseRow): Promise<boolean> {
    const { sandboxes, sessions } = this.#options.deps;
    if (sessionId === null) {
      const { state } = await sandboxes.refresh(sandboxRef(tenant, sandboxId));
      if (state.status === 'absent') return false;
      return state.workspace === workspace || state.first?.workspaces.includes(workspace) === true;
    }
    const { state } = await sessions.refresh({ tenant, kind: 'session', id: sessionId });
    return state.status === 'open' && state.sandbox?.sandboxId === sandboxId;
  }
}

function within(ms: number, { min, max }: { readonly min: number; readonly max: number }): number {
  return Math.min(max, Math.max(min, ms));
}

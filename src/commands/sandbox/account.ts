import type { Rejection } from '../../domain/kernel/rejection.ts';
import { decideRelease, limitsOf } from '../../domain/quota/decide.ts';
import { decideHoldWorkspace, heldBy } from '../../domain/quota/workspaces.ts';
import type { HoldWorkspace } from '../../domain/quota/workspaces.ts';
import { quotaRef } from '../artifact/deps.ts';
import type { CommitMeta } from '../repository.ts';
import { sandboxRef } from './deps.ts';
import type { SandboxDeps } from './deps.ts';

interface Holding extends HoldWorkspace {
  readonly tenant: string;
  readonly meta: CommitMeta;
}

/**
 * Holds bytes of the tenant's total for a workspace, before what takes them is recorded; most changes find enough held. Null: they
 * are held. A process that dies before it records leaves more held than there is, until the workspace is gone.
 */
export async function holdBytes(deps: SandboxDeps, holding: Holding): Promise<Rejection | null> {
  const { tenant, workspace, bytes, meta } = holding;
  const ref = quotaRef(tenant);
  // What is held for a workspace only grows while it is there: an older fold never says too much.
  if (heldBy((await deps.quotas.load(ref)).state, workspace) >= bytes) return null;
  const outcome = await deps.loop.execute(deps.quotas, ref, {
    ...meta,
    decide: (quota) => decideHoldWorkspace(quota, { workspace, bytes }, limitsOf(quota, deps.defaults).totalBytes),
  });
  return outcome.kind === 'rejected' ? outcome : null;
}

interface Left {
  readonly workspace: string;
  readonly meta: CommitMeta;
}

/** Gives back what a workspace holds; nothing can name what is in it any more. */
export async function freeBytes(deps: SandboxDeps, tenant: string, { workspace, meta }: Left): Promise<void> {
  const ref = quotaRef(tenant);
  if (heldBy((await deps.quotas.refresh(ref)).state, workspace) === 0) return;
  await deps.loop.execute(deps.quotas, ref, { ...meta, decide: (quota) => decideRelease(quota, workspace) });
}

/**
 * After the deletion of a sandbox: gives back what it held, unless a session that worked in it is there, whose history names its files.
 * Forks name them too, but none outlives its parent. What this leaves is found by the sweeper (engine/workspace-sweeper.ts).
 */
export async function leaveWorkspace(
  deps: SandboxDeps,
  tenant: string,
  { sandboxId, sessions, ...left }: Left & { readonly sandboxId: string; readonly sessions: readonly string[] },
): Promise<void> {
  for (const id of sessions) {
    const { state } = await deps.sessions.refresh({ tenant, kind: 'session', id });
    if (state.status === 'open' && state.sandbox?.sandboxId === sandboxId) return;
  }
  await freeBytes(deps, tenant, left);
}

/** A change of files was not recorded. If its sandbox is gone, nothing else gives back what was held for it. */
export async function giveUpBytes(
  deps: SandboxDeps,
  tenant: string,
  { sandboxId, ...left }: Left & { readonly sandboxId: string },
): Promise<void> {
  const { state } = await deps.sandboxes.refresh(sandboxRef(tenant, sandboxId));
  if (state.status === 'open' && state.workspace === left.workspace) return;
  await freeBytes(deps, tenant, left);
}

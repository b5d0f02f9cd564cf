import type { Rejection } from '../../domain/kernel/rejection.ts';
import { decideDeleteSandbox, decideOpenSandbox, noSandbox } from '../../domain/sandbox/decide.ts';
import type { FilesRef } from '../../domain/sandbox/events.ts';
import { decideAdd, decideStrike } from '../../domain/sandbox/roster.ts';
import type { SandboxKind, SandboxSpec } from '../../domain/sandbox/spec.ts';
import type { OpenSandbox } from '../../domain/sandbox/state.ts';
import { canonicalJson } from '../../lib/canonical-json.ts';
import { faultPoint } from '../../lib/fault-points.ts';
import { newId } from '../../lib/ids.ts';
import { requireKnown } from '../../lib/older-nodes.ts';
import type { ArtifactReach } from '../artifact/deps.ts';
import type { Executed } from '../execute.ts';
import type { CommitMeta } from '../repository.ts';
import { giveUpBytes, leaveWorkspace } from './account.ts';
import { rosterRef, sandboxRef } from './deps.ts';
import type { SandboxDeps } from './deps.ts';
import { ifReachable, podRefusal, readyPod, volumeOf } from './pods.ts';
import { sourceFiles } from './source.ts';

/** Why the caller may not reach a sandbox; null: it may. */
export type SandboxReach = (sandbox: Pick<OpenSandbox, 'sandboxId' | 'subject' | 'owner'>) => Rejection | null;

export interface OpenSandboxInput extends CommitMeta {
  readonly tenant: string;
  readonly sandboxId: string;
  readonly kind: SandboxKind;
  /** Absent: whatever the existing sandbox has; nothing in particular for a new one. */
  readonly spec?: SandboxSpec | undefined;
  readonly subject: string | null;
  readonly labels?: Readonly<Record<string, string>> | undefined;
  /** The session that it is created for. */
  readonly owner: { readonly sessionId: string } | null;
  readonly outOfReach: SandboxReach;
  /** Of the artifact with its first files. */
  readonly artifactReach: ArtifactReach;
  /** Of a fork: what it starts with; undefined: what its source says. */
  readonly files?: FilesRef | null;
}

/**
 * Creates a sandbox or answers with the existing one. Its place in the tenant's roster is taken first.
 * @throws OlderNodesError
 */
export async function openSandbox(deps: SandboxDeps, input: OpenSandboxInput): Promise<Executed<null> | Rejection> {
  const { tenant, sandboxId, kind, spec, subject, labels, owner, outOfReach, actor, causation } = input;
  const ref = sandboxRef(tenant, sandboxId);
  const { state } = await deps.sandboxes.refresh(ref);
  if (state.status === 'open') {
    const refusal = outOfReach(state);
    if (refusal !== null) return refusal;
  } else {
    requireKnown(deps.isNew, ['sandboxes']);
    const unavailable = kind === 'pod' ? await podRefusal(deps, spec ?? {}) : null;
    if (unavailable !== null) return unavailable;
    const added = await takePlace(deps, tenant, { sandboxId, meta: { actor, causation } });
    if (added !== null) return added;
    await faultPoint('sandbox.added');
  }
  const workspace = newId('ws');
  const first = state.status === 'open' ? NO_FIRST : await firstFiles(deps, input, workspace);
  if (first.kind === 'rejected') return await giveUp(deps, input, first);
  const meta = { actor, causation };
  const wanted = canonicalJson(spec ?? {});
  const opened = await deps.loop.execute(deps.sandboxes, ref, {
    actor,
    causation,
    decide: (now) => {
      const refusal = now.status === 'open' ? outOfReach(now) : null;
      if (refusal !== null) return refusal;
      const { files, storedBytes } = first;
      const command = {
        ...{ sandboxId, kind, spec: spec ?? {}, subject, labels, owner },
        ...{ files, storedBytes, workspace },
      };
      const same = (there: OpenSandbox): boolean =>
        there.kind === kind && (spec === undefined || canonicalJson(there.spec) === wanted);
      return decideOpenSandbox(now, command, same);
    },
  });
  // The one that is there may be another's, made in the meantime.
  if (first.storedBytes > 0) await giveUpBytes(deps, tenant, { sandboxId, workspace, meta });
  return opened.kind === 'rejected' || kind === 'virtual' ? opened : await started(deps, input, opened);
}

/** A pod is running when its request is answered. If it cannot be now, the next call that needs it tries again. */
async function started<T extends Executed<null>>(
  deps: SandboxDeps,
  { tenant, sandboxId, actor, causation }: OpenSandboxInput,
  opened: T,
): Promise<T> {
  const { state } = await deps.sandboxes.load(sandboxRef(tenant, sandboxId));
  if (state.status === 'open')
    await ifReachable(async () => await readyPod(deps, { tenant, state, meta: { actor, causation } }));
  return opened;
}

const NO_FIRST = { kind: 'done', files: null, storedBytes: 0 } as const;

async function firstFiles(deps: SandboxDeps, input: OpenSandboxInput, workspace: string) {
  if (input.files !== undefined) return { ...NO_FIRST, files: input.files };
  const { tenant, spec, artifactReach, actor, causation } = input;
  const meta = { actor, causation };
  return await sourceFiles(deps, {
    tenant,
    source: spec?.source,
    reach: artifactReach,
    workspace,
    storedBytes: 0,
    meta,
  });
}

async function giveUp(
  deps: SandboxDeps,
  { tenant, sandboxId, actor, causation }: OpenSandboxInput,
  refusal: Rejection,
): Promise<Rejection> {
  await deps.loop.execute(deps.rosters, rosterRef(tenant), {
    ...{ actor, causation },
    decide: (roster) => decideStrike(roster, [sandboxId]),
  });
  return refusal;
}

/** A sandbox added this long ago that does not exist was abandoned by a process that died, ms. */
const PLACE_MS = 60_000;

/**
 * Takes a place of the roster; null: it was taken. When the roster is full, places whose sandboxes are gone are freed
 * first.
 */
async function takePlace(
  deps: SandboxDeps,
  tenant: string,
  { sandboxId, meta }: { readonly sandboxId: string; readonly meta: CommitMeta },
): Promise<Rejection | null> {
  const take = async () =>
    await deps.loop.execute(deps.rosters, rosterRef(tenant), {
      ...meta,
      decide: (roster) => decideAdd(roster, sandboxId, deps.sandboxesMax),
    });
  const first = await take();
  if (first.kind === 'done') return null;
  const { state } = await deps.rosters.load(rosterRef(tenant));
  const old = Object.entries(state.sandboxes).filter(([, at]) => Date.parse(at) < deps.clock() - PLACE_MS);
  const gone: string[] = [];
  for (const [id] of old) {
    await removeIfOrphaned(deps, tenant, { sandboxId: id, meta });
    if ((await deps.sandboxes.refresh(sandboxRef(tenant, id))).state.status === 'absent') gone.push(id);
  }
  if (gone.length === 0) return first;
  await strike(deps, tenant, { gone, meta });
  const second = await take();
  return second.kind === 'done' ? null : second;
}

async function strike(
  deps: SandboxDeps,
  tenant: string,
  { gone, meta }: { readonly gone: readonly string[]; readonly meta: CommitMeta },
): Promise<void> {
  await deps.loop.execute(deps.rosters, rosterRef(tenant), {
    ...meta,
    decide: (roster) => decideStrike(roster, gone),
  });
}

/** Removes a sandbox that was made for a session that does not exist, or has another one. */
export async function removeIfOrphaned(
  deps: SandboxDeps,
  tenant: string,
  { sandboxId, meta }: { readonly sandboxId: string; readonly meta: CommitMeta },
): Promise<void> {
  const { state } = await deps.sandboxes.refresh(sandboxRef(tenant, sandboxId));
  if (state.status === 'absent' || state.owner === null) return;
  const { state: session } = await deps.sessions.refresh({ tenant, kind: 'session', id: state.owner.sessionId });
  if (session.status === 'open' && session.sandbox?.sandboxId === sandboxId) return;
  await removeSandbox(deps, { tenant, sandboxId, outOfReach: () => null, ...meta });
}

export interface SandboxInput extends CommitMeta {
  readonly tenant: string;
  readonly sandboxId: string;
  readonly outOfReach: SandboxReach;
}

/** Deletes a sandbox that no turn runs on; this frees its place in the roster. */
export async function removeSandbox(
  deps: SandboxDeps,
  { tenant, sandboxId, outOfReach, actor, causation }: SandboxInput,
): Promise<Executed<unknown> | Rejection> {
  const ref = sandboxRef(tenant, sandboxId);
  const meta = { actor, causation };
  const ended = await endedHolder(deps, tenant, sandboxId);
  const { state: before } = await deps.sandboxes.load(ref);
  const outcome = await deps.loop.execute(deps.sandboxes, ref, {
    ...meta,
    decide: (state) => {
      const refusal = state.status === 'absent' ? noSandbox() : outOfReach(state);
      return refusal ?? decideDeleteSandbox(state, ended);
    },
  });
  if (outcome.kind === 'rejected') return outcome;
  await faultPoint('sandbox.deleted');
  // What this does not remove is found by the sweep of volumes.
  if (before.status === 'open' && before.machine !== null)
    await ifReachable(async () => await deps.pods.discard(volumeOf(tenant, before)));
  await strike(deps, tenant, { gone: [sandboxId], meta });
  if (before.status === 'open') {
    const { workspace, sessions } = before;
    await leaveWorkspace(deps, tenant, { sandboxId, workspace, sessions, meta });
  }
  return outcome;
}

/**
 * The turn that holds a sandbox, if it is known to have ended: its worker died before it released the sandbox, or is
 * about to release it. Null: no turn holds it, or a running one.
 */
export async function endedHolder(deps: SandboxDeps, tenant: string, sandboxId: string): Promise<string | null> {
  const { state } = await deps.sandboxes.refresh(sandboxRef(tenant, sandboxId));
  if (state.status === 'absent' || state.holder === null) return null;
  const { sessionId, turnId } = state.holder;
  const { state: session } = await deps.sessions.refresh({ tenant, kind: 'session', id: sessionId });
  return session.status === 'open' && session.turn?.turnId === turnId ? null : turnId;
}

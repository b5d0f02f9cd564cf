import { reject } from '../../domain/kernel/rejection.ts';
import type { Rejection } from '../../domain/kernel/rejection.ts';
import type { SessionSandbox } from '../../domain/session/events.ts';
import { virtualSpec } from '../../domain/sandbox/spec.ts';
import type { SandboxChoice } from '../../domain/sandbox/spec.ts';
import type { SandboxState } from '../../domain/sandbox/state.ts';
import type { ForkSandbox } from '../../domain/session/fork-events.ts';
import type { RecordPlace } from '../../domain/session/fork-state.ts';
import type { OpenSession } from '../../domain/session/state.ts';
import { newId } from '../../lib/ids.ts';
import type { AggregateRef } from '../../streams/subjects.ts';
import type { ArtifactReach } from '../artifact/deps.ts';
import type { CommitMeta } from '../repository.ts';
import { attachSession, detachSession } from './change-sandbox.ts';
import { filesAt } from './fork-files.ts';
import { openSandbox, removeSandbox } from './open-sandbox.ts';
import type { SandboxReach } from './open-sandbox.ts';
import { sandboxRef } from './deps.ts';
import type { SandboxDeps } from './deps.ts';

/** What a session says about its sandbox; undefined: what its agent says. */
export type WantedSandbox = false | { readonly id: string } | SandboxChoice | undefined;

export interface SessionSandboxInput extends CommitMeta {
  readonly tenant: string;
  readonly sessionId: string;
  readonly subject: string | null;
  readonly wanted: WantedSandbox;
  /** Of the agent. */
  readonly standard: SandboxChoice | undefined;
  /** Whether the caller may attach an existing sandbox. */
  readonly outOfReach: SandboxReach;
  readonly artifactReach: ArtifactReach;
}

/** How sessions get their sandboxes. */
export interface SessionSandboxes {
  readonly prepare: (input: SessionSandboxInput) => ReturnType<typeof prepareSandbox>;
  readonly leave: (input: LeaveInput) => Promise<void>;
  /** Makes the sandbox of a fork before the fork is recorded. */
  readonly fork: (input: ForkInput) => ReturnType<typeof forkSandbox>;
  /** Makes the sandbox that a recorded fork was promised, unless it is there. */
  readonly keepPromise: (input: PromisedInput) => Promise<Rejection | null>;
}

export function sessionSandboxes(deps: SandboxDeps): SessionSandboxes {
  return {
    prepare: async (input) => await prepareSandbox(deps, input),
    leave: async (input) => await leaveSandbox(deps, input),
    fork: async (input) => await forkSandbox(deps, input),
    keepPromise: async (input) => await makePromised(deps, input),
  };
}

export interface LeaveInput extends CommitMeta {
  readonly tenant: string;
  readonly sessionId: string;
  readonly sandbox: SessionSandbox;
}

/** The sandbox of a session that is about to be opened: found, or created. It exists before the session names it. */
async function prepareSandbox(
  deps: SandboxDeps,
  input: SessionSandboxInput,
): Promise<{ readonly kind: 'done'; readonly sandbox: SessionSandbox | undefined } | Rejection> {
  const { tenant, sessionId, subject, actor, causation, outOfReach, artifactReach } = input;
  const wanted = input.wanted === undefined ? input.standard : input.wanted;
  if (wanted === undefined || wanted === false) return { kind: 'done', sandbox: undefined };
  const meta = { actor, causation };
  if ('id' in wanted) {
    const { state } = await deps.sandboxes.refresh(sandboxRef(tenant, wanted.id));
    const foreign = state.status === 'open' && state.owner !== null && state.owner.sessionId !== sessionId;
    if (foreign && subject !== state.subject) return reject('not_found', 'No such sandbox.');
    const attached = await attachSession(deps, { tenant, sandboxId: wanted.id, outOfReach, sessionId, ...meta });
    return attached.kind === 'rejected' ? attached : { kind: 'done', sandbox: { sandboxId: wanted.id, own: false } };
  }
  const sandboxId = newId('sb');
  const made = await openSandbox(deps, {
    ...{ tenant, sandboxId, kind: wanted.kind, spec: wanted.spec, subject, owner: { sessionId } },
    ...{ outOfReach: () => null, artifactReach, ...meta },
  });
  return made.kind === 'rejected' ? made : { kind: 'done', sandbox: { sandboxId, own: true } };
}

/** The session was not opened, or is deleted: a sandbox that was made for it is deleted, and any other forgets it. */
async function leaveSandbox(deps: SandboxDeps, { tenant, sessionId, sandbox, ...meta }: LeaveInput): Promise<void> {
  const input = { tenant, sandboxId: sandbox.sandboxId, outOfReach: () => null, ...meta };
  if (sandbox.own) await removeSandbox(deps, input);
  else await detachSession(deps, { ...input, sessionId });
}

export interface ForkInput extends CommitMeta {
  readonly parent: { readonly ref: AggregateRef; readonly session: OpenSession };
  readonly childId: string;
  /** The last record that the fork inherits; null: everything up to now. */
  readonly at: RecordPlace | null;
}

/**
 * A sandbox for a fork, with the files as they were at its record. Also where the parent shares one: the fork gets its own. What
 * a pod has on its volume is not part of the history: the fork's begins with what the parent's began with. None where the
 * parent has none; of a pod that was deleted, an empty one as the session's agent asks for.
 */
async function forkSandbox(
  deps: SandboxDeps,
  { parent, childId, at, actor, causation }: ForkInput,
): Promise<{ readonly kind: 'done'; readonly sandbox: ForkSandbox | undefined } | Rejection> {
  const { ref, session } = parent;
  if (session.sandbox === undefined) return { kind: 'done', sandbox: undefined };
  const { state: box } = await deps.sandboxes.refresh(sandboxRef(ref.tenant, session.sandbox.sandboxId));
  const sandboxId = newId('sb');
  const pod = podOf(box, session);
  const sandbox: ForkSandbox =
    pod === null
      ? {
          sandboxId,
          spec: virtualSpec.parse(box.status === 'open' ? box.spec : {}),
          files: await filesAt(deps, parent, at),
        }
      : { sandboxId, kind: 'pod', ...pod };
  const { subject } = session;
  const refusal = await makePromised(deps, {
    ...{ tenant: ref.tenant, sessionId: childId, subject, sandbox, actor, causation },
  });
  return refusal ?? { kind: 'done', sandbox };
}

/** Null: it is a virtual one. */
function podOf(box: SandboxState, { manifest }: OpenSession): Pick<ForkSandbox, 'spec' | 'files'> | null {
  if (box.status === 'open') return box.kind === 'pod' ? { spec: box.spec, files: box.first } : null;
  // Deleted: which kind it was is known from the agent alone, and what it began with is gone.
  if (manifest.sandbox?.kind !== 'pod') return null;
  const { source: _, ...spec } = manifest.sandbox.spec ?? {};
  return { spec, files: null };
}

export interface PromisedInput extends CommitMeta {
  readonly tenant: string;
  /** Of the fork. */
  readonly sessionId: string;
  readonly subject: string | null;
  readonly sandbox: ForkSandbox;
}

async function makePromised(
  deps: SandboxDeps,
  { tenant, sessionId, subject, sandbox, actor, causation }: PromisedInput,
): Promise<Rejection | null> {
  const { sandboxId, kind = 'virtual', spec, files } = sandbox;
  const made = await openSandbox(deps, {
    ...{ tenant, sandboxId, kind, spec, subject, files, owner: { sessionId }, actor, causation },
    ...{ outOfReach: () => null, artifactReach: () => null },
  });
  return made.kind === 'rejected' ? made : null;
}

import { exportTree } from '../commands/artifact/export-tree.ts';
import { sandboxRef } from '../commands/sandbox/deps.ts';
import type { SandboxDeps } from '../commands/sandbox/deps.ts';
import { podFilesBelow } from '../commands/sandbox/pod-exports.ts';
import { endedHolder } from '../commands/sandbox/open-sandbox.ts';
import type { Rejection } from '../domain/kernel/rejection.ts';
import { UNKNOWN_MEDIA_TYPE } from '../domain/artifact/names.ts';
import type { StoredFile } from '../domain/artifact/tree.ts';
import { holderOf } from '../domain/sandbox/decide.ts';
import { filesBelow } from '../domain/sandbox/manifest.ts';
import { statusOf } from '../domain/sandbox/shown.ts';
import type { OpenSandbox } from '../domain/sandbox/state.ts';
import type { OpenSession } from '../domain/session/state.ts';
import { newArtifactRefusal } from '../domain/session/artifacts.ts';
import * as process from '../domain/turn/process.ts';
import { rootOf } from '../domain/turn/state.ts';
import type { ActiveTurn } from '../domain/turn/state.ts';
import type { OutputsEnd } from '../domain/turn/steps/outputs.ts';
import { firstOf } from '../lib/abort.ts';
import { faultPoint } from '../lib/fault-points.ts';
import { mediaTypeOf } from '../lib/media-type.ts';
import type { AggregateRef } from '../streams/subjects.ts';
import { handBack, isOurs, whileWanted } from './effect.ts';
import type { EffectDeps } from './effect.ts';
import { turnStep } from './turn-step.ts';
import { whileAway } from './while-away.ts';

/** A turn that is about to complete, and the fold that says so. */
export interface CompletingTurn {
  readonly ref: AggregateRef;
  readonly session: OpenSession;
  readonly turn: ActiveTurn;
}

/** The directory of a workspace that is kept as an artifact, and the artifact's name. */
const OUTPUTS = 'outputs';

/**
 * Keeps what a session's sandbox has in `outputs` as a folder artifact before the turn completes. The version names the
 * bytes where the workspace has them. A worker that takes over does it again: one turn makes one version at most.
 */
export class OutputsExporter {
  readonly #steps: EffectDeps;
  readonly #deps: SandboxDeps;
  /** Aborted when a stopping worker has waited long enough. */
  readonly #givingUp: AbortSignal;

  constructor(steps: EffectDeps, deps: SandboxDeps, givingUp: AbortSignal) {
    this.#steps = steps;
    this.#deps = deps;
    this.#givingUp = givingUp;
  }

  /** Exports and records it. Returns with nothing recorded when the turn no longer waits for it. */
  async run(completing: CompletingTurn): Promise<void> {
    const { ref, turn } = completing;
    await whileWanted(this.#steps, { ref, turn, isWanted: (state) => waits(state, turn) }, async ({ unwanted }) => {
      const ended = firstOf([unwanted, this.#givingUp]);
      try {
        const trying = { logger: this.#steps.logger, session: ref.id, signal: ended.signal };
        const end = await whileAway(trying, async () => await this.#attempt(completing, ended.signal));
        await faultPoint('outputs.exported');
        if (end !== null) await this.#settle(completing, end);
        else if (!unwanted.aborted) await handBack(this.#steps, ref);
      } finally {
        ended.release();
      }
    });
  }

  async #attempt({ ref, session, turn }: CompletingTurn, signal: AbortSignal): Promise<OutputsEnd> {
    const { turnId } = turn;
    const nothing: OutputsEnd = { turnId, version: 0, refused: null };
    if (session.sandbox === undefined) return nothing;
    const { sandboxId } = session.sandbox;
    const box = await this.#free(ref.tenant, { sandboxId, turnId });
    if (box === null) return nothing;
    const { tenant } = ref;
    const causation = turnId;
    const actor = `worker:${this.#steps.workerId}`;
    const meta = { actor, causation };
    const files =
      box.machine === null
        ? await this.#kept(tenant, box)
        : await podFilesBelow(this.#deps, { tenant, state: box, under: OUTPUTS, meta });
    if ('kind' in files) return refusedOutputs(turnId, { box, refusal: files });
    const { createdPosition: sessionPosition, subject, agentId } = session;
    const outcome = await exportTree(this.#deps, {
      ...{ tenant, name: OUTPUTS, files, turnId, signal },
      owner: { sessionId: ref.id, sessionPosition, subject, agentId },
      refusesNew: newArtifactRefusal(session),
      ...{ actor, causation },
    });
    if (outcome.kind === 'done') return { turnId, version: outcome.version, refused: null };
    this.#steps.logger.warn({ session: ref.id, code: outcome.code }, 'the outputs of a sandbox were refused');
    return refusedOutputs(turnId, { box, refusal: outcome });
  }

  /** Files of a virtual sandbox stay where they are. */
  async #kept(tenant: string, box: OpenSandbox): Promise<readonly StoredFile[]> {
    const kept = await this.#deps.workspaces.load(tenant, box.files);
    return filesBelow(kept.manifest, OUTPUTS).map(({ path, size, sha256 }) => {
      const contentType = mediaTypeOf(path) ?? UNKNOWN_MEDIA_TYPE;
      return { path, size, sha256, contentType, object: kept.objectOf(sha256) };
    });
  }

  /** Null: it does not exist, or another turn is changing its files. */
  async #free(
    tenant: string,
    { sandboxId, turnId }: { readonly sandboxId: string; readonly turnId: string },
  ): Promise<OpenSandbox | null> {
    const ended = await endedHolder(this.#deps, tenant, sandboxId);
    const { state } = await this.#deps.sandboxes.load(sandboxRef(tenant, sandboxId));
    if (state.status === 'absent') return null;
    const holder = holderOf(state, ended);
    return holder === null || holder.turnId === turnId ? state : null;
  }

  async #settle({ ref, turn }: CompletingTurn, end: OutputsEnd): Promise<void> {
    await turnStep(this.#steps, { ref, causation: 'outputs' }, (draft, context) => {
      if (isOurs(draft.state, turn)) process.settleExport(draft, end, context);
    });
  }
}

function refusedOutputs(
  turnId: string,
  { box, refusal }: { readonly box: OpenSandbox; readonly refusal: Rejection },
): OutputsEnd {
  const reason = `outputs were not exported: ${refusal.code}: ${refusal.message}`;
  return { turnId, version: 0, refused: { sandboxId: box.sandboxId, state: statusOf(box), reason } };
}

function waits(state: OpenSession | { readonly status: 'absent' }, { turnId }: ActiveTurn): boolean {
  if (state.status === 'absent' || state.turn?.turnId !== turnId) return false;
  return rootOf(state.turn).outputs === 'requested';
}

import { sandboxRef } from '../commands/sandbox/deps.ts';
import { readyPod } from '../commands/sandbox/pods.ts';
import type { ReadyPod } from '../commands/sandbox/pods.ts';
import type { Rejection } from '../domain/kernel/rejection.ts';
import { decideRecordCall } from '../domain/sandbox/decide.ts';
import type { Recorded } from '../domain/sandbox/decide.ts';
import { decideBeginCall } from '../domain/sandbox/decide-pod.ts';
import type { CallStart } from '../domain/sandbox/decide-pod.ts';
import type { ExecFigures, ToolOutcome } from '../domain/sandbox/events.ts';
import { podBounds } from '../domain/sandbox/pod.ts';
import type { OpenSandbox } from '../domain/sandbox/state.ts';
import { looksOnly } from '../domain/sandbox/tools.ts';
import { SandboxUnavailableError, VolumeLostError } from '../drivers/sandbox/port.ts';
import type { SandboxAnswer } from '../drivers/sandbox/port.ts';
import { faultPoint } from '../lib/fault-points.ts';
import { inputsOf } from './message-inputs.ts';
import { putInputs, wantsInputs } from './pod-inputs.ts';
import { agentOf, figuresOf, outcomeOf } from './sandbox-call.ts';
import type { Execution, SandboxCallDeps, WantedSandboxCall } from './sandbox-call.ts';

const NOTHING = { durationMs: 0, queuedMs: 0, cpuMs: 0, bytesWritten: 0 };
const LOST =
  'the node that ran the command is gone; it may have run in part, or to its end. See what it has done before you run it again';

interface OnPod {
  readonly state: OpenSandbox;
  readonly ready: ReadyPod;
}

/** A recorded call, and what people should know of the files of its message; null: nothing. */
export type PodRecorded = Recorded & { readonly note: string | null };

/**
 * Runs calls in pods. A command of a pod may have done anything, so it is made once: that it begins is recorded before it
 * does, and one without a recorded end is uncertain, not repeated.
 */
export class PodCaller {
  readonly #deps: SandboxCallDeps;
  readonly #actor: string;
  /** Calls that are recorded as begun, of which this worker knows that they did not. */
  readonly #notBegun = new Set<string>();

  constructor(deps: SandboxCallDeps, actor: string) {
    this.#deps = deps;
    this.#actor = actor;
  }

  /** The recorded end of a call. @throws SandboxUnavailableError, the signal's reason, UnavailableError */
  async execute(wanted: WantedSandboxCall, execution: Execution): Promise<PodRecorded | Rejection> {
    const pod = await this.#ready(wanted, execution);
    if (typeof pod === 'string') return noted(await this.#record(wanted, execution, gone(pod)), null);
    const note = await this.#inputs(wanted, pod, execution.signal);
    return noted(await this.#once(wanted, execution, pod), note);
  }

  /** A text: why it cannot be had. */
  async #ready({ ref, turn }: WantedSandboxCall, { sandboxId }: Execution): Promise<OnPod | string> {
    const { sandboxes: deps } = this.#deps;
    const { state } = await deps.sandboxes.load(sandboxRef(ref.tenant, sandboxId));
    if (state.status === 'absent') return 'the sandbox is not there any more';
    const meta = { actor: this.#actor, causation: turn.turnId };
    const ready = await readyPod(deps, { tenant: ref.tenant, state, meta });
    return ready.kind === 'rejected' ? ready.message : { state, ready };
  }

  /** Puts the files of the message there before the first call of the turn. */
  async #inputs(
    { ref, session, turn }: WantedSandboxCall,
    { state, ready }: OnPod,
    signal: AbortSignal,
  ): Promise<string | null> {
    if (!wantsInputs(state)) return null;
    const pod = { tenant: ref.tenant, box: state, volume: ready.volume, signal };
    return await putInputs(this.#deps.sandboxes, pod, inputsOf(session, turn)).catch((error: unknown) => {
      // The call finds that out by itself.
      if (error instanceof VolumeLostError) return null;
      throw error;
    });
  }

  async #once(wanted: WantedSandboxCall, execution: Execution, pod: OnPod): Promise<Recorded | Rejection> {
    const { tool } = execution;
    const start = looksOnly(tool.name) ? ({ kind: 'begins' } as const) : await this.#begin(wanted, execution);
    if (start.kind === 'rejected') return start;
    if (start.kind === 'recorded') return { ...start.call, files: null };
    if (start.kind === 'begun') return await this.#record(wanted, execution, uncertain());
    const answer = await this.#answer(wanted, execution, pod);
    await faultPoint('sandbox.executed');
    return await this.#record(wanted, execution, answer);
  }

  async #begin({ ref, turn, call }: WantedSandboxCall, { sandboxId, held }: Execution): Promise<CallStart | Rejection> {
    const { loop, sandboxes } = this.#deps.sandboxes;
    const again = this.#notBegun.delete(call.callId);
    const begun = { epoch: held.epoch, turnId: turn.turnId, callId: call.callId };
    const outcome = await loop.execute(sandboxes, sandboxRef(ref.tenant, sandboxId), {
      ...this.#meta(turn.turnId),
      decide: (state) => decideBeginCall(state, begun, again),
    });
    await faultPoint('sandbox.begun');
    return outcome.kind === 'rejected' ? outcome : outcome.reply;
  }

  async #answer(
    wanted: WantedSandboxCall,
    { tool, held, signal }: Execution,
    { state, ready }: OnPod,
  ): Promise<SandboxAnswer> {
    const { sandboxes: deps, network } = this.#deps;
    const limits = podBounds(state.spec);
    const fence = { hostEpoch: state.machine?.hostEpoch ?? 1, epoch: held.epoch };
    const { volume } = ready;
    const { fileBytes } = deps.workspaceLimits;
    const way = network?.(wanted, state)?.pod ?? null;
    try {
      return await deps.pods.run({ volume, tool, limits, fileBytes, fence, network: way }, signal);
    } catch (error) {
      if (error instanceof VolumeLostError) return gone(error.message);
      // It says that nothing has begun.
      if (error instanceof SandboxUnavailableError && !signal.aborted) this.#notBegun.add(wanted.call.callId);
      throw error;
    }
  }

  async #record(
    wanted: WantedSandboxCall,
    { tool, sandboxId, held }: Execution,
    answer: SandboxAnswer,
  ): Promise<Recorded | Rejection> {
    const { sandboxes: deps, onExec } = this.#deps;
    const exec: ExecFigures = figuresOf(tool, answer);
    const outcome: ToolOutcome = outcomeOf(answer);
    const { ref, turn, call } = wanted;
    const { callId } = call;
    const { turnId } = turn;
    const recorded = await deps.loop.execute(deps.sandboxes, sandboxRef(ref.tenant, sandboxId), {
      ...this.#meta(turnId),
      decide: (now) =>
        decideRecordCall(now, {
          ...{ epoch: held.epoch, sessionId: ref.id, turnId, callId, agentId: agentOf(wanted) },
          ...{ exec, outcome, files: null, storedBytes: 0 },
        }),
    });
    await faultPoint('sandbox.recorded');
    if (recorded.kind === 'rejected') return recorded;
    onExec?.(exec);
    return { ...recorded.reply, files: null };
  }

  #meta(turnId: string) {
    return { actor: this.#actor, causation: turnId, urgent: true as const };
  }
}

function noted(recorded: Recorded | Rejection, note: string | null): PodRecorded | Rejection {
  return 'kind' in recorded ? recorded : { ...recorded, note };
}

/** Whether a recorded call is one whose worker died: no driver ends one so. */
export function isLostCall({ outcome, durationMs, cpuMs }: ExecFigures): boolean {
  return outcome === 'killed' && durationMs === 0 && cpuMs === 0;
}

function uncertain(): SandboxAnswer {
  return { outcome: 'killed', code: 'sandbox_lost', message: LOST, usage: NOTHING };
}

function gone(why: string): SandboxAnswer {
  return { outcome: 'failed', code: 'sandbox_lost', message: why, usage: NOTHING };
}

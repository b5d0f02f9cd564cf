import { sandboxRef } from '../commands/sandbox/deps.ts';
import type { SandboxDeps } from '../commands/sandbox/deps.ts';
import { endedHolder } from '../commands/sandbox/open-sandbox.ts';
import type { Rejection } from '../domain/kernel/rejection.ts';
import { decideHold, decideRecordCall, decideRelease, recordedCall } from '../domain/sandbox/decide.ts';
import type { Held, Recorded } from '../domain/sandbox/decide.ts';
import type { ExecFigures, FilesRef, ToolOutcome } from '../domain/sandbox/events.ts';
import { SANDBOX_TOOL_INPUTS } from '../domain/sandbox/tools.ts';
import type { SandboxToolCall } from '../domain/sandbox/tools.ts';
import type { SessionSandbox } from '../domain/session/events.ts';
import type { OpenSession, SessionState } from '../domain/session/state.ts';
import * as process from '../domain/turn/process.ts';
import type { ActiveTurn } from '../domain/turn/state.ts';
import type { SandboxCallEnd } from '../domain/turn/steps/sandbox-tools.ts';
import type { OpenSandboxCall } from '../domain/turn/thread.ts';
import { SandboxUnavailableError } from '../drivers/sandbox/port.ts';
import type { SandboxAnswer, SandboxDriver } from '../drivers/sandbox/port.ts';
import { firstOf } from '../lib/abort.ts';
import { backoffMs, delay } from '../lib/backoff.ts';
import { faultPoint } from '../lib/fault-points.ts';
import { isUnavailableError } from '../lib/unavailable.ts';
import type { AggregateRef } from '../streams/subjects.ts';
import { handBack, whileWanted } from './effect.ts';
import type { EffectDeps } from './effect.ts';
import { turnStep } from './turn-step.ts';

export interface SandboxCallDeps {
  readonly sandboxes: SandboxDeps;
  readonly driver: SandboxDriver;
  /** Called with each call that a sandbox has carried out, for the metrics. */
  readonly onExec?: (exec: ExecFigures) => void;
}

/** A call that is to be made, and the fold that requires it. */
export interface WantedSandboxCall {
  readonly ref: AggregateRef;
  readonly session: OpenSession;
  readonly turn: ActiveTurn;
  readonly call: OpenSandboxCall;
}

/** Between two checks of a sandbox that another turn holds, or of an unavailable store or driver, ms. */
const RETRY = { baseMs: 50, capMs: 1_000 };
/** Characters of a script that the history shows. */
const COMMAND_SHOWN = 500;

type Ran = NonNullable<SandboxCallEnd['ran']>;

/**
 * Runs calls of built-in tools in the sandbox of their session. A call's result and the files it leaves are recorded in
 * one commit of the sandbox, and then in the session; a worker that takes over finds that commit, or makes the call
 * again.
 */
export class SandboxCaller {
  readonly #steps: EffectDeps;
  readonly #deps: SandboxCallDeps;
  /** Aborted when a stopping worker has waited long enough. */
  readonly #givingUp: AbortSignal;

  constructor(steps: EffectDeps, deps: SandboxCallDeps, givingUp: AbortSignal) {
    this.#steps = steps;
    this.#deps = deps;
    this.#givingUp = givingUp;
  }

  /** Makes the call and records its end. Returns with nothing recorded when the turn no longer needs it. */
  async run(wanted: WantedSandboxCall): Promise<void> {
    const { ref, turn, call } = wanted;
    const isWanted = (state: SessionState): boolean => isOpen(state, call.callId);
    await whileWanted(this.#steps, { ref, turn, isWanted }, async ({ unwanted }) => {
      const ended = firstOf([unwanted, this.#givingUp]);
      try {
        const end = await this.#untilDone(wanted, ended.signal);
        if (end !== null) await this.#settle(ref, end);
        else if (!unwanted.aborted) await handBack(this.#steps, ref);
      } finally {
        ended.release();
      }
    });
  }

  /**
   * Releases the sandbox of a session whose turn has ended; another turn that needs it finds out by itself, a little
   * later. Never throws.
   */
  async leave(ref: AggregateRef): Promise<void> {
    try {
      const { state: session } = await this.#steps.sessions.load(ref);
      if (session.status === 'open' && session.sandbox !== undefined)
        await this.#release(ref, session, session.sandbox);
    } catch (error) {
      this.#steps.logger.warn({ err: error, session: ref.id }, 'a sandbox could not be given back');
    }
  }

  async #release({ tenant, id }: AggregateRef, { turn }: OpenSession, { sandboxId }: SessionSandbox): Promise<void> {
    const { loop, sandboxes } = this.#deps.sandboxes;
    const box = sandboxRef(tenant, sandboxId);
    const { state } = await sandboxes.load(box);
    const holder = state.status === 'open' ? state.holder : null;
    if (holder === null || holder.sessionId !== id || holder.turnId === turn?.turnId) return;
    const { turnId } = holder;
    await loop.execute(sandboxes, box, { ...this.#meta(turnId), decide: (now) => decideRelease(now, turnId) });
  }

  /** Null: it was ended early. Unavailable dependencies are waited for: such a call has left nothing behind. */
  async #untilDone(wanted: WantedSandboxCall, signal: AbortSignal): Promise<SandboxCallEnd | null> {
    for (let attempt = 0; !signal.aborted; attempt++) {
      try {
        return await this.#attempt(wanted, signal);
      } catch (error) {
        if (signal.aborted) return null;
        const isAway = error instanceof SandboxUnavailableError || isUnavailableError(error, 'objects');
        if (!isAway) throw error;
        this.#steps.logger.warn({ err: error, session: wanted.ref.id }, 'a call of a sandbox waits for what it needs');
        await delay(backoffMs(attempt, RETRY), signal);
      }
    }
    return null;
  }

  async #attempt(wanted: WantedSandboxCall, signal: AbortSignal): Promise<SandboxCallEnd | null> {
    const { ref, session, turn, call } = wanted;
    const { callId } = call;
    const { turnId } = turn;
    if (session.sandbox === undefined) return failedCall(callId, 'sandbox_lost', 'The session has no sandbox.');
    const tool = parsedCall(call);
    if (tool === null) return failedCall(callId, 'tool_input_invalid', 'The input has a text that cannot be stored.');
    const { sandboxId } = session.sandbox;
    const held = await this.#hold(wanted, sandboxId, signal);
    if (held === null) return null;
    if (held.kind === 'rejected') return failedCall(callId, 'sandbox_lost', held.message);
    const { state } = await this.#deps.sandboxes.sandboxes.load(sandboxRef(ref.tenant, sandboxId));
    const known = state.status === 'open' ? recordedCall(state, { turnId, callId }) : null;
    const recorded =
      known === null
        ? await this.#execute(wanted, { tool, sandboxId, held, signal })
        : { ...known, files: state.status === 'open' ? state.files : null };
    if ('kind' in recorded) return failedCall(callId, 'sandbox_lost', recorded.message);
    const { outcome, exec, files } = recorded;
    const ran: Ran = { sandboxId, exec, files, begins: held.begins };
    return { callId, outcome, ran };
  }

  /** Takes the sandbox for the turn as soon as no other turn has it. Null: the call was ended first. */
  async #hold(
    { ref, turn }: WantedSandboxCall,
    sandboxId: string,
    signal: AbortSignal,
  ): Promise<HeldSandbox | Rejection | null> {
    const { loop, sandboxes } = this.#deps.sandboxes;
    const box = sandboxRef(ref.tenant, sandboxId);
    const by = { sessionId: ref.id, turnId: turn.turnId, segment: turn.epoch };
    for (let attempt = 0; !signal.aborted; attempt++) {
      const ended = await endedHolder(this.#deps.sandboxes, ref.tenant, sandboxId);
      const outcome = await loop.execute(sandboxes, box, {
        ...this.#meta(turn.turnId),
        decide: (state) => decideHold(state, by, ended),
      });
      if (outcome.kind === 'done') return { kind: 'held', ...outcome.reply };
      if (outcome.code !== 'sandbox_busy') return outcome;
      await delay(backoffMs(attempt, RETRY), signal);
    }
    return null;
  }

  async #execute(
    { ref, turn, call }: WantedSandboxCall,
    { tool, sandboxId, held, signal }: Execution,
  ): Promise<Recorded | Rejection> {
    const { sandboxes: deps, driver, onExec } = this.#deps;
    const { tenant } = ref;
    const contents = deps.workspaces.contents(tenant);
    const box = sandboxRef(tenant, sandboxId);
    const { state } = await deps.sandboxes.load(box);
    const spec = state.status === 'open' ? state.spec : {};
    const python = 'python' in spec && spec.python === true;
    const files = await deps.workspaces.manifest(tenant, state.status === 'open' ? state.files : null);
    const limits = deps.workspaceLimits;
    const answer = await driver.run({ tenant, tool, files, contents, limits, python }, signal);
    const exec = figuresOf(tool, answer);
    const after: FilesRef | null =
      answer.outcome === 'completed' && answer.files !== null ? await deps.workspaces.put(tenant, answer.files) : null;
    await faultPoint('sandbox.executed');
    const outcome = await deps.loop.execute(deps.sandboxes, box, {
      ...this.#meta(turn.turnId),
      decide: (now) =>
        decideRecordCall(now, {
          ...{ epoch: held.epoch, sessionId: ref.id, turnId: turn.turnId, callId: call.callId },
          ...{ exec, outcome: outcomeOf(answer), files: after, storedBytes: after === null ? 0 : contents.written() },
        }),
    });
    await faultPoint('sandbox.recorded');
    if (outcome.kind === 'rejected') return outcome;
    onExec?.(exec);
    return outcome.reply;
  }

  async #settle(ref: AggregateRef, end: SandboxCallEnd): Promise<void> {
    await turnStep(this.#steps, { ref, causation: end.callId }, (draft, context) => {
      if (isOpen(draft.state, end.callId)) process.settleSandbox(draft, end, context);
    });
  }

  #meta(turnId: string) {
    return { actor: `worker:${this.#steps.workerId}`, causation: turnId, urgent: true as const };
  }
}

interface HeldSandbox extends Held {
  readonly kind: 'held';
}

interface Execution {
  readonly tool: SandboxToolCall;
  readonly sandboxId: string;
  readonly held: HeldSandbox;
  readonly signal: AbortSignal;
}

function isOpen(state: SessionState, callId: string): boolean {
  if (state.status !== 'open' || state.turn === null) return false;
  return Object.values(state.turn.threads).some(({ sandboxCalls }) =>
    sandboxCalls.some((call) => call.callId === callId),
  );
}

function failedCall(callId: string, code: string, message: string): SandboxCallEnd {
  return { callId, outcome: { kind: 'failed', code, message }, ran: null };
}

/** Its input was checked against the schema when it was opened; null: it has a text that no store can hold. */
function parsedCall({ name, input }: OpenSandboxCall): SandboxToolCall | null {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the name was declared from this table's keys
  const known = name as SandboxToolCall['name'];
  const parsed = SANDBOX_TOOL_INPUTS[known].safeParse(input);
  if (!parsed.success) return null;
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- parsed by the schema of this very name
  return { name: known, input: parsed.data } as SandboxToolCall;
}

function outcomeOf(answer: SandboxAnswer): ToolOutcome {
  if (answer.outcome === 'completed') return { kind: 'completed', output: answer.result };
  return { kind: 'failed', code: answer.code, message: answer.message };
}

function figuresOf({ name, input }: SandboxToolCall, { outcome, usage, ...answer }: SandboxAnswer): ExecFigures {
  const { durationMs, cpuMs, bytesWritten } = usage;
  const result: object = 'result' in answer ? answer.result : {};
  return {
    tool: name,
    ...('command' in input ? { command: [...input.command].slice(0, COMMAND_SHOWN).join('') } : {}),
    ...('path' in input && input.path !== undefined ? { path: input.path } : {}),
    ...('exitCode' in result && typeof result.exitCode === 'number' ? { exitCode: result.exitCode } : {}),
    ...{ durationMs: Math.round(durationMs), cpuMs: Math.round(cpuMs), bytesWritten, outcome },
  };
}

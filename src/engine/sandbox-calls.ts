import { giveUpBytes } from '../commands/sandbox/account.ts';
import { sandboxRef } from '../commands/sandbox/deps.ts';
import { endedHolder } from '../commands/sandbox/open-sandbox.ts';
import type { Rejection } from '../domain/kernel/rejection.ts';
import {
  decideHold,
  decideRecordCall,
  decideRelease,
  holderOf,
  noSandbox,
  recordedCall,
} from '../domain/sandbox/decide.ts';
import type { Held, Recorded } from '../domain/sandbox/decide.ts';
import type { SandboxEvent } from '../domain/sandbox/events.ts';
import type { SandboxState } from '../domain/sandbox/state.ts';
import { SANDBOX_TOOL_INPUTS } from '../domain/sandbox/tools.ts';
import type { SandboxToolCall } from '../domain/sandbox/tools.ts';
import type { SessionSandbox } from '../domain/session/events.ts';
import type { OpenSession, SessionState } from '../domain/session/state.ts';
import * as process from '../domain/turn/process.ts';
import type { ActiveTurn } from '../domain/turn/state.ts';
import type { SandboxCallEnd } from '../domain/turn/steps/sandbox-tools.ts';
import type { OpenSandboxCall } from '../domain/turn/thread.ts';
import { firstOf } from '../lib/abort.ts';
import { backoffMs, delay } from '../lib/backoff.ts';
import { faultPoint } from '../lib/fault-points.ts';
import type { AggregateRef } from '../streams/subjects.ts';
import { handBack, isOurs, whileWanted } from './effect.ts';
import type { EffectDeps } from './effect.ts';
import { inputsOf, storeInputs } from './message-inputs.ts';
import type { Inputs } from './message-inputs.ts';
import { isLostCall, PodCaller } from './pod-calls.ts';
import { agentOf, figuresOf, keptAnswer, outcomeOf } from './sandbox-call.ts';
import type { Execution, HeldSandbox, SandboxCallDeps, WantedSandboxCall } from './sandbox-call.ts';
import { turnStep } from './turn-step.ts';
import { whileAway } from './while-away.ts';

/** Between two checks of a sandbox that another turn holds, ms. */
const RETRY = { baseMs: 50, capMs: 1_000 };
type Ran = NonNullable<SandboxCallEnd['ran']>;

/**
 * Runs calls of built-in tools in the sandbox of their session. A call's result and the files it leaves are recorded in
 * one commit of the sandbox, and then in the session; a worker that takes over finds that commit, or makes the call
 * again.
 */
export class SandboxCaller {
  readonly #steps: EffectDeps;
  readonly #deps: SandboxCallDeps;
  readonly #pods: PodCaller;
  /** Aborted when a stopping worker has waited long enough. */
  readonly #givingUp: AbortSignal;

  constructor(steps: EffectDeps, deps: SandboxCallDeps, givingUp: AbortSignal) {
    this.#steps = steps;
    this.#deps = deps;
    this.#pods = new PodCaller(deps, `worker:${steps.workerId}`);
    this.#givingUp = givingUp;
  }

  /** Makes the call and records its end. Returns with nothing recorded when the turn no longer needs it. */
  async run(wanted: WantedSandboxCall): Promise<void> {
    const { ref, turn, call } = wanted;
    const isWanted = (state: SessionState): boolean => isOpen(state, call.callId);
    await whileWanted(this.#steps, { ref, turn, isWanted }, async ({ unwanted }) => {
      const ended = firstOf([unwanted, this.#givingUp]);
      try {
        const trying = { logger: this.#steps.logger, session: ref.id, signal: ended.signal };
        const end = await whileAway(trying, async () => await this.#attempt(wanted, ended.signal));
        if (end !== null) await this.#settle(wanted, end);
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
    const isPod = state.status === 'open' && state.machine !== null;
    const execution = { tool, sandboxId, held, signal };
    const recorded =
      known === null
        ? await (isPod ? this.#pods.execute(wanted, execution) : this.#execute(wanted, execution))
        : { ...known, files: state.status === 'open' ? state.files : null };
    if ('kind' in recorded) return failedCall(callId, 'sandbox_lost', recorded.message);
    const { outcome, exec, files, note = held.note }: Recorded & { readonly note?: string | null } = recorded;
    const ran: Ran = {
      sandboxId,
      exec,
      files,
      begins: held.begins,
      note,
      ...(isLostCall(exec) ? { isLost: true } : {}),
    };
    return { callId, outcome, ran };
  }

  /** Takes the sandbox for the turn as soon as no other turn has it. Null: the call was ended first. */
  async #hold(
    { ref, session, turn }: WantedSandboxCall,
    sandboxId: string,
    signal: AbortSignal,
  ): Promise<HeldSandbox | Rejection | null> {
    const { loop, sandboxes } = this.#deps.sandboxes;
    const box = sandboxRef(ref.tenant, sandboxId);
    const by = { sessionId: ref.id, turnId: turn.turnId, segment: turn.epoch };
    for (let attempt = 0; !signal.aborted; attempt++) {
      const ended = await endedHolder(this.#deps.sandboxes, ref.tenant, sandboxId);
      const inputs = await this.#inputs(ref.tenant, { session, turn, box, ended });
      const outcome = await loop.execute<SandboxState, SandboxEvent, Held | 'changed'>(sandboxes, box, {
        ...this.#meta(turn.turnId),
        decide: (state) => {
          const files = state.status === 'open' ? state.files : null;
          const isChanged = inputs !== null && files?.object !== inputs.basis?.object;
          if (isChanged) return { kind: 'unchanged', reply: 'changed' };
          inputs?.checkAge();
          return decideHold(state, by, { ended, inputs: writtenBy(inputs) });
        },
      });
      if (outcome.kind === 'done') {
        if (outcome.reply === 'changed') continue;
        return { kind: 'held', ...outcome.reply, note: inputs?.note ?? null };
      }
      if (outcome.code !== 'sandbox_busy') return outcome;
      await delay(backoffMs(attempt, RETRY), signal);
    }
    return null;
  }

  /** What the files of the message make of the sandbox's, before the turn takes it. Null: nothing. */
  async #inputs(tenant: string, { session, turn, box, ended }: Taking): Promise<Inputs | null> {
    const inputs = inputsOf(session, turn);
    if (inputs.length === 0) return null;
    const { state } = await this.#deps.sandboxes.sandboxes.load(box);
    // A turn that has it changes its files; if it is this one, they are there.
    if (state.status === 'absent' || state.kind !== 'virtual' || holderOf(state, ended) !== null) return null;
    return await storeInputs(this.#deps.sandboxes, tenant, { box: state, inputs, meta: this.#meta(turn.turnId) });
  }

  async #execute(
    wanted: WantedSandboxCall,
    { tool, sandboxId, held, signal }: Execution,
  ): Promise<Recorded | Rejection> {
    const { ref, turn, call } = wanted;
    const { sandboxes: deps, driver, network, onExec } = this.#deps;
    const { tenant } = ref;
    const box = sandboxRef(tenant, sandboxId);
    const { state } = await deps.sandboxes.load(box);
    if (state.status === 'absent') return noSandbox();
    const base = await deps.workspaces.load(tenant, state.files);
    const writer = deps.workspaces.writer(tenant, state.workspace);
    const [files, contents, limits] = [base.manifest, writer.contents(base), deps.workspaceLimits];
    const python = 'python' in state.spec && state.spec.python === true;
    const web = network?.(wanted, state)?.virtual ?? null;
    const meta = this.#meta(turn.turnId);
    const made = await driver.run({ tenant, tool, files, contents, limits, python, web }, signal);
    const { answer, after } = await keptAnswer(deps, { tenant, box: state, base, writer, meta }, made);
    const exec = figuresOf(tool, answer);
    await faultPoint('sandbox.executed');
    const outcome = await deps.loop.execute(deps.sandboxes, box, {
      ...meta,
      decide: (now) => {
        if (after !== null) writer.checkAge();
        return decideRecordCall(now, {
          ...{
            epoch: held.epoch,
            sessionId: ref.id,
            turnId: turn.turnId,
            callId: call.callId,
            agentId: agentOf(wanted),
          },
          ...{ exec, outcome: outcomeOf(answer), files: after, storedBytes: after === null ? 0 : writer.storedBytes },
        });
      },
    });
    await faultPoint('sandbox.recorded');
    if (outcome.kind === 'rejected') {
      await giveUpBytes(deps, tenant, { sandboxId, workspace: state.workspace, meta });
      return outcome;
    }
    onExec?.(exec);
    return outcome.reply;
  }

  async #settle({ ref, turn }: WantedSandboxCall, end: SandboxCallEnd): Promise<void> {
    await turnStep(this.#steps, { ref, causation: end.callId }, (draft, context) => {
      if (isOurs(draft.state, turn) && isOpen(draft.state, end.callId)) process.settleSandbox(draft, end, context);
    });
  }

  #meta(turnId: string) {
    return { actor: `worker:${this.#steps.workerId}`, causation: turnId, urgent: true as const };
  }
}

interface Taking {
  readonly session: OpenSession;
  readonly turn: ActiveTurn;
  readonly box: AggregateRef;
  readonly ended: string | null;
}

function writtenBy(inputs: Inputs | null) {
  return inputs === null || inputs.files === null ? null : { files: inputs.files, storedBytes: inputs.storedBytes };
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

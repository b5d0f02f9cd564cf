import type { CommitMeta } from '../commands/repository.ts';
import { holdBytes } from '../commands/sandbox/account.ts';
import type { SandboxDeps } from '../commands/sandbox/deps.ts';
import type { KeptFiles, WorkspaceWriter } from '../commands/sandbox/workspace-store.ts';
import type { Held } from '../domain/sandbox/decide.ts';
import type { ExecFigures, FilesRef, ToolOutcome } from '../domain/sandbox/events.ts';
import type { OpenSandbox } from '../domain/sandbox/state.ts';
import type { SandboxToolCall } from '../domain/sandbox/tools.ts';
import type { OpenSession } from '../domain/session/state.ts';
import type { ActiveTurn } from '../domain/turn/state.ts';
import type { OpenSandboxCall, Thread } from '../domain/turn/thread.ts';
import type { PodNetwork, SandboxAnswer, SandboxDriver, WebAccess } from '../drivers/sandbox/port.ts';
import type { AggregateRef } from '../streams/subjects.ts';

export interface SandboxCallDeps {
  readonly sandboxes: SandboxDeps;
  readonly driver: SandboxDriver;
  /** The way out of a sandbox; null: it has none. */
  readonly network?: (wanted: WantedSandboxCall, sandbox: OpenSandbox) => CallNetwork | null;
  /** Called with each call that a sandbox has carried out, for the metrics. */
  readonly onExec?: (exec: ExecFigures) => void;
}

/** The way out of one call, for either kind of sandbox. */
export interface CallNetwork {
  readonly virtual: WebAccess;
  readonly pod: PodNetwork;
}

/** A call that is to be made, and the fold that requires it. */
export interface WantedSandboxCall {
  readonly ref: AggregateRef;
  readonly session: OpenSession;
  readonly turn: ActiveTurn;
  readonly call: OpenSandboxCall;
}

export interface HeldSandbox extends Held {
  readonly kind: 'held';
  readonly note: string | null;
}

export interface Execution {
  readonly tool: SandboxToolCall;
  readonly sandboxId: string;
  readonly held: HeldSandbox;
  readonly signal: AbortSignal;
}

interface Keeping {
  readonly tenant: string;
  readonly box: OpenSandbox;
  readonly base: KeptFiles;
  readonly writer: WorkspaceWriter;
  readonly meta: CommitMeta;
}

/**
 * Stores the manifest of what a call has made of the files, and holds the tenant's bytes for all that it has written. Past the tenant's
 * total the call has failed, and changes nothing. @throws UnavailableError (objects, streams)
 */
export async function keptAnswer(
  deps: SandboxDeps,
  { tenant, box, base, writer, meta }: Keeping,
  answer: SandboxAnswer,
): Promise<{ readonly answer: SandboxAnswer; readonly after: FilesRef | null }> {
  if (answer.outcome !== 'completed' || answer.files === null) return { answer, after: null };
  const after = await writer.keep(base, answer.files);
  const { workspace, storedBytes } = box;
  const full = await holdBytes(deps, { tenant, workspace, bytes: storedBytes + writer.storedBytes, meta });
  if (full === null) return { answer, after };
  await writer.discard();
  const { usage } = answer;
  return { answer: { outcome: 'failed', code: 'limit_exceeded', message: full.message, usage }, after: null };
}

/** Characters of a script that the history shows. */
const COMMAND_SHOWN = 500;

/** The agent that makes a call: the session's, or one that it uses as a tool. */
export function agentOf({ session, turn, call }: WantedSandboxCall): string {
  const isIts = ({ sandboxCalls }: Thread) => sandboxCalls.some(({ callId }) => callId === call.callId);
  return Object.values(turn.threads).find(isIts)?.agent?.id ?? session.agentId;
}

export function outcomeOf(answer: SandboxAnswer): ToolOutcome {
  if (answer.outcome === 'completed') return { kind: 'completed', output: answer.result };
  return { kind: 'failed', code: answer.code, message: answer.message };
}

export function figuresOf({ name, input }: SandboxToolCall, { outcome, usage, ...answer }: SandboxAnswer): ExecFigures {
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

import type { Decision } from '../kernel/decision.ts';
import { reject } from '../kernel/rejection.ts';
import type { Rejection } from '../kernel/rejection.ts';
import type { ExecFigures, FilesRef, SandboxEvent, ToolOutcome } from './events.ts';
import type { SandboxKind, SandboxSpec } from './spec.ts';
import type { Holder, LastCall, OpenSandbox, SandboxState } from './state.ts';

export interface OpenSandboxCommand {
  readonly sandboxId: string;
  readonly kind: SandboxKind;
  readonly spec: SandboxSpec;
  readonly subject: string | null;
  /** Absent: an existing sandbox keeps its own. */
  readonly labels?: Readonly<Record<string, string>> | undefined;
  readonly owner: { readonly sessionId: string } | null;
  /** What it begins with, and what that brought into the store. */
  readonly files: FilesRef | null;
  readonly storedBytes: number;
  /** Owner of what it writes, unless it exists. */
  readonly workspace: string;
}

/**
 * Creates a sandbox, or answers with the existing one: labels may change, a stopped one starts, other content is a
 * conflict. @param same whether the stated kind and spec are those of the existing sandbox
 */
export function decideOpenSandbox(
  state: SandboxState,
  command: OpenSandboxCommand,
  same: (there: OpenSandbox) => boolean,
): Decision<SandboxEvent, null> {
  if (state.status === 'absent') {
    const { labels = {}, ...rest } = command;
    const created: SandboxEvent = { type: 'sandbox.created', data: { ...rest, labels: { ...labels } } };
    return { kind: 'accepted', events: [created], reply: null };
  }
  if (!same(state)) {
    const message =
      'A sandbox with this id exists with another kind or spec. Use another id, or send what it was made with.';
    return reject('conflict', message);
  }
  if (isExpired(state)) return expired();
  const events: SandboxEvent[] = [];
  const { labels } = command;
  if (labels !== undefined && !sameLabels(state.labels, labels)) {
    events.push({ type: 'sandbox.labelled', data: { labels: { ...labels } } });
  }
  events.push(...startedAgain(state));
  return events.length === 0 ? { kind: 'unchanged', reply: null } : { kind: 'accepted', events, reply: null };
}

function sameLabels(a: Readonly<Record<string, string>>, b: Readonly<Record<string, string>>): boolean {
  const names = Object.keys(a);
  return names.length === Object.keys(b).length && names.every((name) => a[name] === b[name]);
}

function startedAgain({ machine }: OpenSandbox): SandboxEvent[] {
  if (machine?.desired !== 'suspended') return [];
  return [{ type: 'sandbox.started', data: { hostEpoch: machine.hostEpoch + 1 } }];
}

/** Maximum sessions of one sandbox. */
export const SANDBOX_SESSIONS_MAX = 1_000;

/** A session is to work in a sandbox that was not made for it. */
export function decideAttach(state: SandboxState, sessionId: string): Decision<SandboxEvent, null> {
  if (state.status === 'absent') return noSandbox();
  if (state.sessions.includes(sessionId)) return { kind: 'unchanged', reply: null };
  if (state.sessions.length >= SANDBOX_SESSIONS_MAX) {
    const message = `${SANDBOX_SESSIONS_MAX} sessions work in the sandbox. Delete one of them, or use another sandbox.`;
    return reject('limit_exceeded', message, { details: { limit: 'sandboxSessions' } });
  }
  return { kind: 'accepted', events: [{ type: 'sandbox.attached', data: { sessionId } }], reply: null };
}

/** The session no longer exists. */
export function decideDetach(state: SandboxState, sessionId: string): Decision<SandboxEvent, null> {
  if (state.status === 'absent' || !state.sessions.includes(sessionId)) return { kind: 'unchanged', reply: null };
  return { kind: 'accepted', events: [{ type: 'sandbox.detached', data: { sessionId } }], reply: null };
}

/**
 * The turn that has the sandbox and has not ended. @param ended a turn that is known to have ended without releasing it
 */
export function holderOf(state: OpenSandbox, ended: string | null): Holder | null {
  return state.holder !== null && state.holder.turnId !== ended ? state.holder : null;
}

/** No such sandbox, in the same words for one that does not exist and one out of reach. */
export function noSandbox(): Rejection {
  return reject('not_found', 'No such sandbox.');
}

function isExpired({ machine }: OpenSandbox): boolean {
  return machine?.desired === 'deleted';
}

function expired(): Rejection {
  return reject('conflict', 'The pod has expired and does not start again. Delete it, or use another id.');
}

export function busy({ turnId, sessionId }: Holder): Rejection {
  const message = 'A turn is running on the sandbox. Wait for its end or cancel it, then send this again.';
  return reject('sandbox_busy', message, { activeTurnId: turnId, details: { sessionId } });
}

/** The turn that held it has ended: the next one finds it free. */
export function freed(state: OpenSandbox, ended: string | null): SandboxEvent[] {
  if (state.holder === null || holderOf(state, ended) !== null) return [];
  return [{ type: 'sandbox.released', data: { epoch: state.holder.epoch } }];
}

export interface Held {
  readonly epoch: number;
  /** It was taken for the turn just now. */
  readonly begins: boolean;
}

/**
 * A turn takes the sandbox, or has it already. One turn at a time: of a starting turn and a stop, the one recorded
 * first wins, and the turn starts a stopped sandbox again.
 * @param more `ended`: a turn that is known to have ended without releasing it. `inputs`: the files with those of the turn's
 * message, put there with its beginning and not again after a crash.
 */
export function decideHold(
  state: SandboxState,
  by: Omit<Holder, 'epoch'>,
  { ended, inputs = null }: { readonly ended: string | null; readonly inputs?: Omit<Written, 'basis'> | null },
): Decision<SandboxEvent, Held> {
  if (state.status === 'absent') return lost();
  if (isExpired(state)) return reject('sandbox_lost', 'The pod has expired: the time that its ttl gave it is over.');
  const holder = holderOf(state, ended);
  const isOwn = holder?.turnId === by.turnId;
  if (holder !== null && !isOwn) return busy(holder);
  if (isOwn && by.segment < holder.segment) return lost();
  if (isOwn && by.segment === holder.segment) {
    return { kind: 'unchanged', reply: { epoch: holder.epoch, begins: false } };
  }
  const epoch = state.epoch + 1;
  const held: SandboxEvent = { type: 'sandbox.held', data: { ...by, epoch } };
  const put: SandboxEvent[] = inputs === null || isOwn ? [] : [{ type: 'sandbox.written', data: inputs }];
  return { kind: 'accepted', events: [...startedAgain(state), held, ...put], reply: { epoch, begins: !isOwn } };
}

/** The turn has ended. Releasing what another turn, or no turn, holds changes nothing. */
export function decideRelease(state: SandboxState, turnId: string): Decision<SandboxEvent, null> {
  if (state.status === 'absent' || state.holder?.turnId !== turnId) return { kind: 'unchanged', reply: null };
  return {
    kind: 'accepted',
    events: [{ type: 'sandbox.released', data: { epoch: state.holder.epoch } }],
    reply: null,
  };
}

export interface RecordCall {
  readonly epoch: number;
  readonly turnId: string;
  readonly sessionId: string;
  readonly callId: string;
  /** Of the agent that made it. */
  readonly agentId?: string;
  readonly exec: ExecFigures;
  readonly outcome: ToolOutcome;
  /** Null: it has changed nothing. */
  readonly files: FilesRef | null;
  readonly storedBytes: number;
}

/** A call as it was recorded, with the files after it. */
export interface Recorded extends Pick<LastCall, 'outcome' | 'exec'> {
  readonly files: FilesRef | null;
}

/**
 * Records a call with its result and the files after it. A call that is recorded already keeps its first result: the
 * worker that made it died before the session recorded it. A turn that has lost the sandbox records nothing.
 */
export function decideRecordCall(state: SandboxState, call: RecordCall): Decision<SandboxEvent, Recorded> {
  if (state.status === 'absent' || state.holder?.epoch !== call.epoch) return lost();
  const known = recordedCall(state, call);
  if (known !== null) return { kind: 'unchanged', reply: { ...known, files: state.files } };
  const { outcome, exec } = call;
  const reply = { outcome, exec, files: call.files ?? state.files };
  return { kind: 'accepted', events: [{ type: 'sandbox.executed', data: call }], reply };
}

/** The result of a call that was recorded before; null: it was not. */
export function recordedCall(
  { lastCall }: OpenSandbox,
  { turnId, callId }: { readonly turnId: string; readonly callId: string },
): LastCall | null {
  return lastCall?.turnId === turnId && lastCall.callId === callId ? lastCall : null;
}

export function lost(): Rejection {
  return reject('sandbox_lost', 'The sandbox is not there any more, or another turn has it.');
}

export interface Written {
  readonly files: FilesRef;
  readonly storedBytes: number;
  /** The files that the change is based on: what came in between is not lost. */
  readonly basis: FilesRef | null;
}

/**
 * A client changes files while no turn runs. `changed`: others came first, and the change is applied again to theirs.
 * @param ended a turn that is known to have ended without releasing the sandbox
 */
export function decideWriteFiles(
  state: SandboxState,
  { files, storedBytes, basis }: Written,
  ended: string | null,
): Decision<SandboxEvent, 'written' | 'changed'> {
  if (state.status === 'absent') return noSandbox();
  const holder = holderOf(state, ended);
  if (holder !== null) return busy(holder);
  if (state.files?.manifest !== basis?.manifest) return { kind: 'unchanged', reply: 'changed' };
  const written: SandboxEvent = { type: 'sandbox.written', data: { files, storedBytes } };
  return { kind: 'accepted', events: [...freed(state, ended), written], reply: 'written' };
}

/** What a sandbox begins with; null: nothing. */
export interface FirstFiles {
  readonly files: FilesRef | null;
  readonly storedBytes: number;
}

/** Everything in it is removed. `first`: what its source gives it. */
export function decideReset(
  state: SandboxState,
  first: FirstFiles,
  ended: string | null,
): Decision<SandboxEvent, null> {
  if (state.status === 'absent') return noSandbox();
  const holder = holderOf(state, ended);
  if (holder !== null) return busy(holder);
  if (isExpired(state)) return expired();
  const reset: SandboxEvent = { type: 'sandbox.reset', data: first };
  return { kind: 'accepted', events: [...freed(state, ended), reset], reply: null };
}

/** Suspends the machine; its volume is kept. Stopping a stopped one changes nothing. */
export function decideStop(state: SandboxState, ended: string | null): Decision<SandboxEvent, null> {
  if (state.status === 'absent') return noSandbox();
  if (state.machine === null) {
    return reject('invalid_request', 'A virtual sandbox has nothing to stop: it takes nothing while no tool runs.');
  }
  const holder = holderOf(state, ended);
  if (holder !== null) return busy(holder);
  if (state.machine.desired !== 'running') return { kind: 'unchanged', reply: null };
  const stopped: SandboxEvent = { type: 'sandbox.stopped', data: { hostEpoch: state.machine.hostEpoch + 1 } };
  return { kind: 'accepted', events: [...freed(state, ended), stopped], reply: null };
}

/** The reply is how many bytes it had brought into the store. */
export function decideDeleteSandbox(state: SandboxState, ended: string | null): Decision<SandboxEvent, number> {
  if (state.status === 'absent') return noSandbox();
  const holder = holderOf(state, ended);
  if (holder !== null) return busy(holder);
  return { kind: 'accepted', events: [{ type: 'sandbox.deleted', data: {} }], reply: state.storedBytes };
}

import type { EventMeta } from '../kernel/decision.ts';
import type { ExecFigures, FilesRef, SandboxEvent, ToolOutcome } from './events.ts';
import type { SandboxKind, SandboxSpec } from './spec.ts';

/** The turn that has a sandbox. */
export interface Holder {
  readonly sessionId: string;
  readonly turnId: string;
  readonly epoch: number;
  /** Epoch of the turn's worker. */
  readonly segment: number;
}

/** A recorded call, with everything that its session has to record of it. */
export interface LastCall {
  readonly turnId: string;
  readonly callId: string;
  readonly outcome: ToolOutcome;
  readonly exec: ExecFigures;
}

/** A machine behind a sandbox: its desired state. The observed state comes from its driver. */
export interface Machine {
  readonly desired: 'running' | 'suspended';
  /** Rises with each reset. */
  readonly volumeGeneration: number;
  /** Rises with each stop and start; a machine with a lower one is fenced. */
  readonly hostEpoch: number;
}

export interface OpenSandbox {
  readonly status: 'open';
  readonly sandboxId: string;
  readonly kind: SandboxKind;
  readonly spec: SandboxSpec;
  readonly subject: string | null;
  readonly labels: Readonly<Record<string, string>>;
  readonly owner: { readonly sessionId: string } | null;
  /** Sessions that work in it, including the owner. */
  readonly sessions: readonly string[];
  /** Null: the workspace is empty. */
  readonly files: FilesRef | null;
  /** Bytes that it has brought into the object store since it was made. */
  readonly storedBytes: number;
  readonly holder: Holder | null;
  /** Of the newest holder. */
  readonly epoch: number;
  /** The newest call: its session may not have recorded it yet. */
  readonly lastCall: LastCall | null;
  /** Null: it is virtual. */
  readonly machine: Machine | null;
  /** Position of its creation: a later one with the same id is another sandbox. */
  readonly createdPosition: number;
  readonly createdAt: string;
  readonly updatedAt: string;
}

/** absent → open ⇄ held → absent. */
export type SandboxState = { readonly status: 'absent' } | OpenSandbox;

export const initialSandbox: SandboxState = { status: 'absent' };

/** Part of a snapshot's name: raise it whenever the meaning of the folded state changes. */
export const SANDBOX_FOLD_VERSION = 1;

export function evolveSandbox(state: SandboxState, event: SandboxEvent, { at, position }: EventMeta): SandboxState {
  if (event.type === 'sandbox.created') {
    if (state.status !== 'absent') return state;
    const machine: Machine = { desired: 'running', volumeGeneration: 1, hostEpoch: 1 };
    return {
      status: 'open',
      ...event.data,
      sessions: event.data.owner === null ? [] : [event.data.owner.sessionId],
      storedBytes: 0,
      holder: null,
      epoch: 0,
      lastCall: null,
      machine: event.data.kind === 'pod' ? machine : null,
      ...{ createdPosition: position, createdAt: at, updatedAt: at },
    };
  }
  if (state.status === 'absent') return state;
  if (event.type === 'sandbox.deleted') return initialSandbox;
  return { ...evolveOpen(state, event), updatedAt: at };
}

function evolveOpen(
  state: OpenSandbox,
  event: Exclude<SandboxEvent, { type: 'sandbox.created' | 'sandbox.deleted' }>,
): OpenSandbox {
  switch (event.type) {
    case 'sandbox.attached':
      return { ...state, sessions: [...state.sessions, event.data.sessionId] };
    case 'sandbox.detached':
      return { ...state, sessions: state.sessions.filter((id) => id !== event.data.sessionId) };
    case 'sandbox.labelled':
      return { ...state, labels: event.data.labels };
    case 'sandbox.held':
      // A worker that takes the turn over finds what its predecessor recorded.
      return {
        ...state,
        ...{ holder: event.data, epoch: event.data.epoch },
        lastCall: state.lastCall?.turnId === event.data.turnId ? state.lastCall : null,
      };
    case 'sandbox.released':
      return state.holder?.epoch === event.data.epoch ? { ...state, holder: null, lastCall: null } : state;
    case 'sandbox.executed': {
      const { turnId, callId, outcome, exec, files, storedBytes } = event.data;
      const lastCall = { turnId, callId, outcome, exec };
      return { ...state, ...stored(state, files, storedBytes), lastCall };
    }
    case 'sandbox.written':
      return { ...state, ...stored(state, event.data.files, event.data.storedBytes) };
    case 'sandbox.reset': {
      const { machine } = state;
      const next = machine === null ? null : { ...machine, volumeGeneration: machine.volumeGeneration + 1 };
      return { ...state, files: event.data.files, machine: next };
    }
    case 'sandbox.stopped':
      return { ...state, machine: driven(state, 'suspended', event.data.hostEpoch) };
    case 'sandbox.started':
      return { ...state, machine: driven(state, 'running', event.data.hostEpoch) };
    default:
      return state;
  }
}

function stored(state: OpenSandbox, files: FilesRef | null, bytes: number): Pick<OpenSandbox, 'files' | 'storedBytes'> {
  return { files: files ?? state.files, storedBytes: state.storedBytes + bytes };
}

function driven({ machine }: OpenSandbox, desired: Machine['desired'], hostEpoch: number): Machine | null {
  return machine === null ? null : { ...machine, desired, hostEpoch };
}

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

/** A machine behind a sandbox: what it should be, and what its driver has seen of it. */
export interface Machine {
  /** `deleted`: it has expired. */
  readonly desired: 'running' | 'suspended' | 'deleted';
  /** Rises with each reset. */
  readonly volumeGeneration: number;
  /** Rises with each stop and start; a machine with a lower one is fenced. */
  readonly hostEpoch: number;
  /** Of this start and volume; absent: nothing yet. */
  readonly observed?: 'running' | 'lost' | 'failed' | undefined;
  readonly reason?: string | undefined;
  /** The newest generation whose volume was made: if it is not there, it is lost. */
  readonly volume?: number | undefined;
}

/** A call that cannot be made twice and has no recorded end. */
export interface BegunCall {
  readonly epoch: number;
  readonly turnId: string;
  readonly callId: string;
}

export interface OpenSandbox {
  readonly status: 'open';
  readonly sandboxId: string;
  readonly kind: SandboxKind;
  readonly spec: SandboxSpec;
  readonly subject: string | null;
  readonly labels: Readonly<Record<string, string>>;
  readonly owner: { readonly sessionId: string } | null;
  /** Owner of what it writes into the object store. */
  readonly workspace: string;
  /** Sessions that work in it, including the owner. */
  readonly sessions: readonly string[];
  /** Null: the workspace is empty. */
  readonly files: FilesRef | null;
  /** What it began with. */
  readonly first: FilesRef | null;
  /** Bytes that it has brought into the object store since it was made. */
  readonly storedBytes: number;
  readonly holder: Holder | null;
  /** Of the newest holder. */
  readonly epoch: number;
  /** The newest call: its session may not have recorded it yet. */
  readonly lastCall: LastCall | null;
  readonly begun?: BegunCall | null | undefined;
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
export const SANDBOX_FOLD_VERSION = 2;

export function evolveSandbox(state: SandboxState, event: SandboxEvent, { at, position }: EventMeta): SandboxState {
  if (event.type === 'sandbox.created') {
    if (state.status !== 'absent') return state;
    const machine: Machine = { desired: 'running', volumeGeneration: 1, hostEpoch: 1 };
    return {
      status: 'open',
      ...event.data,
      sessions: event.data.owner === null ? [] : [event.data.owner.sessionId],
      first: event.data.files,
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
        begun: state.begun?.turnId === event.data.turnId ? state.begun : null,
      };
    case 'sandbox.released':
      return state.holder?.epoch === event.data.epoch ? { ...state, holder: null, lastCall: null, begun: null } : state;
    case 'sandbox.executed': {
      const { turnId, callId, outcome, exec, files, storedBytes } = event.data;
      const lastCall = { turnId, callId, outcome, exec };
      return { ...state, ...stored(state, files, storedBytes), lastCall, begun: null };
    }
    case 'sandbox.written':
      return { ...state, ...stored(state, event.data.files, event.data.storedBytes) };
    case 'sandbox.reset': {
      const { machine } = state;
      const volumeGeneration = (machine?.volumeGeneration ?? 0) + 1;
      const next = machine === null ? null : machineOf({ ...machine, ...UNSEEN, volumeGeneration });
      const storedBytes = state.storedBytes + event.data.storedBytes;
      return { ...state, files: event.data.files, storedBytes, machine: next };
    }
    case 'sandbox.observed':
      return { ...state, machine: observed(state, event.data) };
    case 'sandbox.called':
      return { ...state, begun: event.data };
    case 'sandbox.expired':
      return { ...state, machine: driven(state, 'deleted', event.data.hostEpoch) };
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
  return machine === null ? null : machineOf({ ...machine, ...UNSEEN, desired, hostEpoch });
}

/** Of a machine that has just been given another state or volume. */
const UNSEEN = { observed: undefined, reason: undefined };

function observed(
  { machine }: OpenSandbox,
  { observed: seen, hostEpoch, volumeGeneration, reason }: Extract<SandboxEvent, { type: 'sandbox.observed' }>['data'],
): Machine | null {
  if (machine?.hostEpoch !== hostEpoch || machine.volumeGeneration !== volumeGeneration) return machine;
  const volume = seen === 'running' ? volumeGeneration : machine.volume;
  return machineOf({ ...machine, observed: seen, reason, volume });
}

/**
 * With its members in one order. A row that is read again has lost those that are undefined, and would get them at its end:
 * rows are compared byte by byte with those that are made of the same history at once.
 */
function machineOf({ desired, volumeGeneration, hostEpoch, observed: seen, reason, volume }: Machine): Machine {
  return { desired, volumeGeneration, hostEpoch, observed: seen, reason, volume };
}

import type { Decision } from '../kernel/decision.ts';
import { toMs } from '../kernel/time.ts';
import { decideStop, freed, holderOf, lost, recordedCall } from './decide.ts';
import type { SandboxEvent } from './events.ts';
import { expiryOf, podBounds } from './pod.ts';
import type { BegunCall, LastCall, OpenSandbox, SandboxState } from './state.ts';

/** What a driver has found of a pod; once recorded, the same again changes nothing. */
export type Observation = Extract<SandboxEvent, { type: 'sandbox.observed' }>['data'];

export function decideObserved(state: SandboxState, seen: Observation): Decision<SandboxEvent, null> {
  const machine = state.status === 'absent' ? null : state.machine;
  const isOutrun = machine?.hostEpoch !== seen.hostEpoch || machine.volumeGeneration !== seen.volumeGeneration;
  const isKnown = machine?.observed === seen.observed && machine.reason === seen.reason;
  if (isOutrun || isKnown) return { kind: 'unchanged', reply: null };
  return { kind: 'accepted', events: [{ type: 'sandbox.observed', data: seen }], reply: null };
}

/** `begins`: the call may be made. `begun`: it was under way, and what it did is not known. */
export type CallStart = { readonly kind: 'begins' | 'begun' } | { readonly kind: 'recorded'; readonly call: LastCall };

/** Before a call that cannot be made twice. @param again the caller knows that an earlier try has not begun */
export function decideBeginCall(
  state: SandboxState,
  call: BegunCall,
  again: boolean,
): Decision<SandboxEvent, CallStart> {
  if (state.status === 'absent' || state.holder?.epoch !== call.epoch) return lost();
  const known = recordedCall(state, call);
  if (known !== null) return { kind: 'unchanged', reply: { kind: 'recorded', call: known } };
  const { begun } = state;
  if (begun?.turnId === call.turnId && begun.callId === call.callId) {
    return { kind: 'unchanged', reply: { kind: again ? 'begins' : 'begun' } };
  }
  const { epoch, turnId, callId } = call;
  const called: SandboxEvent = { type: 'sandbox.called', data: { epoch, turnId, callId } };
  return { kind: 'accepted', events: [called], reply: { kind: 'begins' } };
}

/**
 * What the clock does to a pod: it is suspended when it was not used for its `idle`, and expires at the end of its `ttl`.
 * A turn that runs on it is not disturbed.
 * @param ended a turn that is known to have ended without releasing the sandbox
 */
export function decidePassing(state: SandboxState, nowMs: number, ended: string | null): Decision<SandboxEvent, null> {
  const unchanged = { kind: 'unchanged', reply: null } as const;
  if (state.status === 'absent' || state.machine === null || holderOf(state, ended) !== null) return unchanged;
  const { machine, spec } = state;
  if (machine.desired === 'deleted') return unchanged;
  if (isPast(expiryOf(spec, state.createdAt), nowMs)) {
    const expired: SandboxEvent = { type: 'sandbox.expired', data: { hostEpoch: machine.hostEpoch + 1 } };
    return { kind: 'accepted', events: [...freed(state, ended), expired], reply: null };
  }
  return isIdle(state, nowMs) ? decideStop(state, ended) : unchanged;
}

function isIdle({ machine, spec, updatedAt }: OpenSandbox, nowMs: number): boolean {
  return machine?.desired === 'running' && nowMs - toMs(updatedAt) > podBounds(spec).idleMs;
}

function isPast(at: string | null, nowMs: number): boolean {
  return at !== null && toMs(at) <= nowMs;
}

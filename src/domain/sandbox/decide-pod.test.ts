import { expect, test } from 'vitest';
import type { Decision } from '../kernel/decision.ts';
import { decideHold, decideOpenSandbox, decideRecordCall, decideRelease, decideReset, decideStop } from './decide.ts';
import { decideBeginCall, decideObserved, decidePassing } from './decide-pod.ts';
import { sandboxEventSchemas } from './events.ts';
import type { SandboxEvent } from './events.ts';
import type { PodSpec } from './pod.ts';
import { observedOf, statusOf } from './shown.ts';
import { evolveSandbox, initialSandbox } from './state.ts';
import type { Machine, OpenSandbox, SandboxState } from './state.ts';

const NO_FILES = { files: null, storedBytes: 0 };
const HOLDING = { ended: null, inputs: null };
const START_MS = Date.parse('2026-01-01T00:00:00.000Z');
const MINUTE_MS = 60_000;

function take<R>(
  state: SandboxState,
  decision: Decision<SandboxEvent, R>,
  atMs = START_MS,
): { state: SandboxState; reply: R; types: string[] } {
  if (decision.kind === 'rejected') throw new Error(decision.code);
  const events = decision.kind === 'accepted' ? decision.events : [];
  for (const { type, data } of events) expect(sandboxEventSchemas[type].parse(data)).toEqual(data);
  const meta = { at: new Date(atMs).toISOString(), position: 1, index: 0 };
  const folded = events.reduce((now, event) => evolveSandbox(now, event, meta), state);
  return { state: folded, reply: decision.reply, types: events.map(({ type }) => type) };
}

const command = (spec: PodSpec) => ({
  ...{ sandboxId: 'pod', kind: 'pod' as const, spec, subject: null, owner: null, ...NO_FILES, workspace: 'ws_1' },
});
const reopened = (state: SandboxState) => decideOpenSandbox(state, command({}), () => true);
const pod = (spec: PodSpec = {}): SandboxState =>
  take(
    initialSandbox,
    decideOpenSandbox(initialSandbox, command(spec), () => true),
  ).state;

function open(state: SandboxState): OpenSandbox & { readonly machine: Machine } {
  if (state.status === 'absent' || state.machine === null) throw new Error('no pod');
  return { ...state, machine: state.machine };
}

const seen = (observed: 'running' | 'lost' | 'failed', hostEpoch = 1, volumeGeneration = 1) => {
  return { observed, hostEpoch, volumeGeneration };
};
const shown = (state: SandboxState) => [statusOf(open(state)), observedOf(open(state).machine)];

test('a pod is what its driver has found last of this start and volume', () => {
  let state = pod();
  expect(shown(state)).toEqual(['creating', 'creating']);
  state = take(state, decideObserved(state, seen('running'))).state;
  expect(shown(state)).toEqual(['running', 'running']);
  expect(open(state).machine.volume).toBe(1);
  expect(decideObserved(state, seen('running')).kind).toBe('unchanged');
  expect(decideObserved(state, seen('lost', 2)).kind).toBe('unchanged');
  expect(decideObserved(state, seen('lost', 1, 2)).kind).toBe('unchanged');
  const lost = take(state, decideObserved(state, { ...seen('lost'), reason: 'gone' })).state;
  expect([...shown(lost), open(lost).machine.reason]).toEqual(['stopped', 'lost', 'gone']);
  state = take(state, decideStop(state, null)).state;
  expect(shown(state)).toEqual(['stopped', 'suspended']);
  expect(decideObserved(state, seen('running', 1)).kind).toBe('unchanged');
  state = take(state, reopened(state)).state;
  expect([...shown(state), open(state).machine.hostEpoch]).toEqual(['creating', 'creating', 3]);
  state = take(state, decideObserved(state, seen('running', 3))).state;
  state = take(state, decideReset(state, NO_FILES, null)).state;
  expect(shown(state)).toEqual(['creating', 'creating']);
  expect(open(state).machine).toMatchObject({ volumeGeneration: 2, volume: 1 });
  expect(decideObserved(initialSandbox, seen('running')).kind).toBe('unchanged');
});

const by = { sessionId: 's', turnId: 't1', segment: 1 };
const call = { epoch: 1, turnId: 't1', callId: 'c1' };

test('a call begins once; a worker that finds it begun does not make it again', () => {
  let state = pod();
  expect(decideBeginCall(state, call, false)).toMatchObject({ kind: 'rejected', code: 'sandbox_lost' });
  state = take(state, decideHold(state, by, HOLDING)).state;
  const begun = take(state, decideBeginCall(state, call, false));
  expect(begun).toMatchObject({ reply: { kind: 'begins' }, types: ['sandbox.called'] });
  state = take(begun.state, decideHold(begun.state, { ...by, segment: 2 }, HOLDING)).state;
  expect(decideBeginCall(state, call, false)).toMatchObject({ code: 'sandbox_lost' });
  const taken = { ...call, epoch: 2 };
  expect(take(state, decideBeginCall(state, taken, false)).reply).toEqual({ kind: 'begun' });
  expect(take(state, decideBeginCall(state, taken, true)).reply).toEqual({ kind: 'begins' });
  const exec = { tool: 'bash', durationMs: 0, cpuMs: 0, bytesWritten: 0, outcome: 'killed' as const };
  const outcome = { kind: 'failed' as const, code: 'sandbox_lost', message: 'm' };
  const end = { ...taken, sessionId: 's', exec, outcome, files: null, storedBytes: 0 };
  state = take(state, decideRecordCall(state, end)).state;
  expect(take(state, decideBeginCall(state, taken, false)).reply).toMatchObject({
    kind: 'recorded',
    call: { outcome },
  });
  const next = take(state, decideBeginCall(state, { ...taken, callId: 'c2' }, false));
  expect(next.reply).toEqual({ kind: 'begins' });
  const released = take(next.state, decideRelease(next.state, 't1')).state;
  expect(open(released).begun).toBeNull();
});

test('a pod that is not used is suspended, unless a turn runs', () => {
  let state = pod({ idle: '10m' });
  expect(decidePassing(state, START_MS + 10 * MINUTE_MS, null).kind).toBe('unchanged');
  const lateMs = START_MS + 11 * MINUTE_MS;
  const stopped = take(state, decidePassing(state, lateMs, null), lateMs);
  expect(stopped.types).toEqual(['sandbox.stopped']);
  expect(decidePassing(stopped.state, lateMs + MINUTE_MS, null).kind).toBe('unchanged');
  state = take(state, decideHold(state, by, HOLDING)).state;
  expect(decidePassing(state, lateMs, null).kind).toBe('unchanged');
  expect(take(state, decidePassing(state, lateMs, 't1')).types).toEqual(['sandbox.released', 'sandbox.stopped']);
  const standard = pod();
  expect(decidePassing(standard, START_MS + 15 * MINUTE_MS, null).kind).toBe('unchanged');
  expect(decidePassing(standard, START_MS + 16 * MINUTE_MS, null).kind).toBe('accepted');
  expect(decidePassing(initialSandbox, lateMs, null).kind).toBe('unchanged');
});

test('a pod expires at the end of its ttl, for good', () => {
  const made = pod({ ttl: '1h', idle: '9h' });
  expect(decidePassing(made, START_MS + 59 * MINUTE_MS, null).kind).toBe('unchanged');
  const held = take(made, decideHold(made, by, HOLDING)).state;
  expect(decidePassing(held, START_MS + 60 * MINUTE_MS, null).kind).toBe('unchanged');
  const { state, types } = take(made, decidePassing(made, START_MS + 60 * MINUTE_MS, null));
  expect(types).toEqual(['sandbox.expired']);
  expect(shown(state)).toEqual(['stopped', 'expired']);
  expect(open(state).machine.hostEpoch).toBe(2);
  expect(decidePassing(state, START_MS + 90 * MINUTE_MS, null).kind).toBe('unchanged');
  expect(decideStop(state, null).kind).toBe('unchanged');
  expect(reopened(state)).toMatchObject({ kind: 'rejected', code: 'conflict' });
  expect(decideReset(state, NO_FILES, null)).toMatchObject({ kind: 'rejected', code: 'conflict' });
  expect(decideHold(state, by, HOLDING)).toMatchObject({ kind: 'rejected', code: 'sandbox_lost' });
});

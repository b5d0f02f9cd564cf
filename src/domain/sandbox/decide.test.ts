import { expect, test } from 'vitest';
import type { Decision } from '../kernel/decision.ts';
import {
  decideAttach,
  decideDeleteSandbox,
  decideHold,
  decideOpenSandbox,
  decideRecordCall,
  decideRelease,
  decideReset,
  decideStop,
  decideWriteFiles,
} from './decide.ts';
import { sandboxEventSchemas } from './events.ts';
import type { FilesRef, SandboxEvent } from './events.ts';
import { statusOf } from './shown.ts';
import { evolveSandbox, initialSandbox } from './state.ts';
import type { OpenSandbox, SandboxState } from './state.ts';

const FIRST: FilesRef = { manifest: 'a'.repeat(64), object: 'ws_1/wo_1-m', workspaces: ['ws_1'], files: 1, bytes: 3 };
const SECOND: FilesRef = { manifest: 'b'.repeat(64), object: 'ws_1/wo_2-m', workspaces: ['ws_1'], files: 2, bytes: 8 };
const NOTHING = { files: null, storedBytes: 0 };
const turn = (turnId: string, segment = 1) => ({ sessionId: `session of ${turnId}`, turnId, segment });

function take<R>(state: SandboxState, decision: Decision<SandboxEvent, R>): { state: SandboxState; reply: R } {
  if (decision.kind === 'rejected') throw new Error(decision.code);
  const events = decision.kind === 'accepted' ? decision.events : [];
  for (const { type, data } of events) expect(sandboxEventSchemas[type].parse(data)).toEqual(data);
  const meta = { at: '2026-01-01T00:00:00.000Z', position: 1, index: 0 };
  return { state: events.reduce((folded, event) => evolveSandbox(folded, event, meta), state), reply: decision.reply };
}

function made(kind: 'virtual' | 'pod' = 'virtual'): SandboxState {
  const command = { sandboxId: 'box', kind, spec: {}, subject: null, owner: null, ...NOTHING, workspace: 'ws_1' };
  return take(
    initialSandbox,
    decideOpenSandbox(initialSandbox, command, () => true),
  ).state;
}

function open(state: SandboxState): OpenSandbox {
  if (state.status === 'absent') throw new Error('absent');
  return state;
}

function held(state: SandboxState, turnId: string, ended: string | null = null): SandboxState {
  return take(state, decideHold(state, turn(turnId), { ended: ended })).state;
}

const call = (epoch: number, callId: string, files: FilesRef | null = null) => ({
  ...{ sessionId: 's', turnId: 't1' },
  epoch,
  callId,
  exec: { tool: 'bash', durationMs: 1, cpuMs: 1, bytesWritten: 3, outcome: 'completed' as const },
  outcome: { kind: 'completed' as const, output: { stdout: callId } },
  files,
  storedBytes: files?.bytes ?? 0,
});

test('a repeated PUT changes labels only; other content is a conflict', () => {
  const state = made();
  const command = {
    sandboxId: 'box',
    kind: 'virtual' as const,
    spec: {},
    subject: null,
    owner: null,
    ...NOTHING,
    workspace: 'ws_1',
  };
  expect(decideOpenSandbox(state, command, () => true)).toMatchObject({ kind: 'unchanged' });
  expect(decideOpenSandbox(state, command, () => false)).toMatchObject({ code: 'conflict' });
  const labelled = take(
    state,
    decideOpenSandbox(state, { ...command, labels: { a: 'b' } }, () => true),
  ).state;
  expect(labelled).toMatchObject({ labels: { a: 'b' } });
  expect(decideOpenSandbox(labelled, command, () => true)).toMatchObject({ kind: 'unchanged' });
});

test('one turn at a time: another takes it when it was given back, or is known to have ended', () => {
  const first = held(made(), 't1');
  expect(statusOf(open(first))).toBe('running');
  expect(decideHold(first, turn('t1'), { ended: null })).toMatchObject({ kind: 'unchanged', reply: { epoch: 1 } });
  const refusal = decideHold(first, turn('t2'), { ended: null });
  expect(refusal).toMatchObject({ code: 'sandbox_busy', activeTurnId: 't1' });
  expect(open(held(first, 't2', 't1')).holder).toMatchObject({ turnId: 't2', epoch: 2 });
  const free = take(first, decideRelease(first, 't1')).state;
  expect(statusOf(open(free))).toBe('ready');
  expect(open(held(free, 't2')).holder).toMatchObject({ turnId: 't2', epoch: 2 });
  expect(decideRelease(free, 't1')).toMatchObject({ kind: 'unchanged' });
});

test('a turn that has lost the sandbox records nothing, and what it gives back stays with the other', () => {
  const second = held(held(made(), 't1'), 't2', 't1');
  expect(decideRecordCall(second, call(1, 'c1', FIRST))).toMatchObject({ code: 'sandbox_lost' });
  expect(decideRelease(second, 't1')).toMatchObject({ kind: 'unchanged' });
});

test('a worker that takes the turn over finds what was recorded, and the one before it records nothing more', () => {
  const first = held(made(), 't1');
  const called = take(first, decideRecordCall(first, call(1, 'c1', FIRST))).state;
  const taken = take(called, decideHold(called, turn('t1', 2), { ended: null }));
  expect(taken.reply).toEqual({ epoch: 2, begins: false });
  expect(open(taken.state).lastCall).toMatchObject({ callId: 'c1' });
  expect(decideRecordCall(taken.state, call(1, 'c0', SECOND))).toMatchObject({ code: 'sandbox_lost' });
  expect(decideHold(taken.state, turn('t1', 1), { ended: null })).toMatchObject({ code: 'sandbox_lost' });
});

test('a call is recorded once, with the files after it; made again, it has its first result', () => {
  const state = held(made(), 't1');
  const after = take(state, decideRecordCall(state, call(1, 'c1', FIRST))).state;
  expect(open(after)).toMatchObject({ files: FIRST, storedBytes: 3 });
  const other = { ...call(1, 'c1', SECOND), outcome: { kind: 'failed' as const, code: 'timeout', message: 'm' } };
  const again = take(after, decideRecordCall(after, other));
  expect(again.reply).toMatchObject({ outcome: { kind: 'completed', output: { stdout: 'c1' } }, files: FIRST });
  expect(open(again.state).files).toEqual(FIRST);
  const nothing = take(after, decideRecordCall(after, call(1, 'c2'))).state;
  expect(open(nothing).files).toEqual(FIRST);
});

test('with a turn running nothing is written, emptied, stopped or deleted; once it has ended, all of it is', () => {
  const written = { files: FIRST, storedBytes: 3, basis: null };
  for (const kind of ['virtual', 'pod'] as const) {
    const busy = held(made(kind), 't1');
    const decisions = (ended: string | null) => [
      decideWriteFiles(busy, written, ended),
      decideReset(busy, NOTHING, ended),
      decideDeleteSandbox(busy, ended),
      ...(kind === 'pod' ? [decideStop(busy, ended)] : []),
    ];
    for (const decision of decisions(null)) expect(decision).toMatchObject({ code: 'sandbox_busy' });
    for (const decision of decisions('t1')) expect(decision).toMatchObject({ kind: 'accepted' });
  }
});

test('a change of files that others were faster with is made again of theirs', () => {
  const state = take(made(), decideWriteFiles(made(), { files: FIRST, storedBytes: 3, basis: null }, null)).state;
  const late = { files: SECOND, storedBytes: 5, basis: null };
  expect(decideWriteFiles(state, late, null)).toMatchObject({ kind: 'unchanged', reply: 'changed' });
  const again = take(state, decideWriteFiles(state, { ...late, basis: FIRST }, null)).state;
  expect(open(again)).toMatchObject({ files: SECOND, storedBytes: 8 });
  expect(open(take(again, decideReset(again, NOTHING, null)).state).files).toBeNull();
});

test('a stop and a turn that starts: what is recorded first wins, and a turn starts what was stopped', () => {
  const pod = made('pod');
  expect(decideStop(made(), null)).toMatchObject({ code: 'invalid_request' });
  const stopped = take(pod, decideStop(pod, null)).state;
  expect(open(stopped).machine).toEqual({ desired: 'suspended', volumeGeneration: 1, hostEpoch: 2 });
  expect(decideStop(stopped, null)).toMatchObject({ kind: 'unchanged' });
  const started = held(stopped, 't1');
  expect(open(started).machine).toEqual({ desired: 'running', volumeGeneration: 1, hostEpoch: 3 });
  expect(decideStop(started, null)).toMatchObject({ code: 'sandbox_busy' });
});

test('a sandbox that is deleted is not there, for turns, sessions and people alike', () => {
  const state = made();
  const gone = take(state, decideDeleteSandbox(state, null)).state;
  expect(gone).toEqual(initialSandbox);
  expect(decideHold(gone, turn('t1'), { ended: null })).toMatchObject({ code: 'sandbox_lost' });
  expect(decideAttach(gone, 's')).toMatchObject({ code: 'not_found' });
  expect(decideReset(gone, NOTHING, null)).toMatchObject({ code: 'not_found' });
});

import { describe, expect, it } from 'vitest';
import type { EventRecord, ModelCall } from '../../../client/client.ts';
import { spansOf, turnsOf } from './waterfall.ts';
import type { Span } from './waterfall.ts';

let made = 0;
const timeOf = (second: number): string => new Date(Date.UTC(2026, 0, 1, 0, 0, second)).toISOString();
/** A record of turn 1 at a second, unless it says otherwise. */
function record(second: number, type: EventRecord['type'], payload: object, turnId = 'tu_1'): EventRecord {
  made++;
  const place = { eventId: `ev_${made}`, cursor: `c${made}`, sessionId: 's', createdAt: timeOf(second) };
  // The payload of each type is what the test says.
  return { ...place, turnId, type, payload } as EventRecord;
}
const message = (second: number, turnId?: string) => record(second, 'command.message', { content: 'do it' }, turnId);
const ended = (second: number, turnId?: string) => record(second, 'turn.completed', { output: '', usage: {} }, turnId);
const answer = (second: number, calls: readonly string[], more: object = {}) =>
  record(second, 'message.assistant', { text: '', toolCalls: calls.map((name) => ({ callId: name, name })), ...more });
const action = (second: number, what: 'pending' | 'claimed' | 'uncertain' | 'completed', more: object = {}) =>
  record(second, `action.${what}`, {
    ...{ actionId: 'ac', generation: 1, kind: 'tool', toolName: 'look', callId: 'look' },
    ...{ outcome: { kind: 'completed', output: 1 } },
    ...more,
  });
const call = (second: number, id: string, more: Partial<ModelCall> = {}): ModelCall => {
  const usage = { totalTokens: 3, costUsd: 0, duplicate: false } as ModelCall['usage'];
  const of = { id, sessionId: 's', turnId: 'tu_1', agentId: 'helper', provider: 'fixture', model: 'any' };
  return { ...of, at: timeOf(second), outcome: 'completed', attempt: 1, latencyMs: 1_000, usage, ...more };
};

const secondOf = (ms: number | null): number | null => (ms === null ? null : (ms - Date.UTC(2026, 0, 1)) / 1_000);
const told = ({ kind, name, state, fromMs, toMs }: Span): string =>
  `${kind} ${name} ${state} ${secondOf(fromMs)}-${secondOf(toMs)}`;
const tell = (records: readonly EventRecord[], calls: readonly ModelCall[] = []) =>
  spansOf(records, 'tu_1', calls).map(told);

describe('the waterfall of a turn', () => {
  it('has calls of models with their attempts, and tools from their offer on', () => {
    const failed = call(0, 'mc_0', { outcome: 'failed' });
    const calls = [failed, call(2, 'mc_1', { attempt: 2, firstTokenMs: 400 }), call(9, 'mc_2')];
    const records = [
      ...[message(0), answer(3, ['look'], { modelCallId: 'mc_1' }), action(3, 'pending'), action(5, 'claimed')],
      ...[action(9, 'completed'), answer(10, [], { modelCallId: 'mc_2' }), ended(10)],
    ];
    const spans = spansOf(records, 'tu_1', calls);
    expect(spans.map(told)).toEqual([
      ...['model any failed 0-1', 'model any completed 2-3', 'tool look completed 3-9', 'model any completed 9-10'],
    ]);
    expect(spans[1]).toMatchObject({ notes: ['attempt 2'], cursor: records[1]?.cursor });
    expect(spans[1]?.parts.map(({ name, fromMs }) => [name, secondOf(fromMs)])).toEqual([
      ['first token', 2],
      ['answer', 2.4],
    ]);
    expect(spans[2]?.parts.map(({ name, fromMs }) => [name, secondOf(fromMs)])).toEqual([
      ['offered', 3],
      ['running', 5],
    ]);
  });

  it('tells that a claim was taken over, and of a call whose end was never recorded', () => {
    const records = [
      ...[message(0), answer(1, ['look']), action(1, 'pending'), action(2, 'claimed'), action(40, 'uncertain')],
      ...[record(40, 'turn.uncertain', { effectIds: ['ac'] })],
      ...[record(50, 'command.respond', { interactionId: 'ac', value: { resolution: 'retry' } })],
      ...[action(50, 'pending', { generation: 2 }), action(51, 'claimed', { generation: 2 }), action(60, 'completed')],
    ];
    const spans = spansOf(records, 'tu_1', [call(0, 'mc_1', { outcome: 'lost', latencyMs: undefined })]);
    expect(spans.map(told)).toEqual([
      ...['model any lost 0-0', 'model answer completed 1-1', 'tool look completed 1-60'],
      'wait what became of a lost call answered 40-50',
    ]);
    expect(spans[2]?.notes).toEqual([
      ...['its executor was lost: not known whether it ran', 'offered again, generation 2'],
      'taken over, generation 2',
    ]);
  });

  it('has what waited for a person, and for another turn', () => {
    const approval = { interactionId: 'ask', kind: 'approval', toolName: 'pay' };
    const records = [
      ...[message(0, 'tu_0'), message(1), ended(4, 'tu_0'), answer(5, ['pay'])],
      ...[record(5, 'turn.paused', { interactions: [approval] })],
      ...[record(6, 'turn.paused', { interactions: [approval] })],
    ];
    const open = ['queue waits behind another turn waited 1-4', 'model answer completed 5-5'];
    expect(tell(records)).toEqual([...open, 'wait approval of pay open 5-null', 'tool pay called 5-null']);
    const denied = record(8, 'command.approve', { interactionId: 'ask', approved: false });
    expect(tell([...records, denied])).toContain('wait approval of pay denied 5-8');
    expect(tell([...records, ended(9), ended(30, 'tu_2')])).toEqual([
      ...open,
      ...['wait approval of pay ended 5-9', 'tool pay ended 5-9'],
    ]);
  });

  it('begins a command of a sandbox when it ran', () => {
    const exec = { sandboxId: 'sb', tool: 'bash', command: 'ls', durationMs: 2_000, cpuMs: 9, bytesWritten: 0 };
    const records = [
      ...[message(0), answer(1, ['bash']), record(9, 'sandbox.exec', { ...exec, outcome: 'completed' })],
      action(9, 'completed', { kind: 'sandbox', toolName: 'bash', callId: 'bash' }),
    ];
    expect(tell(records)).toContain('tool bash completed 7-9');
  });

  it('nests the work of an agent used as a tool, its failed calls too', () => {
    const agent = { id: 'finder', path: 'helper/finder', delegationId: 'de' };
    const records = [
      ...[message(0), answer(1, ['look', 'ask'], { modelCallId: 'mc_0' })],
      record(2, 'delegation.started', { agent, callId: 'ask', task: 'find it' }),
      answer(5, ['look'], { modelCallId: 'mc_2', agent }),
      action(5, 'pending', { agent }),
      action(6, 'completed', { agent }),
      record(8, 'delegation.completed', { agent, callId: 'ask', outcome: { kind: 'failed' } }),
    ];
    const calls = [
      ...[call(0, 'mc_0'), call(2, 'mc_1', { agentId: 'finder', outcome: 'failed' })],
      call(4, 'mc_2', { agentId: 'finder' }),
    ];
    const spans = spansOf(records, 'tu_1', calls);
    expect(spans.map(told)).toEqual([
      'model any completed 0-1',
      ...['tool look called 1-null', 'agent finder failed 1-8'],
    ]);
    expect(spans[2]?.children.map(told)).toEqual([
      ...['model any failed 2-3', 'model any completed 4-5', 'tool look completed 5-6'],
    ]);
  });

  it('knows the turns, also one whose beginning is missing', () => {
    const turns = turnsOf([ended(1, 'tu_0'), message(2), ended(3), message(4, 'tu_2')]);
    expect(turns.map(({ turnId, outcome, text }) => [turnId, outcome, text])).toEqual([
      ['tu_0', 'completed', null],
      ['tu_1', 'completed', 'do it'],
      ['tu_2', 'active', 'do it'],
    ]);
  });
});

import { describe, expect, it } from 'vitest';
import type { EventRecord } from '../../../client/client.ts';
import { seenAt, toolsOf } from './seen.ts';

let made = 0;
/** A record of turn 1, unless it says otherwise. */
function record<T extends EventRecord['type']>(type: T, payload: object, turnId: string | null = 'tu_1'): EventRecord {
  made++;
  const place = { eventId: `ev_${made}`, cursor: `c${made}`, sessionId: 's', createdAt: '2026-01-01T00:00:00.000Z' };
  // The payload of each type is what the test says.
  return { ...place, turnId, type, payload } as EventRecord;
}
const message = (content: string, turnId = 'tu_1', more: object = {}) =>
  record('command.message', { requestId: 'r', content, ...more }, turnId);
const answer = (text: string, calls: readonly string[] = [], more: object = {}) =>
  record('message.assistant', { text, toolCalls: calls.map((name) => ({ callId: name, name, input: {} })), ...more });
const result = (name: string, output: unknown, more: object = {}) =>
  record('action.completed', {
    ...{ actionId: 'ac', kind: 'tool', toolName: name, callId: name, outcome: { kind: 'completed', output } },
    ...more,
  });
const hook = (scope: 'turn' | 'step', output: unknown) =>
  record('action.completed', {
    ...{ actionId: 'ac', kind: 'hook', hook: { at: 'before', scope }, callId: 'h' },
    outcome: { kind: 'completed', output },
  });
const ended = (turnId = 'tu_1') => record('turn.completed', { output: '', usage: {} }, turnId);
const texts = (records: readonly EventRecord[]) =>
  seenAt(records).messages.map(
    ({ role, text, output }) => `${role}: ${output === undefined ? text : JSON.stringify(output)}`,
  );

describe('what the model saw', () => {
  it('is the conversation before the answer that the record is', () => {
    const records = [message('hello'), answer('', ['look']), result('look', 5), answer('it is 5')];
    expect(texts(records)).toEqual(['user: hello', 'assistant: ', 'tool: 5']);
    expect(texts(records.slice(0, 3))).toEqual(['user: hello', 'assistant: ', 'tool: 5']);
  });

  it('has no message that waits behind a turn, and has it after that turn', () => {
    const records = [message('one'), message('two', 'tu_2'), answer('to one'), ended()];
    expect(texts(records.slice(0, 3))).toEqual(['user: one']);
    expect(texts(records)).toEqual(['user: one', 'assistant: to one', 'user: two']);
  });

  it('has no message of a turn that was cancelled before it began', () => {
    const records = [message('one'), message('two', 'tu_2'), record('turn.cancelled', {}, 'tu_2'), ended()];
    expect(texts(records)).toEqual(['user: one']);
  });

  it('waits for a turn whose message is older than the records', () => {
    expect(texts([answer('half', ['look']), message('two', 'tu_2')])).toEqual(['assistant: half']);
  });

  it('answers calls that a turn left open before the next message', () => {
    const records = [message('one'), answer('', ['look']), record('turn.cancelled', {}), message('two', 'tu_2')];
    expect(texts(records)).toEqual([
      ...['user: one', 'assistant: '],
      'tool: {"error":{"code":"cancelled","message":"The turn ended before this call was answered."}}',
      'user: two',
    ]);
  });

  it('has what hooks changed, for the step or the turn that they changed', () => {
    const records = [
      message('one'),
      hook('turn', { input: 'uno' }),
      hook('step', { instructions: 'be short', tools: [] }),
    ];
    expect(texts(records)).toEqual(['user: uno']);
    expect(seenAt(records)).toMatchObject({ stepInstructions: 'be short', stepTools: [] });
    expect(seenAt([...records, answer('si', ['look']), result('look', 1)]).stepTools).toBeUndefined();
  });

  it('is of the agent that works at the record, and its result is told to the one that asked', () => {
    const agent = { id: 'sub', path: 'main/sub', delegationId: 'dg_1' };
    const outcome = { kind: 'completed', output: 'done' };
    const records = [
      ...[message('one'), answer('', ['sub'])],
      record('delegation.started', { agent, callId: 'sub', task: 'dig' }),
      answer('', ['look'], { agent }),
      result('look', 3, { agent }),
      record('delegation.completed', { agent, callId: 'sub', status: 'completed', outcome }),
    ];
    expect(seenAt(records.slice(0, 5)).agent).toEqual(agent);
    expect(texts(records.slice(0, 5))).toEqual(['user: dig', 'assistant: ', 'tool: 3']);
    expect(texts(records)).toEqual(['user: one', 'assistant: ', 'tool: "done"']);
  });

  it('names the tools of the manifest and of servers, as far as a hook left them', () => {
    const connected = record('mcp.state', { server: 'wiki', state: 'connected', tools: ['wiki_find'] });
    const manifest = { instructions: '', tools: [{ name: 'pay', inputSchema: {} }], sandboxTools: ['read'] } as const;
    const names = (seen: ReturnType<typeof seenAt>) => toolsOf(manifest, seen).map(({ name }) => name);
    expect(names(seenAt([connected]))).toEqual(['pay', 'read', 'wiki_find']);
    expect(names(seenAt([connected, hook('step', { tools: ['read'] })]))).toEqual(['read']);
  });

  it('has the manifest that came with the message of its turn', () => {
    const manifest = { instructions: 'other' };
    const records = [message('one', 'tu_1', { manifest }), answer('x')];
    expect(seenAt(records).manifest).toEqual(manifest);
    expect(seenAt([...records, ended()]).manifest).toBeUndefined();
  });
});

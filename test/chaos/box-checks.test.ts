import { createHash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { callKey, checkBoxes } from './box-checks.ts';
import type { BoxCall, BoxEvent } from './box-checks.ts';

const said = (mark: string, text: string): object => {
  const sha256 = createHash('sha256').update(text).digest('hex');
  return { kind: 'completed', output: { stdout: `${mark} ${text.split('\n').length - 1} ${sha256}\n`, exitCode: 0 } };
};
const text = (...marks: string[]): string => marks.map((mark) => `b ${mark}\ne ${mark}\n`).join('');
const LOST = { kind: 'failed', code: 'sandbox_lost', message: 'lost' };

interface Run {
  readonly kind: 'virtual' | 'pod';
  readonly events: readonly Omit<BoxEvent, 'position'>[];
  readonly calls?: Readonly<Record<string, unknown>>;
  readonly log: string;
  readonly turnEnds?: Readonly<Record<string, number>>;
}

/** Calls are named as their marks; outcomes are what their session was told. */
function check({ kind, events, calls = {}, log, turnEnds = {} }: Run) {
  const asked = Object.entries(calls).map(([mark, outcome]): [string, BoxCall] => {
    return [callKey('t', mark), { sessionId: 's', tool: 'bash', mark, path: null, outcome }];
  });
  const files = new Map(log === '' ? [] : [['log', log]]);
  const placed = events.map((event, n) => ({ ...event, position: n + 1 }));
  const ends = new Map(Object.entries(turnEnds));
  const { problems, lost, doubled } = checkBoxes([{ sandboxId: 'b', kind, events: placed, files }], {
    calls: new Map(asked),
    turnEnds: ends,
  });
  return { problems: problems.length, lost, doubled };
}

const held = (turnId = 't', epoch = 1) => ({ type: 'sandbox.held', data: { turnId, epoch } });
const released = { type: 'sandbox.released', data: { epoch: 1 } };
const called = (callId: string) => ({ type: 'sandbox.called', data: { turnId: 't', epoch: 1, callId } });
const executed = (callId: string, outcome: object, files: object | null = null) => {
  return { type: 'sandbox.executed', data: { turnId: 't', epoch: 1, callId, outcome, files } };
};
const virtualCall = (mark: string, log: string, bytes = log.length) =>
  executed(mark, said(mark, log), { manifest: log, files: 1, bytes });
const both = { a: said('a', text('a')), c: said('c', text('a', 'c')) };
const FINE = { problems: 0, lost: 0, doubled: 0 };

describe('files that are history', () => {
  const events = [held(), virtualCall('a', text('a')), virtualCall('c', text('a', 'c'))];
  const virtual = (more: Partial<Run>) => check({ kind: 'virtual', events, calls: both, log: text('a', 'c'), ...more });

  test('are what the calls make of them', () => expect(virtual({})).toEqual(FINE));
  test('of which an effect is missing', () => expect(virtual({ log: text('a') }).problems).toBe(1));
  test('of which all is missing', () => expect(virtual({ log: '' })).toMatchObject({ lost: 1 }));
  test('with an effect twice', () => expect(virtual({ log: text('a', 'c', 'c') }).problems).toBe(1));
  test('that a manifest counts wrongly', () => {
    expect(
      virtual({ events: [held(), virtualCall('a', text('a'), 1), virtualCall('c', text('a', 'c'))] }).problems,
    ).toBe(1);
  });
  test('with a call that is recorded twice', () => {
    expect(virtual({ events: [...events, virtualCall('c', text('a', 'c', 'c'))] })).toMatchObject({ doubled: 1 });
  });
  test('with a call that its session was told otherwise', () => {
    expect(virtual({ calls: { ...both, c: LOST } }).problems).toBe(1);
  });
  test('without a call that its session was told of', () => {
    expect(virtual({ calls: { ...both, d: said('d', '') } })).toMatchObject({ lost: 1 });
  });
});

describe('a volume', () => {
  const events = [held(), called('a'), executed('a', LOST), called('c'), executed('c', said('c', text('a', 'c')))];
  const pod = (log: string, calls: Run['calls'] = { a: LOST, c: said('c', text('a', 'c')) }) =>
    check({ kind: 'pod', events, calls, log });

  test('has a call that is lost once, if it was made', () => expect(pod(text('a', 'c'))).toEqual(FINE));
  test.each([
    ['a call that has succeeded is missing', text('a')],
    ['a call that has succeeded is there in part', `${text('a')}b c\n`],
    ['a call is there twice', text('a', 'c', 'c')],
    ['a call is between the lines of another', 'b a\nb c\ne a\ne c\n'],
    ['calls are in another order', text('c', 'a')],
    ['nobody made a call', text('a', 'c', 'x')],
  ])('%s', (_what, log) => expect(pod(log).problems).toBeGreaterThan(0));
});

describe('a sandbox', () => {
  const turns = (events: Run['events'], turnEnds: Run['turnEnds'] = {}) =>
    check({ kind: 'virtual', events, log: '', turnEnds }).problems;

  test('that a turn leaves at its end is taken by the next', () => {
    const ended = { type: 'sandbox.labelled', data: {} };
    expect(turns([held(), ended, released, held('u', 2)], { t: 2 })).toBe(0);
    expect(turns([held(), ended, held('u', 2)], { t: 2 })).toBe(0);
  });
  test('that two turns have', () => expect(turns([held(), held('u', 2)], { t: 9 })).toBe(1));
  test('that a turn gives back before its end', () => expect(turns([held(), released])).toBe(1));
  test('with a call of a turn that does not have it', () => {
    expect(turns([held('u'), called('a')])).toBe(1);
  });
  test('that is held with an older epoch', () => expect(turns([held('t', 2), held('t', 1)])).toBe(1));
});

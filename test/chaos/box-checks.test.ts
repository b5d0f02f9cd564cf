import { createHash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { putFile } from './box-acts.ts';
import type { BoxAct, BoxEvent } from './box-acts.ts';
import { historyOf } from './box-evidence.ts';
import { callKey, checkBoxes } from './box-checks.ts';
import type { BoxCall } from './box-checks.ts';

const said = (mark: string, text: string): object => {
  const sha256 = createHash('sha256').update(text).digest('hex');
  return { kind: 'completed', output: { stdout: `${mark} ${text.split('\n').length - 1} ${sha256}\n`, exitCode: 0 } };
};
const text = (...marks: string[]): string => marks.map((mark) => `b ${mark}\ne ${mark}\n`).join('');
const LOST = { kind: 'failed', code: 'sandbox_lost', message: 'lost' };

interface Run {
  readonly kind: 'virtual' | 'pod';
  readonly events: readonly Omit<BoxEvent, 'storedAt'>[];
  readonly calls?: Readonly<Record<string, unknown>>;
  readonly log: string;
  readonly acts?: readonly Partial<BoxAct>[];
  /** What clients have put there. */
  readonly put?: Readonly<Record<string, string>>;
  readonly turnEnds?: Readonly<Record<string, number>>;
}

/** Calls are named as their marks; outcomes are what their session was told. */
function check({ kind, events, calls = {}, log, turnEnds = {}, acts = [], put = {} }: Run) {
  const asked = Object.entries(calls).map(([mark, outcome]): [string, BoxCall] => {
    return [callKey('t', mark), { sessionId: 's', tool: 'bash', mark, path: null, outcome }];
  });
  const files = new Map([...(log === '' ? [] : [['log', log] as const]), ...Object.entries(put)]);
  const placed = events.map((event, n) => ({ ...event, storedAt: n + 1 }));
  const ends = new Map(Object.entries(turnEnds));
  const { problems, lost, doubled } = checkBoxes([{ sandboxId: 'b', kind, events: placed, files }], {
    calls: new Map(asked),
    turnEnds: ends,
    acts: acts.map((act, n) => ({ ...actOf(n), ...act })),
  });
  return { problems: problems.length, lost, doubled };
}

const actOf = (n: number): BoxAct => {
  const fixed = { sandboxId: 'b', what: 'reset', outcome: 'accepted', path: '', text: '' } as const;
  return { ...fixed, begunMs: 2 * n, endedMs: 2 * n + 1 };
};
const put = (n: number) => ({ what: 'put', ...putFile(n) }) as const;
const there = (...ns: number[]) => Object.fromEntries(ns.map((n) => [putFile(n).path, putFile(n).text]));

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

describe('what clients do', () => {
  const bytes = text('a').length;
  const written = { type: 'sandbox.written', data: { files: { manifest: 'm', bytes: bytes + 5 } } };
  const reset = { type: 'sandbox.reset', data: { files: null } };
  const ended = { type: 'sandbox.labelled', data: {} };
  const events = [held(), virtualCall('a', text('a')), ended, written];
  const calls = { a: said('a', text('a')) };
  const fine: Run = {
    kind: 'virtual',
    events,
    calls,
    log: text('a'),
    acts: [put(5)],
    put: there(5),
    turnEnds: { t: 3 },
  };
  const virtual = (more: Partial<Run>) => check({ ...fine, ...more });

  test('is in the history', () => {
    expect(virtual({})).toEqual(FINE);
    expect(virtual({ acts: [{ ...put(5), outcome: 'unknown' }] })).toEqual(FINE);
    expect(virtual({ events: [...events, reset], acts: [put(5), {}], log: '', put: {} })).toEqual(FINE);
    const again = virtualCall('c', text('c'));
    const both = { ...calls, c: said('c', text('c')) };
    const after = { events: [...events, reset, held('t', 2), again], calls: both, log: text('c'), put: {} };
    expect(virtual({ ...after, acts: [put(5), {}], turnEnds: { t: 3 } }).problems).toBe(1);
  });
  test.each<[string, Partial<Run>, object]>([
    ['a file that was put there is in no record', { acts: [put(5), put(6)] }, { lost: 1 }],
    ['a file that was put there is gone', { put: {} }, { lost: 1 }],
    ['nobody put a file', { acts: [] }, { problems: 2 }],
    ['a file was refused', { acts: [{ ...put(5), outcome: 'refused' }] }, { problems: 2 }],
    ['a file is put there under a turn', { turnEnds: {} }, { problems: 1 }],
    ['a file is there after a reset', { events: [...events, reset], acts: [put(5), {}] }, { problems: 2 }],
    ['nobody asked for a reset', { events: [...events, reset], log: '', put: {} }, { doubled: 1 }],
    ['a reset that was accepted is in no record', { acts: [put(5), {}] }, { lost: 1 }],
    [
      'something happens after the end',
      {
        events: [...events, { type: 'sandbox.deleted', data: {} }, held('u', 2)],
        acts: [put(5), { what: 'delete' }],
        log: '',
        put: {},
      },
      { problems: 1 },
    ],
  ])('%s', (_what, more, wanted) => expect(virtual(more)).toMatchObject(wanted));

  const machine = (hostEpoch: number, type = 'sandbox.stopped') => ({ type, data: { hostEpoch } });
  const pod = (more: Partial<Run>) =>
    check({ kind: 'pod', events: [], log: '', acts: [put(5)], put: there(5), ...more });
  test('is on the volume', () => {
    expect(pod({})).toEqual(FINE);
    expect(pod({ events: [reset], acts: [put(5), {}, put(6)], put: there(6) })).toEqual(FINE);
    expect(pod({ acts: [{ ...put(5), outcome: 'unknown' }], put: {} })).toEqual(FINE);
    const stops = [machine(2), machine(3, 'sandbox.started'), machine(4)];
    expect(pod({ events: stops, acts: [put(5), { what: 'stop' }, { what: 'stop' }, { what: 'stop' }] })).toEqual(FINE);
  });
  test.each<[string, Partial<Run>, object]>([
    ['a file that was put on a volume is gone', { put: {} }, { lost: 1 }],
    ['nobody put a file on a volume', { put: there(5, 6) }, { problems: 1 }],
    ['a file on a volume was refused', { acts: [{ ...put(5), outcome: 'refused' }] }, { problems: 1 }],
    ['a file on a volume has other bytes', { put: { 'put/5': 'y' } }, { problems: 1 }],
    ['a file on a volume outlives a reset', { events: [reset], acts: [put(5), {}] }, { problems: 1 }],
    [
      'a stop has no number of its own',
      { events: [machine(2), machine(2)], acts: [put(5), { what: 'stop' }, { what: 'stop' }] },
      { problems: 1 },
    ],
  ])('%s', (_what, more, wanted) => expect(pod(more)).toMatchObject(wanted));
});

test('what is printed of a sandbox has its log, the calls and ends of its turns, what clients did and its files', () => {
  const call = { sessionId: 's', tool: 'bash', mark: 'the mark', path: null, outcome: null };
  const box = { sandboxId: 'b', kind: 'pod', events: [{ ...called('a'), storedAt: 7 }] } as const;
  const printed = historyOf(
    { ...box, files: new Map([['log', 'b x']]) },
    { calls: new Map([[callKey('t', 'a'), call]]), turnEnds: new Map([['t', 9]]), acts: [actOf(0)] },
  );
  expect(printed.split('\n')).toEqual([
    expect.stringMatching(/^pod sandbox b/),
    JSON.stringify({ storedAt: 7, ...called('a'), call, turnEnd: 9 }),
    JSON.stringify(actOf(0)),
    '["log","b x"]',
  ]);
});

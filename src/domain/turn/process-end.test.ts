import { describe, expect, test } from 'vitest';
import { given, open, START_MS } from '../../../test/support/given.ts';
import { at, cancellation, OTHER_WORKER, TURN, usage, WORKER } from '../../../test/support/sessions.ts';
import { advancing, answer, call, claiming, failure, settling, started, turnOf } from '../../../test/support/turns.ts';
import type { Step } from '../../../test/support/turns.ts';
import { decideCancel, decideTurn } from '../session/decide.ts';
import { expire, fail, handBack, reportLate } from './process.ts';

describe('a worker that stops', () => {
  test('hands the turn over between two steps', () => {
    const state = given(started())
      .when(settling(1, answer('', ['find']), { release: true }))
      .thenTypes('model.completed', 'message.assistant', 'tool.completed', 'segment.released');
    expect(turnOf(state)).toMatchObject({ claim: null, epoch: 1, pending: null });
    given(state).when(advancing(0)).thenNothing();
    const next = given(state).when(claiming(OTHER_WORKER)).thenTypes('segment.claimed', 'model.requested');
    expect(turnOf(next)).toMatchObject({ epoch: 2, step: 1, answered: 1, pending: { callId: call(2) } });
  });

  test('finishes what needs no other step', () => {
    given(started())
      .when(settling(1, answer('Hi.'), { release: true }))
      .thenTypes('model.completed', 'message.assistant', 'turn.completed');
    given(started())
      .when(settling(1, failure(null), { release: true }))
      .thenTypes('model.failed', 'turn.failed');
  });

  test('hands over a turn that waits for another try', () => {
    given(started())
      .when(settling(1, failure(0), { release: true }))
      .thenTypes('model.failed', 'segment.released');
    const waiting = given(started())
      .when(settling(1, failure(0)))
      .thenTypes('model.failed');
    given(waiting).when(advancing(10, true)).thenTypes('segment.released');
  });

  test('before its call has answered gives the call up, and only its own turn', () => {
    const handing =
      (workerId: string): Step =>
      (state) =>
        decideTurn(state, START_MS, (draft) => {
          handBack(draft, workerId);
        });
    given(started()).when(handing(OTHER_WORKER)).thenNothing();
    given(started({}, null)).when(handing(WORKER)).thenNothing();
    const state = given(started()).when(handing(WORKER)).thenTypes('effect.uncertain', 'segment.released');
    expect(turnOf(state)).toMatchObject({ claim: null, pending: null, answered: 0 });
    const next = given(state).when(claiming(OTHER_WORKER)).thenTypes('segment.claimed', 'model.requested');
    expect(turnOf(next)).toMatchObject({ answered: 0, calls: 2 });
  });
});

describe('the end', () => {
  const waiting = given(started())
    .when(settling(1, failure(0)))
    .thenTypes('model.failed');
  const released = given(waiting).when(advancing(10, true)).thenTypes('segment.released');

  test.each([
    ['unclaimed', started({}, null), []],
    ['while the model works', started(), ['effect.uncertain']],
    ['while it waits for another try', waiting, []],
    ['while no worker holds it', released, []],
  ] as const)('by a cancel, %s', (_, state, before) => {
    const end = given(state)
      .when((now) => decideCancel(now, cancellation(), at(0)))
      .thenTypes('command.cancel', ...before, 'turn.cancelled');
    expect(open(end)).toMatchObject({ turn: null, lastTurn: { outcome: 'cancelled' } });
  });

  test.each([
    ['unclaimed', started({ maxTurnSeconds: 1 }, null), []],
    ['while the model works', started({ maxTurnSeconds: 1 }), ['effect.uncertain']],
  ] as const)('by its deadline, %s', (_, state, before) => {
    const expiring =
      (ms: number): Step =>
      (now) =>
        decideTurn(now, START_MS + ms, (draft) => {
          expire(draft, at(ms));
        });
    given(state).when(expiring(999)).thenNothing();
    const end = given(state)
      .when(expiring(1_000))
      .thenTypes(...before, 'turn.failed');
    expect(open(end).lastTurn?.outcome).toBe('failed');
  });

  test('by a failure from outside, once', () => {
    const failing: Step = (state) =>
      decideTurn(state, START_MS, (draft) => {
        fail(draft, { code: 'c', message: 'm' }, at(0));
        fail(draft, { code: 'again', message: 'm' }, at(0));
      });
    const end = given(started()).when(failing).thenTypes('effect.uncertain', 'turn.failed');
    given(end).when(failing).thenNothing();
    given(end).when(advancing(0)).thenNothing();
  });
});

test('the bill of a given-up call is added, to the turn while it runs and to the session ever after', () => {
  const late = usage({ duplicate: true });
  const reporting: Step = (state) =>
    decideTurn(state, START_MS, (draft) => {
      reportLate(draft, { turnId: TURN, callId: call(1), usage: late });
    });
  const taken = given(started())
    .when(claiming(OTHER_WORKER))
    .thenTypes('segment.claimed', 'effect.uncertain', 'model.requested');
  const billed = given(taken)
    .when(reporting)
    .thenEvents([{ type: 'model.reported', data: { turnId: TURN, callId: call(1), usage: late } }]);
  expect([turnOf(billed).usage, open(billed).usage]).toEqual([late, late]);
  expect(turnOf(billed)).toMatchObject({ pending: { callId: call(2) }, answered: 0, step: 0 });
  const ended = given(taken)
    .when((state) => decideCancel(state, cancellation(), at(0)))
    .thenTypes('command.cancel', 'effect.uncertain', 'turn.cancelled');
  const after = given(ended).when(reporting).thenTypes('model.reported');
  expect(open(after)).toMatchObject({ turn: null, usage: late });
  given([]).when(reporting).thenNothing();
});

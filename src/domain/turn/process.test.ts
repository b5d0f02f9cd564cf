import { describe, expect, test } from 'vitest';
import { fold, given, open, START_MS } from '../../../test/support/given.ts';
import { at, OTHER_WORKER, TURN, usage, WORKER, created } from '../../../test/support/sessions.ts';
import {
  advancing,
  answer,
  call,
  claiming,
  effect,
  failure,
  settling,
  started,
  turnOf,
} from '../../../test/support/turns.ts';
import { Scenario } from '../../../test/support/turn-scenario.ts';
import type { Step } from '../../../test/support/turns.ts';
import { decideTurn } from '../session/decide.ts';
import { advance } from './process.ts';
import type { ModelOutcome } from './model-outcome.ts';
import { RETRIES_MAX, RETRIES_MIN, RETRY_FOR_MS } from './retries.ts';
import { statusOf } from './summary.ts';
import { ZERO_TOTAL } from './usage.ts';

describe('a claim', () => {
  test('asks the model', () => {
    const state = given(started({}, null))
      .when(claiming(OTHER_WORKER))
      .thenEvents([
        { type: 'segment.claimed', data: { turnId: TURN, epoch: 1, workerId: OTHER_WORKER } },
        {
          type: 'model.requested',
          data: {
            turnId: TURN,
            effectId: effect(1),
            callId: call(1),
            step: 0,
            attempt: 0,
            provider: 'fixture',
            model: 'echo',
          },
        },
      ]);
    expect(turnOf(state)).toMatchObject({
      claim: { workerId: OTHER_WORKER, epoch: 1 },
      pending: { epoch: 1 },
      calls: 1,
    });
  });

  test('by another fences the worker before, whose call is lost and asked again as another attempt', () => {
    const before = started();
    const state = given(before)
      .when(claiming(OTHER_WORKER))
      .thenTypes('segment.claimed', 'effect.uncertain', 'model.requested');
    expect(turnOf(state)).toMatchObject({
      epoch: 2,
      calls: 2,
      pending: { callId: call(2), step: 0, attempt: 1, epoch: 2 },
      // What is lost says nothing about the provider.
      attempts: 0,
    });
    expect(turnOf(state).answered).toBe(turnOf(before).answered);
    const { events } = given(before).when(claiming(OTHER_WORKER));
    expect(events[1]).toEqual({
      type: 'effect.uncertain',
      data: { turnId: TURN, effectId: effect(1), kind: 'model', reason: 'lost', callId: call(1) },
    });
  });

  test('of nothing changes nothing', () => {
    given([created()]).when(claiming(WORKER)).thenNothing();
    given([]).when(claiming(WORKER)).thenNothing();
  });

  test('after the deadline ends the turn', () => {
    const { events } = given(started({ maxTurnSeconds: 1 })).when(claiming(OTHER_WORKER, 1_000));
    expect(events.map(({ type }) => type)).toEqual(['segment.claimed', 'effect.uncertain', 'turn.failed']);
    expect(events.at(-1)?.data).toMatchObject({ error: { code: 'turn_timeout' } });
  });
});

describe('an answer', () => {
  test('without tool calls completes the turn with its text and the usage of all steps', () => {
    const state = given(started())
      .when(settling(1, answer('Hi.'), { ms: 10 }))
      .thenEvents([
        { type: 'model.completed', data: { turnId: TURN, callId: call(1), step: 0, usage: usage() } },
        {
          type: 'message.assistant',
          data: { turnId: TURN, step: 0, modelCallId: call(1), text: 'Hi.', toolCalls: [] },
        },
        { type: 'turn.completed', data: { turnId: TURN, output: 'Hi.', usage: usage() } },
      ]);
    expect(open(state)).toMatchObject({ turn: null, lastTurn: { turnId: TURN, outcome: 'completed' }, usage: usage() });
  });

  test('with calls of tools that are not there gets a failed result for each, and the model is asked again', () => {
    const state = given(started())
      .when(settling(1, answer('', ['find', 'get'])))
      .thenTypes('model.completed', 'message.assistant', 'tool.completed', 'tool.completed', 'model.requested');
    expect(turnOf(state)).toMatchObject({ step: 1, answered: 1, calls: 2, openToolCalls: [], pending: { step: 1 } });
    expect(open(state).conversation.messages.slice(-2)).toMatchObject([
      { role: 'tool', callId: 't0', failed: true, output: { error: { code: 'tool_unknown' } } },
      { role: 'tool', callId: 't1', name: 'get', failed: true },
    ]);
    const end = given(state)
      .when(settling(2, answer('Done.')))
      .thenTypes('model.completed', 'message.assistant', 'turn.completed');
    expect(open(end).usage).toMatchObject({ inputTokens: 20, costUsd: 0.5 });
  });

  test('that was cut at its limit of tokens is marked, and none of its calls is made', () => {
    const find = { name: 'find', inputSchema: { type: 'object' } };
    const scenario = new Scenario({ tools: [find] });
    scenario.message();
    const toolCalls = [{ callId: 't', name: 'find', input: {} }];
    const cut = { kind: 'completed', text: 'I look', toolCalls, usage: usage(), finishReason: 'length' } as const;
    expect(scenario.settle(cut)).toEqual(['model.completed', 'message.assistant', 'tool.completed', 'model.requested']);
    expect(scenario.last('message.assistant').truncated).toBe(true);
    expect(scenario.last('tool.completed').outcome).toMatchObject({ kind: 'failed', code: 'tool_call_truncated' });
    expect(scenario.answer('', [{ name: 'find' }])).toContain('action.pending');
    expect(scenario.last('message.assistant')).not.toHaveProperty('truncated');
  });

  test('that was cut is not made after a failed turn either', () => {
    const find = { name: 'find', inputSchema: { type: 'object' } };
    const scenario = new Scenario({ tools: [find], limits: { maxTurnSeconds: 1 } });
    scenario.message();
    scenario.ms += 1_000;
    const toolCalls = [{ callId: 't', name: 'find', input: {} }];
    const cut = { kind: 'completed', text: '', toolCalls, usage: usage(), finishReason: 'length' } as const;
    expect(scenario.settle(cut)).toEqual(['model.completed', 'message.assistant', 'turn.failed']);
    expect(scenario.retry()).not.toContain('action.pending');
    expect(scenario.last('tool.completed').outcome).toMatchObject({ code: 'tool_call_truncated' });
  });

  test('says how the attempt went, and so does a failure', () => {
    const figures = { finishReason: 'stop', latencyMs: 20, firstTokenMs: 5 } as const;
    const { finishReason, ...took } = figures;
    const answered = given(started()).when(settling(1, { ...answer('Hi.'), finishReason, took }));
    expect(answered.events[0]).toMatchObject({ type: 'model.completed', data: figures });
    const failed = given(started()).when(settling(1, { ...failure(null), took: { latencyMs: 7 } }));
    expect(failed.events[0]).toMatchObject({ type: 'model.failed', data: { latencyMs: 7 } });
    expect(failed.events[0]?.data).not.toHaveProperty('finishReason');
  });

  test('that was cut off has used what is estimated of it', () => {
    const estimated = usage({ tokensReported: false });
    const state = given(started())
      .when(settling(1, { ...failure(0), usage: estimated }))
      .thenTypes('model.failed');
    expect(turnOf(state).usage).toEqual(estimated);
  });

  test('at the last step ends the turn when it wants another', () => {
    const one = started({ maxSteps: 1 });
    const { events } = given(one).when(settling(1, answer('', ['find'])));
    expect(events.map(({ type }) => type)).toEqual([
      'model.completed',
      'message.assistant',
      'tool.completed',
      'turn.failed',
    ]);
    expect(events.at(-1)?.data).toMatchObject({ error: { code: 'max_steps_exceeded' } });
    given(one)
      .when(settling(1, answer('Done.')))
      .thenTypes('model.completed', 'message.assistant', 'turn.completed');
  });

  test('after the deadline is recorded, then the turn ends as failed', () => {
    const { events } = given(started({ maxTurnSeconds: 1 })).when(settling(1, answer('', ['find']), { ms: 1_000 }));
    expect(events.map(({ type }) => type)).toEqual(['model.completed', 'message.assistant', 'turn.failed']);
    expect(events.at(-1)?.data).toMatchObject({ error: { code: 'turn_timeout' } });
  });

  test('of a call that is not awaited changes nothing: a fenced worker, a second answer, an ended turn', () => {
    const lost = given(started())
      .when(claiming(OTHER_WORKER))
      .thenTypes('segment.claimed', 'effect.uncertain', 'model.requested');
    given(lost)
      .when(settling(1, answer('Late.')))
      .thenNothing();
    given(lost)
      .when(settling(1, failure(0)))
      .thenNothing();
    const ended = given(started())
      .when(settling(1, answer('Hi.')))
      .thenTypes('model.completed', 'message.assistant', 'turn.completed');
    given(ended)
      .when(settling(1, answer('Hi.')))
      .thenNothing();
    given(started({}, null))
      .when(settling(1, answer('Hi.')))
      .thenNothing();
  });
});

describe('a failure', () => {
  test('that is terminal fails the turn with the same error', () => {
    given(started())
      .when(settling(1, failure(null)))
      .thenEvents([
        {
          type: 'model.failed',
          data: {
            turnId: TURN,
            callId: call(1),
            step: 0,
            error: { code: 'overloaded', message: 'Busy.' },
            usage: failure(null).usage,
            retryAt: null,
          },
        },
        { type: 'turn.failed', data: { turnId: TURN, error: { code: 'overloaded', message: 'Busy.' } } },
      ]);
  });

  /** Fails at once each time that it is tried, until it is not tried any more: the waits before each try, ms. */
  const waitsOf = (outcome: ModelOutcome, { jitter = 1, standsStill = false } = {}) => {
    let state = started({ maxTurnSeconds: 80_000 });
    let ms = 0;
    const waits: number[] = [];
    for (let n = 1; ; n++) {
      state = fold(state, given(state).when(settling(n, outcome, { ms, jitter })).events);
      if (open(state).turn === null) return { waits, state, ms };
      const retryAt = Date.parse(turnOf(state).retryAt ?? '') - START_MS;
      waits.push(retryAt - ms);
      given(state)
        .when(advancing(retryAt - 1))
        .thenNothing();
      state = fold(state, given(state).when(claimed(retryAt)).events);
      expect(turnOf(state)).toMatchObject({ pending: { callId: call(n + 1), step: 0, attempt: n }, retryAt: null });
      if (!standsStill) ms = retryAt;
    }
  };
  /** As a worker does that is shown the turn: it takes it where no worker holds it. */
  const claimed =
    (ms: number): Step =>
    (state) =>
      decideTurn(state, START_MS + ms, (draft) => {
        advance(draft, at(ms, { workerId: WORKER }));
      });

  test.each([0, 0.6, 1])('that is not waits, longer each time, and is tried for two minutes (jitter %d)', (jitter) => {
    const { waits, state, ms } = waitsOf(failure(0), { jitter });
    const spread = 0.5 + jitter / 2;
    expect(waits.slice(0, 8)).toEqual([250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000].map((n) => n * spread));
    expect(ms).toBeGreaterThanOrEqual(RETRY_FOR_MS);
    expect(ms).toBeLessThan(RETRY_FOR_MS + 30_000);
    expect(waits.length).toBeLessThan(RETRIES_MAX);
    expect(open(state).lastTurn?.outcome).toBe('failed');
  });

  test('whose clock stands still is not tried for ever', () => {
    expect(waitsOf(failure(0), { standsStill: true }).waits).toHaveLength(RETRIES_MAX);
  });

  test('of calls that take long is tried three times more all the same, and so is what may be billed', () => {
    const long = waitsOf(failure(RETRY_FOR_MS));
    expect(long.waits).toEqual([RETRY_FOR_MS, RETRY_FOR_MS, RETRY_FOR_MS]);
    const billed: ModelOutcome = { ...failure(0), kind: 'failed', mayBeBilled: true } as ModelOutcome;
    expect(waitsOf(billed).waits).toHaveLength(RETRIES_MIN);
  });

  test('that is waited for longer than a second holds no worker, and one that takes the turn asks once', () => {
    const resting = given(started())
      .when(settling(1, failure(5_000)))
      .thenTypes('model.failed', 'segment.released');
    const until = new Date(START_MS + 5_000).toISOString();
    expect(turnOf(resting)).toMatchObject({ claim: null, wanted: false, restsUntil: until });
    expect(statusOf(turnOf(resting))).toBe('running');
    // A worker that looks before changes nothing, however short the rest of the wait is.
    for (const ms of [1_000, 4_500, 4_999]) given(resting).when(claimed(ms)).thenNothing();
    const taken = given(resting).when(claimed(5_000)).thenTypes('segment.claimed', 'model.requested');
    expect(turnOf(taken)).toMatchObject({ restsUntil: null, claim: { epoch: 2 }, pending: { attempt: 1 } });
    // No worker with room has come: it is offered to all.
    const wanted = given(resting).when(advancing(5_000)).thenTypes('segment.wanted');
    expect(turnOf(wanted)).toMatchObject({ wanted: true, restsUntil: null });
  });

  test.each([
    ['half of the backoff at least', 0, 0, 125],
    ['all of it at most', 0, 1, 250],
    ['what the provider asks for, when that is longer', 7_000, 0, 7_000],
    ['the backoff, when that is longer', 130, 1, 250],
  ])('waits %s', (_, retryAfterMs, jitter, waitMs) => {
    const state = given(started())
      .when(settling(1, failure(retryAfterMs), { jitter }))
      .thenTypes('model.failed', ...(waitMs > 1_000 ? (['segment.released'] as const) : []));
    expect(Date.parse(turnOf(state).retryAt ?? '')).toBe(START_MS + waitMs);
  });

  test('is forgotten after an answer: the next step has all its tries', () => {
    let state = given(started())
      .when(settling(1, failure(0)))
      .thenTypes('model.failed');
    state = given(state).when(advancing(250)).thenTypes('model.requested');
    state = given(state)
      .when(settling(2, answer('', ['find'])))
      .thenTypes('model.completed', 'message.assistant', 'tool.completed', 'model.requested');
    expect(turnOf(state)).toMatchObject({ attempts: 0, pending: { step: 1, attempt: 0 }, answered: 2 });
  });

  test('counts only what the provider has reported', () => {
    const silent = given(started())
      .when(settling(1, failure(0)))
      .thenTypes('model.failed');
    expect(open(silent).usage).toEqual(ZERO_TOTAL);
    const billed: ModelOutcome = {
      kind: 'failed',
      error: { code: 'c', message: 'm' },
      retryAfterMs: 0,
      usage: usage(),
    };
    const state = given(started()).when(settling(1, billed)).thenTypes('model.failed');
    expect([open(state).usage, turnOf(state).usage]).toEqual([usage(), usage()]);
  });

  test('waits no longer than the turn may', () => {
    const waiting = given(started({ maxTurnSeconds: 1 }))
      .when(settling(1, failure(5_000)))
      .thenTypes('model.failed', 'segment.released');
    given(waiting).when(advancing(999)).thenNothing();
    given(waiting).when(advancing(1_000)).thenTypes('turn.failed');
  });

  test('a worker that takes over keeps waiting', () => {
    const waiting = given(started())
      .when(settling(1, failure(0)))
      .thenTypes('model.failed');
    const taken = given(waiting).when(claiming(OTHER_WORKER, 100)).thenTypes('segment.claimed');
    expect(turnOf(taken)).toMatchObject({ epoch: 2, attempts: 1, pending: null });
    given(taken).when(advancing(250)).thenTypes('model.requested');
  });
});

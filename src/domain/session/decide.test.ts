import { describe, expect, test } from 'vitest';
import { fold, given, open, START_MS } from '../../../test/support/given.ts';
import {
  at,
  cancellation,
  created,
  MANIFEST,
  message,
  openCommand,
  TURN,
  usage,
  WORKER,
} from '../../../test/support/sessions.ts';
import { decideCancel, decideDeleteSession, decideMessage, decideOpenSession, decideTurn } from './decide.ts';
import type { SessionEvent } from './events.ts';
import { initialSession } from './state.ts';

const idle = given([created()]).state;
const busy = given(idle)
  .when((state) => decideMessage(state, message(), at(0)))
  .thenTypes('command.message', 'turn.started', 'segment.claimed', 'model.requested');

describe('opening', () => {
  test('an absent session is created', () => {
    const command = openCommand({ subject: 'ada', info: { a: 1 }, labels: { team: 'x' } });
    const state = given([])
      .when((absent) => decideOpenSession(absent, command, null))
      .thenEvents([{ type: 'session.created', data: command }], null);
    expect(open(state)).toMatchObject({ subject: 'ada', labels: { team: 'x' }, turn: null, createdPosition: 1 });
  });

  test('the same body again changes nothing', () => {
    given([created({ labels: { a: '1' } })])
      .when((state) => decideOpenSession(state, openCommand({ labels: { a: '1' } }), null))
      .thenNothing(null);
  });

  test.each([
    ['another value', { a: '2' }],
    ['another name', { b: '1' }],
    ['one more', { a: '1', b: '2' }],
    ['one less', {}],
  ])('labels may change: %s', (_, labels: Record<string, string>) => {
    const state = given([created({ labels: { a: '1' } })])
      .when((before) => decideOpenSession(before, openCommand({ labels }), null))
      .thenEvents([{ type: 'session.updated', data: { labels } }]);
    expect(open(state).labels).toEqual(labels);
  });

  test('another body is a conflict, and leaves the labels', () => {
    given([created()])
      .when((state) => decideOpenSession(state, openCommand({ bodyHash: 'other', labels: { a: '1' } }), null))
      .rejects('conflict');
  });

  test('another subject named by the tenant itself is other content', () => {
    given([created({ subject: 'ada' })])
      .when((state) => decideOpenSession(state, openCommand({ subject: 'bob', bodyHash: 'other' }), null))
      .rejects('conflict');
  });

  test('a foreign subject is told that there is none, the tenant itself is let in', () => {
    const ofAda = [created({ subject: 'ada' })];
    given(ofAda)
      .when((state) => decideOpenSession(state, openCommand({ subject: 'bob' }), 'bob'))
      .rejects('not_found');
    given(ofAda)
      .when((state) => decideOpenSession(state, openCommand({ subject: null }), null))
      .thenNothing();
    given([created()])
      .when((state) => decideOpenSession(state, openCommand({ subject: 'bob' }), 'bob'))
      .rejects('not_found');
  });

  test('while a turn runs', () => {
    given(busy)
      .when((state) => decideOpenSession(state, openCommand({ labels: { a: '1' } }), null))
      .thenTypes('session.updated');
  });
});

describe('a deletion', () => {
  test('leaves nothing, and the id is free again', () => {
    const state = given([created({ subject: 'ada' })])
      .when((before) => decideDeleteSession(before))
      .thenEvents([{ type: 'session.deleted', data: {} }]);
    expect(state).toEqual({ status: 'absent', since: 1 });
    given([]).when(decideDeleteSession).rejects('not_found');
  });

  test('is refused while a turn runs', () => {
    given(busy).when(decideDeleteSession).rejects('session_busy', { activeTurnId: TURN });
  });
});

describe('a message', () => {
  test('is refused where there is no session', () => {
    given([])
      .when((state) => decideMessage(state, message(), at(0)))
      .rejects('not_found');
  });

  test('is refused while a turn runs, and names it', () => {
    given(busy)
      .when((state) => decideMessage(state, message(), at(1)))
      .rejects('session_busy', { activeTurnId: TURN });
  });

  test('starts a turn, claims it and asks the model in one commit', () => {
    const { events } = given(idle).when((state) =>
      decideMessage(state, message({ subject: 'ada', whenBusy: 'refuse' }), at(0)),
    );
    expect(events).toEqual([
      {
        type: 'command.message',
        data: { turnId: TURN, requestId: 'r1', subject: 'ada', content: 'Hello', whenBusy: 'refuse' },
      },
      {
        type: 'turn.started',
        data: {
          turnId: TURN,
          deadlineAt: new Date(START_MS + 1_800_000).toISOString(),
          maxSteps: 50,
          model: MANIFEST.model,
          manifest: null,
        },
      },
      { type: 'segment.claimed', data: { turnId: TURN, epoch: 1, workerId: WORKER } },
      {
        type: 'model.requested',
        data: {
          turnId: TURN,
          effectId: 'ef_01arz3ndektsv4rrffq69g5faw',
          callId: 'mc_01arz3ndektsv4rrffq69g5faw',
          step: 0,
          attempt: 0,
          provider: 'fixture',
          model: 'echo',
        },
      },
    ]);
    expect(open(busy).turn).toMatchObject({ turnId: TURN, claim: { workerId: WORKER, epoch: 1 }, calls: 1 });
    expect(open(busy).conversation.messages).toEqual([{ role: 'user', text: 'Hello' }]);
  });

  test('without a worker here only starts it', () => {
    const state = given(idle)
      .when((before) => decideMessage(before, message(), at(0, { workerId: null })))
      .thenTypes('command.message', 'turn.started');
    expect(open(state).turn).toMatchObject({ claim: null, wanted: true, threads: { root: { pending: null } } });
  });

  test('with parts and a manifest of its own, for this turn only', () => {
    const manifest = {
      instructions: 'Other.',
      model: { provider: 'openai', model: 'm' } as const,
      limits: { maxSteps: 3, maxTurnSeconds: 7 },
    };
    const parts = [
      { type: 'text', text: 'a' },
      { type: 'text', text: 'b' },
    ] as const;
    const state = given(idle)
      .when((before) => decideMessage(before, { requestId: 'r', subject: null, parts, manifest }, at(0)))
      .thenTypes('command.message', 'turn.started', 'segment.claimed', 'model.requested');
    expect(open(state).turn).toMatchObject({
      maxSteps: 3,
      deadlineAt: new Date(START_MS + 7_000).toISOString(),
      model: manifest.model,
      manifest,
    });
    expect(open(state).manifest).toEqual(MANIFEST);
    expect(open(state).conversation.messages).toEqual([{ role: 'user', text: 'a\nb' }]);
  });

  test('without a model anywhere ends its turn as failed, with a claim or when one comes', () => {
    const noModel = given([created({ manifest: { instructions: '' } })]);
    const { events } = noModel.when((state) => decideMessage(state, message(), at(0)));
    expect(events.map(({ type }) => type)).toEqual(['command.message', 'turn.started', 'turn.failed']);
    expect(events.at(-1)?.data).toMatchObject({ error: { code: 'model_not_configured' } });
  });
});

describe('a cancel', () => {
  test('is refused where there is no session', () => {
    given([])
      .when((state) => decideCancel(state, cancellation(), at(0)))
      .rejects('not_found');
  });

  test('ends the running turn, and tells that its call is in doubt', () => {
    const { events } = given(busy).when((state) =>
      decideCancel(state, cancellation({ subject: 'ada', turnId: TURN, reason: 'enough' }), at(0)),
    );
    expect(events).toEqual([
      {
        type: 'command.cancel',
        data: { turnId: TURN, requestId: 'r2', subject: 'ada', namedTurnId: TURN, reason: 'enough' },
      },
      {
        type: 'effect.uncertain',
        data: {
          turnId: TURN,
          effectId: 'ef_01arz3ndektsv4rrffq69g5faw',
          kind: 'model',
          reason: 'cancelled',
          callId: 'mc_01arz3ndektsv4rrffq69g5faw',
        },
      },
      { type: 'turn.cancelled', data: { turnId: TURN, reason: 'enough' } },
    ]);
  });

  test('of whatever runs', () => {
    const state = given(busy)
      .when((before) => decideCancel(before, cancellation(), at(0)))
      .thenTypes('command.cancel', 'effect.uncertain', 'turn.cancelled');
    expect(open(state)).toMatchObject({ turn: null, lastTurn: { turnId: TURN, outcome: 'cancelled' } });
  });

  test('of another turn, or of none, is only written down', () => {
    given(busy)
      .when((state) => decideCancel(state, cancellation({ turnId: 'tu_other' }), at(0)))
      .thenEvents([{ type: 'command.cancel', data: { turnId: null, requestId: 'r2', namedTurnId: 'tu_other' } }], {
        turnId: null,
        claimed: true,
      });
    const state = given(idle)
      .when((before) => decideCancel(before, cancellation(), at(0)))
      .thenEvents([{ type: 'command.cancel', data: { turnId: null, requestId: 'r2' } }], {
        turnId: null,
        claimed: false,
      });
    expect(open(state)).toMatchObject({ turn: null, lastTurn: null });
  });
});

test('a step that records nothing is not a commit', () => {
  given(busy)
    .when((state) => decideTurn(state, START_MS, () => 'reply'))
    .thenNothing('reply');
});

test('the next message comes after the end, and starts another turn', () => {
  const cancelled = given(busy)
    .when((state) => decideCancel(state, cancellation(), at(0)))
    .thenTypes('command.cancel', 'effect.uncertain', 'turn.cancelled');
  const next = given(cancelled)
    .when((state) => decideMessage(state, message({ content: 'Again' }), at(5, { newTurnId: 'tu_2' })))
    .thenTypes('command.message', 'turn.started', 'segment.claimed', 'model.requested');
  expect(open(next).turn).toMatchObject({ turnId: 'tu_2', epoch: 1, calls: 1 });
  expect(open(next).conversation.messages.map((each) => each.role === 'user' && each.text)).toEqual(['Hello', 'Again']);
});

test('an absent session stays absent whatever is folded into it', () => {
  expect(given([{ type: 'turn.cancelled', data: { turnId: TURN } }]).state).toEqual(initialSession);
});

const OF_ANOTHER: readonly SessionEvent[] = [
  { type: 'segment.claimed', data: { turnId: 'tu_x', epoch: 9, workerId: 'wk_x' } },
  { type: 'segment.released', data: { turnId: 'tu_x', epoch: 9 } },
  { type: 'model.completed', data: { turnId: 'tu_x', callId: 'mc_x', step: 0, usage: usage() } },
  {
    type: 'effect.uncertain',
    data: { turnId: 'tu_x', effectId: 'ef_x', kind: 'model', reason: 'lost', callId: 'mc_x' },
  },
  { type: 'turn.completed', data: { turnId: 'tu_x', output: '', usage: usage() } },
  { type: 'turn.failed', data: { turnId: 'tu_x', error: { code: 'c', message: 'm' } } },
  { type: 'turn.cancelled', data: { turnId: 'tu_x' } },
];

test.each(OF_ANOTHER)('$type of another turn leaves the running one alone', (event) => {
  const { turn, lastTurn } = open(fold(busy, [event]));
  expect([turn, lastTurn]).toEqual([open(busy).turn, null]);
});

test('a session is created once', () => {
  expect(fold(busy, [created({ bodyHash: 'other' })])).toEqual(busy);
});

import { describe, expect, test } from 'vitest';
import { fold, given, open } from '../../../test/support/given.ts';
import { at, cancellation, created, message } from '../../../test/support/sessions.ts';
import { decideCancel, decideDeleteSession, decideMessage } from './decide.ts';
import type { SessionEvent } from './events.ts';
import { decideFork, decideOpenFork, decideReleaseFork, FORK_DEPTH_MAX, FORKS_MAX, originOf } from './fork.ts';
import type { ForkCommand } from './fork.ts';
import { forkNamed } from './fork-state.ts';
import { initialSession } from './state.ts';
import type { OpenSession, SessionState } from './state.ts';

const SHARD = 3;
const BLANK: SessionState = initialSession;

const command = (change: Partial<ForkCommand> = {}): ForkCommand => ({
  childId: 'f',
  at: null,
  child: BLANK,
  ...change,
});

/** One record at each of these positions. */
function spoken(...positions: number[]): OpenSession {
  const opened = fold(BLANK, [created()], { position: 1 });
  return open(positions.reduce((state, position) => cancelled(state, position), opened));
}

function cancelled(state: SessionState, position: number): SessionState {
  const { events } = given(state).when((before) => decideCancel(before, cancellation(), at(0)));
  return fold(state, events, { position });
}

/** The parent with a fork at a position, and the fork as it is opened at position 100. */
function forked(parent: OpenSession, change: Partial<ForkCommand>, position: number): [OpenSession, OpenSession] {
  const { events } = given(parent).when((before) => decideFork(before, command(change)));
  const after = open(fold(parent, events, { position }));
  const fork = forkNamed(after, change.childId ?? 'f');
  if (fork === null) throw new Error('the parent does not remember its fork');
  const origin = originOf(after, fork, { id: 'p', shard: SHARD });
  const child = given(BLANK).when((before) => decideOpenFork(before, after, { fork, origin }));
  return [after, open(fold(BLANK, child.events, { position: 100 }))];
}

const part = (position: number, index = 65_535) => ({
  sessionId: 'p',
  shard: SHARD,
  createdPosition: 1,
  position,
  index,
});

describe('a fork', () => {
  test('of all there is ends where it was recorded, in the parent', () => {
    const [parent, child] = forked(spoken(2, 3), {}, 7);
    expect(parent.forks).toEqual({
      f: { position: 7, since: 0, at: { position: 7, index: 65_535 }, last: { position: 3, index: 0 } },
    });
    expect(child).toMatchObject({ agentId: parent.agentId, bodyHash: parent.bodyHash, last: null, forks: {} });
    expect(child.origin).toEqual({
      parent: { sessionId: 'p', position: 7 },
      ancestry: [part(7)],
      last: { ancestor: 0, position: 3, index: 0 },
    });
    expect(child.inherits).toBe(true);
  });

  test('at a record ends with it', () => {
    const [, child] = forked(spoken(2, 3), { at: { position: 2, index: 0 } }, 7);
    expect(child.origin).toMatchObject({ ancestry: [part(2, 0)], last: { ancestor: 0, position: 2, index: 0 } });
  });

  test('of a session without a record inherits nothing', () => {
    const [, child] = forked(spoken(), {}, 2);
    expect(child.origin).toEqual({ parent: { sessionId: 'p', position: 2 }, ancestry: [], last: null });
    expect(child.inherits).toBe(false);
  });

  test('of a fork reads through both, and leaves one out that has no record of its own', () => {
    const [, child] = forked(spoken(2, 3), {}, 7);
    const [, without] = forked(child, {}, 101);
    expect(without.origin).toEqual({ ...child.origin, parent: { sessionId: 'p', position: 101 } });
    const [, grandchild] = forked(open(cancelled(child, 102)), {}, 103);
    expect(grandchild.origin).toMatchObject({
      ancestry: [part(7), { ...part(103), createdPosition: 100 }],
      last: { ancestor: 1, position: 102, index: 0 },
    });
    const [, inherited] = forked(open(grandchild), { at: { ancestor: 0, position: 2, index: 0 } }, 200);
    expect(inherited.origin).toMatchObject({ ancestry: [part(2, 0)], last: { ancestor: 0, position: 2, index: 0 } });
  });

  test('is made while a turn runs, and has none', () => {
    const { events } = given(spoken(2)).when((state) => decideMessage(state, message(), at(0)));
    const busy = open(fold(spoken(2), events, { position: 3 }));
    const [parent, child] = forked(busy, {}, 4);
    expect(parent.turn).toEqual(busy.turn);
    expect(child).toMatchObject({ turn: null, queue: [], lastTurn: null });
  });

  test.each([
    ['before the beginning', { position: 1, index: 1 }],
    ['behind the newest record', { position: 3, index: 1 }],
    ['behind the log', { position: 9, index: 0 }],
    ['of an ancestor that is none', { ancestor: 0, position: 2, index: 0 }],
  ])('is refused at a place %s', (_, place) => {
    given(spoken(2, 3))
      .when((state) => decideFork(state, command({ at: place })))
      .rejects('cursor_invalid');
  });

  test('is refused at what an ancestor got after the fork', () => {
    const [, child] = forked(spoken(2, 3), { at: { position: 2, index: 0 } }, 7);
    given(child)
      .when((state) => decideFork(state, command({ at: { ancestor: 0, position: 3, index: 0 } })))
      .rejects('cursor_invalid');
  });

  test('is refused for an id that is taken, or promised', () => {
    const [parent] = forked(spoken(2), {}, 7);
    given(parent)
      .when((state) => decideFork(state, command()))
      .rejects('conflict');
    given(parent)
      .when((state) => decideFork(state, command({ childId: 'g', child: spoken() })))
      .rejects('conflict');
    given(BLANK)
      .when((state) => decideFork(state, command()))
      .rejects('not_found');
    // A name that every object has is a name like any other.
    const [constructor] = forked(parent, { childId: 'constructor' }, 8);
    expect(Object.keys(constructor.forks)).toEqual(['f', 'constructor']);
  });

  test('has bounds: of forks at a time, and of sessions that a history reads through', () => {
    const entry = { position: 7, since: 0, at: { position: 7, index: 0 }, last: null };
    const forks = Object.fromEntries(Array.from({ length: FORKS_MAX }, (_, i) => [`f${i}`, entry]));
    given({ ...spoken(2), forks })
      .when((state) => decideFork(state, command()))
      .rejects('limit_exceeded');
    const [, child] = forked(spoken(2), {}, 7);
    const ancestry = Array.from({ length: FORK_DEPTH_MAX }, () => part(7));
    const origin = { parent: { sessionId: 'p', position: 7 }, ancestry, last: { ancestor: 31, position: 2, index: 0 } };
    const deep = open(cancelled({ ...child, origin }, 101));
    given(deep)
      .when((state) => decideFork(state, command()))
      .rejects('limit_exceeded');
    given(deep)
      .when((state) => decideFork(state, command({ at: { ancestor: 31, position: 2, index: 0 } })))
      .thenTypes('session.forked');
    given({ ...deep, last: null })
      .when((state) => decideFork(state, command()))
      .thenTypes('session.forked');
  });
});

describe('what a parent remembers', () => {
  const [parent, child] = forked(spoken(2), {}, 7);
  const fork = forkNamed(parent, 'f') ?? { position: 0, since: 0, at: { position: 0, index: 0 }, last: null };
  const origin = originOf(parent, fork, { id: 'p', shard: SHARD });
  const opening = (state: SessionState) => decideOpenFork(state, parent, { fork, origin });

  test('is opened once, however often it is asked for', () => {
    given(child).when(opening).thenNothing();
  });

  test('is opened no more when its id has been used since, by another or by itself', () => {
    given(spoken()).when(opening).rejects('conflict');
    const { events } = given(child).when(decideDeleteSession);
    given(fold(child, events, { position: 101 }))
      .when(opening)
      .rejects('not_found');
  });

  test('is opened where something else had been deleted before it was recorded', () => {
    const gone = fold(spoken(), [{ type: 'session.deleted', data: {} }], { position: 5 });
    const [, again] = forked(spoken(2), {}, 7);
    expect(again.origin).toEqual(origin);
    const later = given(spoken(2)).when((state) => decideFork(state, command({ child: gone })));
    expect(later.events).toEqual([{ type: 'session.forked', data: { sessionId: 'f', since: 5 } }]);
    const after = open(fold(spoken(2), later.events, { position: 7 }));
    const entry = forkNamed(after, 'f') ?? fork;
    given(gone)
      .when((state) => decideOpenFork(state, after, { fork: entry, origin }))
      .thenTypes('session.created');
  });

  test('keeps it from being deleted, until it is forgotten', () => {
    given(parent).when(decideDeleteSession).rejects('conflict');
    const released: SessionEvent = { type: 'session.fork.released', data: { sessionId: 'f', position: 7 } };
    const free = given(parent)
      .when((state) => decideReleaseFork(state, released.data))
      .thenEvents([released]);
    given(free)
      .when(decideDeleteSession)
      .thenEvents([{ type: 'session.deleted', data: {} }], null);
    given(free)
      .when((state) => decideReleaseFork(state, released.data))
      .thenNothing();
    // Of an earlier fork with this id nothing is left to forget.
    given(parent)
      .when((state) => decideReleaseFork(state, { sessionId: 'f', position: 6 }))
      .thenNothing();
  });

  test('records the deletion of the fork', () => {
    given(child)
      .when(decideDeleteSession)
      .thenEvents([{ type: 'session.deleted', data: {} }], origin.parent);
  });
});

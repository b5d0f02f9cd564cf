import { describe, expect, test } from 'vitest';
import {
  checkCommands,
  checkFiles,
  checkFolds,
  checkInherited,
  checkPaused,
  checkProvider,
  checkSession,
  checkSpending,
  compareOrder,
} from './checks.ts';
import type { LedgerCall, LoggedEvent, Sent, StoredCommand } from './checks.ts';
import { openingOf } from './folds.ts';

/** The checker is only worth something if it sees what it is there for. */

describe('what a reader saw', () => {
  const truth = ['a', 'b', 'c', 'd'];
  const none = { lost: 0, doubled: 0, reordered: 0, invented: 0 };

  test.each([
    ['everything', truth, none],
    ['one is lost', ['a', 'b', 'd'], { ...none, lost: 1 }],
    ['the last is lost', ['a', 'b', 'c'], { ...none, lost: 1 }],
    ['one is doubled', ['a', 'b', 'b', 'c', 'd'], { ...none, doubled: 1 }],
    ['one is doubled later', ['a', 'b', 'c', 'd', 'b'], { ...none, doubled: 1 }],
    ['two are reordered', ['a', 'c', 'b', 'd'], { ...none, reordered: 1 }],
    ['one is nobody’s', ['a', 'b', 'c', 'd', 'x'], { ...none, invented: 1 }],
    ['nothing', [], { ...none, lost: 4 }],
  ])('%s', (_what, seen, found) => {
    expect(compareOrder(truth, seen)).toEqual(found);
  });
});

describe('commands', () => {
  const stored: StoredCommand = { sessionId: 's', requestId: 'r', turnId: 't', cursor: 'c' };
  const accepted: Sent = { sessionId: 's', requestId: 'r', outcome: { kind: 'accepted', turnId: 't', cursor: 'c' } };
  const refused: Sent = { ...accepted, outcome: { kind: 'refused', code: 'session_busy' } };

  const nothing = { lost: 0, doubled: 0, problems: 0 };

  test.each([
    ['accepted and stored', [accepted], [stored], {}],
    ['refused and not stored', [refused], [], {}],
    ['accepted and lost', [accepted], [], { lost: 1, problems: 1 }],
    ['accepted and doubled', [accepted], [stored, stored], { doubled: 1, problems: 1 }],
    ['refused and stored', [refused], [stored], { problems: 1 }],
    ['stored with another turn', [accepted], [{ ...stored, turnId: 'u' }], { problems: 1 }],
    ['stored at another place', [accepted], [{ ...stored, cursor: 'd' }], { problems: 1 }],
    ['never settled', [{ ...accepted, outcome: { kind: 'unknown' as const } }], [], { problems: 1 }],
    ['sent by nobody', [], [stored], { problems: 1 }],
  ])('%s', (_what, sent, found, wrong) => {
    const { lost, doubled, problems } = checkCommands(sent, found);
    expect({ lost, doubled, problems: problems.length }).toEqual({ ...nothing, ...wrong });
  });
});

describe('a session at rest', () => {
  const event = (type: string, data: Record<string, unknown> = {}, isCanonical = true): LoggedEvent => ({
    type,
    data: { turnId: 't', ...data },
    isCanonical,
  });
  const started = event('turn.started', {}, false);
  const ended = event('turn.completed');
  const asked = event('model.requested', { callId: 'm' }, false);
  const answered = event('model.completed', { callId: 'm' }, false);
  const offered = event('action.pending', { actionId: 'a' });
  const claimed = event('action.claimed', { actionId: 'a', generation: 1 });
  const done = event('action.completed', { actionId: 'a' });

  test.each([
    ['nothing is wrong', [started, asked, answered, offered, claimed, done, ended], 0],
    ['a turn without an end', [started, asked, answered], 1],
    ['a turn with two ends', [started, ended, ended], 2],
    ['a turn that goes on', [started, ended, event('message.assistant')], 1],
    ['a bill after the end is no event that readers see', [started, ended, event('model.reported', {}, false)], 0],
    ['a call without an outcome', [started, asked, ended], 1],
    ['a call with two', [started, asked, answered, answered, ended], 1],
    ['an action without an end', [started, offered, claimed, ended], 1],
    ['a generation that is claimed twice', [started, offered, claimed, claimed, done, ended], 1],
    ['an action that ends twice', [started, offered, claimed, done, done, ended], 1],
  ])('%s', (_what, events, problems) => {
    expect(checkSession('s', events)).toHaveLength(problems);
  });
});

describe('files', () => {
  const file = { name: 'f', size: 3 };

  test.each([
    ['accepted and there', { outcome: 'accepted', stored: [file], used: 3 }, 0],
    ['unknown and there', { outcome: 'unknown', stored: [file], used: 3 }, 0],
    ['unknown and not there', { outcome: 'unknown', stored: [], used: 0 }, 0],
    ['accepted and lost', { outcome: 'accepted', stored: [], used: 0 }, 1],
    ['doubled', { outcome: 'accepted', stored: [file, file], used: 6 }, 1],
    ['refused and there', { outcome: 'refused', stored: [file], used: 3 }, 1],
    ['cut short', { outcome: 'accepted', stored: [{ ...file, size: 2 }], used: 2 }, 1],
    ['counted wrongly', { outcome: 'accepted', stored: [file], used: 4 }, 1],
  ] as const)('%s', (_what, { outcome, stored, used }, problems) => {
    expect(checkFiles([{ ...file, outcome }], stored, used).problems).toHaveLength(problems);
  });
});

describe('what calls cost', () => {
  const one = { callId: 'a', tokens: 3 };
  const lost = new Set(['b']);

  test.each([
    ['counted as it is', [one], [one], 0],
    ['free and not counted', [], [{ ...one, tokens: 0 }], 0],
    ['counted, and lost right then', [{ ...one, callId: 'b' }], [], 0],
    ['counted, and not there', [one], [], 1],
    ['not counted', [], [one], 1],
    ['counted twice', [one, one], [one], 1],
    ['counted with other tokens', [{ ...one, tokens: 2 }], [one], 1],
  ])('%s', (_what, settled, ledger, problems) => {
    expect(checkSpending(settled, ledger, lost)).toHaveLength(problems);
  });
});

describe('calls that the provider got', () => {
  const call = (more: Partial<LedgerCall> = {}): LedgerCall => {
    return { callId: 'c', turnId: 't', outcome: 'completed', answer: 1, ...more };
  };
  const lost = call({ callId: 'd', outcome: 'lost', answer: null });
  const got = { id: 1, turnId: 't' };
  const another = { id: 2, turnId: 't' };

  test.each([
    ['got and answered', [got], [call()], 0],
    ['got by a worker that died', [got, another], [call(), lost], 0],
    ['asked for, and never sent', [got], [call(), lost], 0],
    ['lost, and its answer reported late', [got], [call({ outcome: 'lost' })], 0],
    ['got, and not in the ledger', [got, another], [call()], 1],
    ['got twice for one that was lost', [got, another, { id: 3, turnId: 't' }], [call(), lost], 1],
    ['got, and only another turn has a call to spare', [got, another], [call(), { ...lost, turnId: 'u' }], 1],
    ['got of a message that nobody knows', [got, { id: 2, turnId: null }], [call(), lost], 1],
    ['one answer in two calls', [got], [call(), call({ callId: 'd' })], 1],
    ['an answer that was never given', [got], [call({ answer: 2 }), lost], 1],
    ['an answer in another turn', [got], [call({ turnId: 'u' })], 1],
    ['completed by nobody', [], [call({ answer: null })], 1],
  ])('%s', (_what, received, ledger, problems) => {
    expect(checkProvider(received, ledger)).toHaveLength(problems);
  });
});

describe('folds', () => {
  const fresh = new Map([['s', '{"rev":3}']]);
  const fold = (text: string, sessionId = 's') => ({ who: 'commands-1', sessionId, fold: text });

  test.each([
    ['the same', [fold('{"rev":3}')], 0],
    ['behind', [fold('{"rev":3}'), fold('{"rev":2}')], 1],
    ['of a session that the log does not have', [fold('{"rev":3}', 'other')], 1],
  ])('%s', (_what, seen, problems) => {
    expect(checkFolds(fresh, seen)).toHaveLength(problems);
  });
});

test('a fork stands for what its parent was opened with, whether or not it inherits anything', () => {
  const own = { agentId: 'pod', vaultIds: [], sandbox: { sandboxId: 'sb_own', own: true } };
  const parent = { sandbox: { id: 'sb_shared' }, agentId: 'pod', vaultIds: [] };
  const openings = new Map([['pod/second', parent]]);
  const at = { sessionId: 'pod/second', position: 5 };
  const part = { ...at, shard: 0, createdPosition: 1, index: 0 };
  for (const ancestry of [[], [part]])
    expect(openingOf({ ...own, origin: { parent: at, ancestry, last: null } }, openings)).toBe(parent);
  expect(openingOf({ ...own, origin: null }, openings)).toEqual({ agentId: 'pod', vaultIds: [] });
  const shared = { ...own, sandbox: { sandboxId: 'sb_shared', own: false }, origin: null };
  expect(openingOf(shared, openings)).toEqual(parent);
});

describe('what forks inherit', () => {
  test.each([
    ['all', ['a', 'b'], 0],
    ['the beginning', ['a'], 0],
    ['nothing', [], 0],
    ['with a hole', ['b'], 1],
    ['more than there is', ['a', 'b', 'c'], 1],
  ])('%s', (_what, inherited, problems) => {
    expect(checkInherited('f', inherited, ['a', 'b'])).toHaveLength(problems);
  });
});

describe('turns that were paused', () => {
  const answered = new Set(['b']);

  test.each([
    ['wait, but for the one that was answered', ['a', 'c'], 0],
    ['one is gone', ['a'], 1],
    ['one waits twice', ['a', 'a', 'c'], 1],
    ['one waits although it was answered', ['a', 'b', 'c'], 1],
    ['one waits that nobody paused', ['a', 'c', 'x'], 1],
  ])('%s', (_what, waiting, problems) => {
    expect(checkPaused(['a', 'b', 'c'], answered, waiting)).toHaveLength(problems);
  });
});

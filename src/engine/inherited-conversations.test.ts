import { getHeapStatistics } from 'node:v8';
import { expect, test } from 'vitest';
import { open } from '../../test/support/given.ts';
import { answer, settling, started } from '../../test/support/turns.ts';
import type { OpenSession, SessionState } from '../domain/session/state.ts';
import { evolveSession } from '../domain/session/state.ts';
import {
  addMessage,
  CONVERSATION_MESSAGES_MAX,
  emptyConversation,
  joinConversations,
} from '../domain/turn/conversation.ts';
import type { Conversation } from '../domain/turn/conversation.ts';
import { InheritedConversations } from './inherited-conversations.ts';

const META = { at: '2026-01-01T00:00:00.000Z', position: 1 };
const REF = { tenant: 'tn_1', kind: 'session', id: 'fork' } as const;
const POINT = { sessionId: 'parent', shard: 0, createdPosition: 1, position: 9, index: 0 };
const ORIGIN = { parent: { sessionId: 'parent', position: 9 }, ancestry: [POINT], last: null };
const STEPS = 950;
const KEPT_BYTES = 50_000_000;
/** What the collector and the compiler add differs from run to run: of so many, the least. */
const RUNS = 5;
/** A join at each step takes twelve times as much; what the collector adds by chance is less than half. */
const MORE_MAX = 3;

/** A conversation of so many messages that people wrote. */
function said(messages: number): Conversation {
  let conversation = emptyConversation;
  for (let n = 0; n < messages; n++) conversation = addMessage(conversation, `message ${n}`);
  return conversation;
}

/** What forks inherit, and how often it was folded. */
function inheriting(inherited: Conversation): { of: InheritedConversations; folds: () => number } {
  let folds = 0;
  const upTo = async (): Promise<OpenSession> => {
    folds += 1;
    return await Promise.resolve({ ...open(started()), conversation: inherited, inherits: false });
  };
  return { of: new InheritedConversations({ upTo }, KEPT_BYTES), folds: () => folds };
}

/** The fork after each step of a long turn, each of which calls tools that are not there. */
function stepsOf(count: number): OpenSession[] {
  const states: OpenSession[] = [];
  const forked: OpenSession = { ...open(started({ maxSteps: 1_000 })), inherits: true, origin: ORIGIN };
  let state: SessionState = forked;
  for (let n = 1; n <= count; n++) {
    const decision = settling(n, answer(`step ${n}`, ['one', 'two']))(state);
    if (decision.kind !== 'accepted') throw new Error('the step was refused');
    state = decision.events.reduce<SessionState>(
      (now, event, index) => evolveSession(now, event, { ...META, index }),
      state,
    );
    states.push(open(state));
  }
  return states;
}

/** Bytes on the heap for the conversations of these steps. */
async function allocatedBy(of: InheritedConversations, steps: readonly OpenSession[]): Promise<number> {
  const before = getHeapStatistics().total_allocated_bytes ?? Number.NaN;
  for (const session of steps) await of.of(REF, session);
  return (getHeapStatistics().total_allocated_bytes ?? Number.NaN) - before;
}

test('a fork’s conversation takes no more at its 900th step than at its tenth, however much it inherits', async () => {
  const steps = stepsOf(STEPS);
  const costs = async (inherited: Conversation): Promise<{ early: number; late: number }> => {
    const { of, folds } = inheriting(inherited);
    // The same number of full blocks of messages begins in each of the two parts.
    const [from, length, later] = [10, 40, 10 + 64 * 13];
    await allocatedBy(of, steps.slice(0, from));
    const early = await allocatedBy(of, steps.slice(from, from + length));
    await allocatedBy(of, steps.slice(from + length, later));
    const late = await allocatedBy(of, steps.slice(later, later + length));
    expect(folds()).toBe(1);
    return { early, late };
  };
  const least = async (inherited: Conversation): Promise<{ early: number; late: number }> => {
    let [early, late] = [Infinity, Infinity];
    for (let run = 0; run < RUNS; run++) {
      const cost = await costs(inherited);
      [early, late] = [Math.min(early, cost.early), Math.min(late, cost.late)];
    }
    return { early, late };
  };
  const [short, long] = [await least(said(2)), await least(said(1_500))];
  expect(short.late).toBeLessThan(short.early * MORE_MAX);
  expect(long.early).toBeLessThan(short.early * MORE_MAX);
  expect(long.late).toBeLessThan(short.early * MORE_MAX);
});

test('it is the inherited one and the own, step by step, and begins with what the step before was', async () => {
  const inherited = said(3);
  const { of } = inheriting(inherited);
  let before: Conversation = emptyConversation;
  for (const session of stepsOf(100)) {
    const whole = await of.of(REF, session);
    expect(whole.messages).toEqual(joinConversations(inherited, session.conversation).messages);
    expect(whole).toMatchObject({ chars: inherited.chars + session.conversation.chars });
    expect(whole.messages.slice(0, before.messages.length)).toEqual(before.messages);
    const counted = { ...session.conversation.measured };
    expect(whole.measured).toEqual({ ...counted, chars: (counted.chars ?? 0) + inherited.chars });
    // What is asked of it twice at a step is the same.
    expect(await of.of(REF, session)).toBe(whole);
    before = whole;
  }
});

test('past what is kept of a conversation, steps go on to begin alike until more is left out', async () => {
  const { of } = inheriting(said(CONVERSATION_MESSAGES_MAX - 50));
  let [before, changes] = [emptyConversation, 0];
  for (const session of stepsOf(200)) {
    const whole = await of.of(REF, session);
    expect(whole.messages.length).toBeLessThanOrEqual(CONVERSATION_MESSAGES_MAX);
    if (whole.messages[0] !== before.messages[0]) changes += 1;
    before = whole;
  }
  expect(changes).toBe(3);
});

test('is joined again from what was left of the own, and of a session that has taken the id', async () => {
  const inherited = said(3);
  const { of, folds } = inheriting(inherited);
  const steps = stepsOf(5);
  const [first, last] = [steps[0], steps[4]];
  if (first === undefined || last === undefined) throw new Error('there are five steps');
  await of.of(REF, last);
  // As of an older fold, from a snapshot, and with a part of it removed.
  const { messages, chars } = last.conversation;
  const others: Conversation[] = [
    first.conversation,
    { messages: structuredClone(messages), chars },
    { messages: messages.slice(2), chars },
    said(1),
  ];
  for (const conversation of others) {
    const whole = await of.of(REF, { ...last, conversation });
    expect(whole.messages).toEqual(joinConversations(inherited, conversation).messages);
  }
  expect(folds()).toBe(1);
  await of.of(REF, { ...last, origin: { ...ORIGIN, ancestry: [{ ...POINT, index: 1 }] } });
  expect(folds()).toBe(2);
  of.forget(REF.tenant);
  expect(of.cacheFigures.entries).toBe(0);
});

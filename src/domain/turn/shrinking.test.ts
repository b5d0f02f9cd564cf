import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { done, Scenario } from '../../../test/support/turn-scenario.ts';
import { usage } from '../../../test/support/sessions.ts';
import { emptyConversation, evolveConversation, sizeOfAll, tokensOf } from './conversation.ts';
import type { Conversation, ConversationMessage } from './conversation.ts';
import { boundedSummary, shrinkOf } from './compaction.ts';
import type { SessionEvent } from '../session/events.ts';
import type { ModelOutcome } from './model-outcome.ts';
import { COMPACTIONS_MAX, SUMMARIES_MAX } from './steps/shrinking.ts';

const find = { name: 'find', inputSchema: {} };
const overflow: ModelOutcome = {
  kind: 'failed',
  error: { code: 'model_context_overflow', message: 'Too long.' },
  retryAfterMs: null,
  contextOverflow: true,
  usage: usage(),
};
const SUMMARY = 'They looked at many things and found some. '.repeat(20);

/** The model calls a tool, and its result is so long. */
function step(scenario: Scenario, chars: number): void {
  scenario.answer('', [{ name: 'find' }]);
  const [action] = scenario.actions;
  if (action !== undefined) scenario.result(action, done('r'.repeat(chars)));
}

/** A model with a context of its own: answers when all that it is shown fits, and what the turn did until it ended. */
function until(scenario: Scenario, charsMax: number): { summaries: number; cuts: number; overflows: number } {
  const seen = { summaries: 0, cuts: 0, overflows: 0 };
  let { chars } = scenario.session.conversation;
  for (let n = 0; n < 100 && scenario.session.turn !== null; n++) {
    const events = scenario.events.length;
    if (scenario.turn.threads['root']?.pending?.purpose === 'summary') {
      seen.summaries++;
      scenario.answer(SUMMARY);
    } else if (scenario.session.conversation.chars > charsMax) {
      seen.overflows++;
      scenario.settle(overflow);
    } else {
      scenario.answer('Done.');
    }
    for (const { type, data } of scenario.events.slice(events)) {
      if (type !== 'conversation.compacted') continue;
      if (data.partChars !== undefined) seen.cuts++;
      expect(scenario.session.conversation.chars, 'each compaction makes it smaller').toBeLessThan(chars);
      ({ chars } = scenario.session.conversation);
    }
  }
  return seen;
}

describe('a turn that does not fit', () => {
  test('once an earlier turn has been compacted is compacted too, as often as it has to be', () => {
    const scenario = new Scenario({ tools: [find] });
    scenario.message({ content: 'one' });
    step(scenario, 9_000);
    scenario.answer('1');
    scenario.message({ content: 'two' });
    step(scenario, 3_000);
    // The first is the earlier turn; the next ones are steps of this turn.
    expect(until(scenario, 8_000)).toMatchObject({ summaries: 1, overflows: 1 });
    scenario.message({ content: 'three' });
    for (let n = 0; n < 5; n++) step(scenario, 3_000);
    const seen = until(scenario, 8_000);
    expect(seen).toMatchObject({ summaries: 2, overflows: 2, cuts: 0 });
    expect(scenario.session.lastTurn).toMatchObject({ outcome: 'completed' });
    expect(scenario.session.conversation.messages.some((one) => 'text' in one && one.text === 'three')).toBe(true);
  });

  test('for its newest result has that cut, without asking anybody', () => {
    const scenario = new Scenario({ tools: [find] });
    scenario.message({ content: 'one' });
    step(scenario, 100_000);
    expect(until(scenario, 9_000)).toEqual({ summaries: 0, cuts: 2, overflows: 2 });
    const result = scenario.session.conversation.messages.find(({ role }) => role === 'tool');
    expect(JSON.stringify(result)).toMatch(/r\\n\[\d+ characters are left out here\]\\nr/);
    expect(scenario.session.lastTurn).toMatchObject({ outcome: 'completed' });
  });

  test('ends as failed when nothing can be taken away, after a bounded number of tries', () => {
    const scenario = new Scenario({ tools: [find] });
    scenario.message({ content: 'one' });
    scenario.answer('1');
    scenario.message({ content: 'm'.repeat(50_000) });
    for (let n = 0; n < 4; n++) step(scenario, 5_000);
    const { summaries, overflows } = until(scenario, 40_000);
    expect(summaries).toBeLessThanOrEqual(2);
    expect(overflows).toBeLessThanOrEqual(COMPACTIONS_MAX + 1);
    expect(scenario.last('turn.failed')).toMatchObject({ error: { code: 'model_context_overflow' } });
    // Nothing of what the person wrote is cut.
    expect(scenario.session.conversation.messages).toContainEqual({ role: 'user', text: 'm'.repeat(50_000) });
  });

  test('pays for a bounded number of summaries, and leaves out what is older without one after that', () => {
    const scenario = new Scenario({ tools: [find], limits: { maxSteps: 500 } });
    scenario.message({ content: 'one' });
    let summaries = 0;
    for (let n = 0; n < SUMMARIES_MAX + 10; n++) {
      for (let m = 0; m < 3; m++) step(scenario, 2_000);
      scenario.settle(overflow);
      if (scenario.turn.threads['root']?.pending?.purpose !== 'summary') continue;
      summaries++;
      scenario.answer('So far.');
    }
    expect(summaries).toBe(SUMMARIES_MAX);
    expect(scenario.session.conversation.chars).toBeLessThan(10_000);
  });
});

const texts = fc.string({ maxLength: 20_000, minLength: 0, size: 'max' });
const messages: fc.Arbitrary<ConversationMessage[]> = fc.array(
  fc.oneof(
    fc.record({ role: fc.constant('user' as const), text: texts }),
    fc.record({ role: fc.constant('user' as const), text: texts, byHost: fc.constant(true as const) }),
    fc.record({
      role: fc.constant('assistant' as const),
      text: texts,
      toolCalls: fc.array(fc.record({ callId: fc.constant('c'), name: fc.constant('n'), input: fc.jsonValue() }), {
        maxLength: 3,
      }),
    }),
    fc.record({
      role: fc.constant('tool' as const),
      callId: fc.constant('c'),
      name: fc.constant('n'),
      failed: fc.boolean(),
      output: fc.oneof(texts, fc.jsonValue()),
    }),
  ),
  { maxLength: 40 },
);

test('whatever a conversation is, making it smaller again and again ends, asks for few summaries, and keeps the question', () => {
  fc.assert(
    fc.property(messages, fc.nat({ max: 100_000 }), (all, tokens) => {
      const chars = sizeOfAll(all);
      let now: Conversation = { messages: all, chars, ...(tokens === 0 ? {} : { measured: { tokens, chars } }) };
      const asked = all.findLast((one) => one.role === 'user' && one.byHost !== true);
      let [rounds, summaries] = [0, 0];
      for (let wanted = shrinkOf(now); wanted !== null; wanted = shrinkOf(now)) {
        const data: Extract<SessionEvent, { type: 'conversation.compacted' }>['data'] =
          wanted.kind === 'summary'
            ? {
                turnId: 't',
                summary: boundedSummary(SUMMARY, now, { cut: wanted.cut, inherits: false }),
                ...wanted.cut,
              }
            : { turnId: 't', summary: '', head: now.messages.length, keep: 0, partChars: wanted.partChars };
        const next = evolveConversation(now, { type: 'conversation.compacted', data });
        expect(next.chars).toBe(sizeOfAll(next.messages));
        // A few words may stand for hardly fewer; beyond them each round is smaller, and so is what is known of its tokens.
        expect(next.chars).toBeLessThan(Math.max(now.chars, 1_400));
        expect(tokensOf(next)).toBeLessThanOrEqual(Math.ceil((tokensOf(now) * next.chars) / now.chars) + 1);
        if (wanted.kind === 'summary') summaries++;
        now = next;
        expect(++rounds).toBeLessThanOrEqual(COMPACTIONS_MAX);
      }
      expect(summaries).toBeLessThanOrEqual(3);
      expect(asked === undefined || now.messages.includes(asked)).toBe(true);
    }),
    { numRuns: 200 },
  );
});

test('an empty conversation cannot be made smaller', () => {
  expect(shrinkOf(emptyConversation)).toBeNull();
});

import { describe, expect, test } from 'vitest';
import { START_MS } from '../../../test/support/given.ts';
import { usage, WORKER } from '../../../test/support/sessions.ts';
import { Scenario } from '../../../test/support/turn-scenario.ts';
import type { ModelOutcome } from './model-outcome.ts';

const model = (name: string) => ({
  provider: 'openai' as const,
  model: name,
  settings: { maxOutputTokens: name.length },
});
const failed = (retryAfterMs: number | null, more = {}): ModelOutcome => ({
  ...{ kind: 'failed', error: { code: 'model_overloaded', message: 'Busy.' }, retryAfterMs, usage: usage(), ...more },
});

/** A turn whose model has two fallbacks. */
function asked(fallbacks = [model('second'), model('third')]): Scenario {
  const scenario = new Scenario({ model: { ...model('first'), fallbacks } });
  scenario.message();
  return scenario;
}

const asking = (scenario: Scenario): string | undefined => scenario.turn.threads['root']?.pending?.model;

/** Fails until another model is asked, or the turn has ended; returns how often, and how long it took, ms. */
function untilGivenUp(scenario: Scenario, outcome: ModelOutcome): { readonly times: number; readonly ms: number } {
  const [before, begun] = [asking(scenario), scenario.ms];
  for (let times = 1; times < 50; times++) {
    scenario.settle(outcome);
    if (scenario.session.turn === null) return { times, ms: scenario.ms - begun };
    const { retryAt } = scenario.last('model.failed');
    if (asking(scenario) !== undefined && asking(scenario) !== before) return { times, ms: scenario.ms - begun };
    scenario.look(Date.parse(retryAt ?? '') - START_MS - scenario.ms, WORKER);
    if (asking(scenario) === undefined) scenario.takeOver(WORKER);
  }
  throw new Error('it is never given up');
}

describe('a model with fallbacks', () => {
  test('is tried three times, and for ten seconds, before the next one; the last as long as without', () => {
    const scenario = asked();
    const first = untilGivenUp(scenario, failed(0));
    expect(asking(scenario)).toBe('second');
    expect(first.times).toBeGreaterThanOrEqual(3);
    expect(first.ms).toBeGreaterThanOrEqual(10_000);
    expect(first.ms).toBeLessThan(40_000);
    untilGivenUp(scenario, failed(0));
    expect(asking(scenario)).toBe('third');
    const last = untilGivenUp(scenario, failed(0));
    expect(scenario.session.turn).toBeNull();
    expect(last.ms).toBeGreaterThanOrEqual(120_000);
    expect(scenario.last('turn.failed').error.code).toBe('model_overloaded');
  });

  test.each([
    ['refuses for good', failed(null)],
    ['is known to be down', failed(500, { notSent: true })],
    ['asks for more patience than there is', failed(60_000)],
  ])('that %s is given up at once', (_, outcome) => {
    const scenario = asked();
    expect(scenario.settle(outcome)).toEqual(['model.failed', 'model.requested']);
    expect(scenario.last('model.failed').fallback).toBe(true);
    expect(scenario.last('model.requested')).toMatchObject({ model: 'second', attempt: 0 });
  });

  test('may have been billed for three attempts at most', () => {
    expect(untilGivenUp(asked(), failed(0, { mayBeBilled: true })).times).toBe(3);
  });

  test('is left for the rest of the turn, and is the first again in the next one', () => {
    const scenario = asked();
    scenario.settle(failed(null));
    scenario.answer('', [{ name: 'none' }]);
    expect(asking(scenario)).toBe('second');
    scenario.answer('done');
    scenario.message();
    expect(asking(scenario)).toBe('first');
  });

  test('has none left after the last: its failure is the turn’s', () => {
    const scenario = asked([model('second')]);
    scenario.settle(failed(null));
    expect(scenario.settle(failed(null))).toEqual(['model.failed', 'turn.failed']);
  });
});

import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type { ModelDelta } from '../drivers/model/port.ts';
import { CallPreview } from './call-preview.ts';

const REF = { tenant: 'tn_1', kind: 'session', id: 's' } as const;

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
});

afterEach(() => {
  vi.useRealTimers();
});

/** A call that is shown, who has asked for it, and what they were sent. */
function shown({ showReasoning = false } = {}) {
  const sent: unknown[] = [];
  const asked = { now: true };
  const previews = { isAsked: () => asked.now, send: (_: unknown, text: string) => void sent.push(JSON.parse(text)) };
  const call = new CallPreview(previews, { ref: REF, turnId: 'tu_1', modelCallId: 'mc_1', showReasoning });
  return { call, sent, asked };
}

const IDS = { turnId: 'tu_1', modelCallId: 'mc_1' };
const said = (text: string): ModelDelta => ({ kind: 'text', text });

describe('an answer that is written', () => {
  test('shows its first piece at once, and what comes within 50 ms after a frame in the next', () => {
    const { call, sent } = shown();
    call.take(said('one'));
    expect(sent).toEqual([{ ...IDS, offset: 0, text: 'one' }]);
    for (const word of [' two', ' three']) {
      vi.advanceTimersByTime(20);
      call.take(said(word));
    }
    expect(sent).toHaveLength(1);
    vi.advanceTimersByTime(10);
    expect(sent.slice(1)).toEqual([{ ...IDS, offset: 3, text: ' two three' }]);
  });

  test('is 20 frames a second, however fast it is written, and never more than so long', () => {
    const { call, sent } = shown();
    for (let ms = 0; ms < 1_000; ms++) {
      call.take(said('x'.repeat(5_000)));
      vi.advanceTimersByTime(1);
    }
    expect(sent.length).toBeGreaterThanOrEqual(19);
    expect(sent.length).toBeLessThanOrEqual(21);
    const frames = sent as { readonly offset: number; readonly text: string }[];
    expect(Math.max(...frames.map(({ text }) => text.length))).toBe(65_536);
    // What was left out shows in the next offset.
    expect(frames.at(-1)?.offset).toBeGreaterThan(4_000_000);
  });

  test('counts each kind, and each call, by itself, and shows thoughts only where the settings say so', () => {
    const call = (index: number, input: string): ModelDelta => ({ kind: 'toolCall', index, name: 'find', input });
    const written = [said('a'), { kind: 'reasoning', text: 'hm' } as const, call(0, '{"q"'), call(1, '{}'), said('b')];
    const plain = shown();
    const open = shown({ showReasoning: true });
    for (const delta of [...written, call(0, ':1}')]) {
      plain.call.take(delta);
      open.call.take(delta);
    }
    vi.advanceTimersByTime(50);
    expect(plain.sent).toEqual([
      { ...IDS, offset: 0, text: 'a' },
      { ...IDS, offset: 0, toolCall: { index: 0, name: 'find', input: '{"q":1}' } },
      { ...IDS, offset: 0, toolCall: { index: 1, name: 'find', input: '{}' } },
      { ...IDS, offset: 1, text: 'b' },
    ]);
    expect(open.sent).toContainEqual({ ...IDS, offset: 0, reasoning: 'hm' });
  });

  test('is not sent to who did not ask, and says what one who asks in the middle has missed', () => {
    const { call, sent, asked } = shown();
    asked.now = false;
    for (let n = 0; n < 10; n++) {
      call.take(said('word'));
      vi.advanceTimersByTime(60);
    }
    expect(sent).toEqual([]);
    expect(vi.getTimerCount(), 'no timer where none asked').toBe(0);
    asked.now = true;
    call.take(said('last'));
    expect(sent).toEqual([{ ...IDS, offset: 40, text: 'last' }]);
  });

  test('shows nothing once its call is over, not even what waited', () => {
    const { call, sent } = shown();
    call.take(said('one'));
    call.take(said('two'));
    call.end();
    call.take(said('three'));
    vi.advanceTimersByTime(1_000);
    expect(sent).toEqual([{ ...IDS, offset: 0, text: 'one' }]);
    expect(vi.getTimerCount()).toBe(0);
  });
});

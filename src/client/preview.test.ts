import { expect, test } from 'vitest';
import type { EventRecord } from './api.ts';
import { WrittenText } from './preview.ts';
import type { Preview } from './preview.ts';

const CALL = 'mc_1';

function piece(offset: number, text: string, modelCallId = CALL): Preview {
  return { turnId: 'tu_1', modelCallId, offset, text };
}

function said(text: string, modelCallId = CALL): EventRecord {
  const envelope = { eventId: 'e', sessionId: 's', turnId: 'tu_1', cursor: 'c', createdAt: '2026-01-01T00:00:00.000Z' };
  return { ...envelope, type: 'message.assistant', payload: { modelCallId, text, toolCalls: [] } };
}

test('pieces and the message are the text once, whatever is lost, late or repeated', () => {
  const text = 'one two three';
  const previews = [piece(0, 'one'), piece(3, ' two'), piece(7, ' three')];
  for (let kept = 0; kept < 8; kept++) {
    const written = new WrittenText();
    const parts = previews.filter((_, at) => (kept & (1 << at)) !== 0);
    const shown = [...parts.map((one) => written.preview(one)), written.record(said(text))];
    expect(shown.join(''), `${kept}`).toBe(text);
    expect(parts.map((one) => written.preview(one)).join(''), 'late').toBe('');
  }
});

test('a step after a step, and agents used as tools, do not mix', () => {
  const written = new WrittenText();
  expect(written.preview(piece(0, 'a'))).toBe('a');
  expect(written.preview({ ...piece(1, 'x'), agent: { id: 'b', path: 'b', delegationId: 'dg_1' } })).toBe('');
  expect(written.record(said('ab'))).toBe('b');
  expect(written.preview(piece(0, 'c', 'mc_2'))).toBe('c');
  expect(written.record(said('c', 'mc_2'))).toBe('');
});

test('a text that is not what was shown is given whole', () => {
  const written = new WrittenText();
  written.preview(piece(0, 'first try'));
  expect(written.record(said('second'))).toBe('second');
});

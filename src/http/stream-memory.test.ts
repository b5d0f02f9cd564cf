import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { SseStream } from './sse-stream.ts';
import { StreamMemory } from './stream-memory.ts';

const TOTAL_BYTES = 1_000;

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
});

afterEach(() => {
  vi.useRealTimers();
});

/** Readers that take nothing: each holds what it was sent until it is cut off. */
function readers() {
  const held = new Map<SseStream, number>();
  const cut: number[] = [];
  const streams = { [Symbol.iterator]: () => held.keys() };
  const memory = new StreamMemory({ totalBytes: TOTAL_BYTES, streams, beside: () => 0 });
  let made = 0;
  const send = (bytes: number, ended = false): void => {
    const n = made++;
    const stream: Pick<SseStream, 'tellHeld' | 'letGo' | 'slowSinceMs' | 'heldBytes' | 'ended' | 'end'> = {
      tellHeld: () => undefined,
      letGo: () => undefined,
      slowSinceMs: n,
      heldBytes: bytes,
      ended,
      end: () => {
        cut.push(n);
        held.delete(stream as SseStream);
        memory.changed(-bytes);
      },
    };
    held.set(stream as SseStream, bytes);
    memory.changed(bytes);
  };
  return { memory, send, cut };
}

test('readers that fall silent right after a count are counted again when the next count is due', () => {
  const { memory, send } = readers();
  for (let n = 0; n < 6; n++) send(200);
  expect(memory.bytes).toBeLessThanOrEqual(TOTAL_BYTES);
  // Past the bound again, but by less than what makes the next count come sooner.
  while (memory.bytes <= TOTAL_BYTES) send(150);
  expect(memory.bytes).toBeGreaterThan(TOTAL_BYTES);
  vi.advanceTimersByTime(50);
  expect(memory.bytes).toBeLessThanOrEqual(TOTAL_BYTES);
});

test('what has ended and still waits is cut off before any reader is', () => {
  const { memory, send, cut } = readers();
  for (let n = 0; n < 6; n++) send(190, n === 4);
  expect(cut).toEqual([4, 0]);
  expect(memory.bytes).toBeLessThanOrEqual(TOTAL_BYTES);
});

test('what one turn of the event loop adds is counted as it grows', () => {
  const { memory, send } = readers();
  let most = 0;
  for (let n = 0; n < 1_000; n++) {
    send(100);
    most = Math.max(most, memory.bytes);
  }
  expect(most).toBeLessThanOrEqual(TOTAL_BYTES * 1.5);
});

test('nothing is counted after the stop', () => {
  const { memory, send } = readers();
  for (let n = 0; n < 6; n++) send(200);
  while (memory.bytes <= TOTAL_BYTES) send(150);
  const { bytes } = memory;
  memory.stop();
  vi.advanceTimersByTime(1_000);
  expect(memory.bytes).toBe(bytes);
});

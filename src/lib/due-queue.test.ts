import fc from 'fast-check';
import { expect, test } from 'vitest';
import { DueQueue } from './due-queue.ts';

test('gives what a sorted list gives, however items are set, moved and taken', () => {
  const step = fc.record({
    item: fc.integer({ min: 0, max: 20 }),
    atMs: fc.oneof({ weight: 8, arbitrary: fc.integer({ min: 0, max: 100 }) }, fc.constant(Number.POSITIVE_INFINITY)),
    take: fc.option(fc.integer({ min: 0, max: 100 }), { freq: 3 }),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 300 }), (steps) => {
      const queue = new DueQueue<number>();
      const model = new Map<number, number>();
      for (const { item, atMs, take } of steps) {
        // Take something, or nothing; then set one.
        const earliest = Math.min(Number.POSITIVE_INFINITY, ...model.values());
        const taken = take === null ? null : queue.take(take);
        const due = take === null || earliest > take ? undefined : earliest;
        expect(taken === null ? undefined : model.get(taken)).toBe(due);
        if (taken !== null) model.delete(taken);
        queue.set(item, atMs);
        if (atMs === Number.POSITIVE_INFINITY) model.delete(item);
        else model.set(item, atMs);
        expect(queue.size).toBe(model.size);
        expect(queue.nextMs).toBe(Math.min(Number.POSITIVE_INFINITY, ...model.values()));
      }
    }),
  );
});

test('an item that is moved for ever does not fill the memory, and keeps its newest time', () => {
  const queue = new DueQueue<string>();
  queue.set('other', 1e9);
  for (let n = 0; n < 100_000; n++) queue.set('moved', 1e9 - n);
  expect(queue.size).toBe(2);
  expect(queue.take(1e9 - 99_999)).toBe('moved');
  expect(queue.take(1e9)).toBe('other');
  expect(queue.take(1e9)).toBeNull();
});

import fc from 'fast-check';
import { expect, test } from 'vitest';
import { earlierThanNext, nextBack, searchStart, withCall } from './exec-path.ts';
import type { EarlierCalls, ExecPath } from './exec-path.ts';

test('the last call at or before any position is found in a few steps, however many there are', () => {
  fc.assert(
    fc.property(
      fc.array(fc.integer({ min: 1, max: 5 }), { maxLength: 3_000 }),
      fc.integer({ min: 0, max: 15_000 }),
      (gaps, position) => {
        const calls = new Map<number, EarlierCalls>();
        let path: ExecPath = [];
        let at = 0;
        for (const gap of gaps) {
          at += gap;
          const earlier = earlierThanNext(path);
          calls.set(at, earlier);
          path = withCall(path, { n: earlier.n, position: at });
        }
        const start = searchStart(path, position);
        let [reads, found] = [0, start.found];
        for (let newer = start.newer; newer !== null; reads++) {
          const next = nextBack(calls.get(newer) ?? { n: 1, last: null, skip: null }, position);
          found = next !== null && next <= position ? next : null;
          newer = next !== null && next > position ? next : null;
        }
        expect(found).toBe([...calls.keys()].findLast((one) => one <= position) ?? null);
        expect(path.length).toBeLessThanOrEqual(12);
        expect(reads).toBeLessThanOrEqual(24);
      },
    ),
    { numRuns: 300 },
  );
});

import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { Decision } from '../kernel/decision.ts';
import {
  decideBeginRemoval,
  decideCommit,
  decideEndRemoval,
  decideLimit,
  decideRelease,
  decideRenew,
  decideReserve,
  limitsOf,
} from './decide.ts';
import type { QuotaEvent } from './events.ts';
import { evolveQuota, initialQuota, reservedBytesOf } from './state.ts';
import type { QuotaState } from './state.ts';

const DEFAULTS = { fileBytes: 100, totalBytes: 250 };
const expiresAt = '2026-01-01T00:00:00.000Z';
const META = { at: expiresAt, position: 0, index: 0 };

function apply<R>(state: QuotaState, decision: Decision<QuotaEvent, R>): QuotaState {
  if (decision.kind !== 'accepted') return state;
  return decision.events.reduce((folded, event) => evolveQuota(folded, event, META), state);
}

const reserve = (state: QuotaState, uploadId: string, bytes: number) =>
  decideReserve(state, { uploadId, artifactId: 'af_1', bytes, expiresAt }, DEFAULTS);

test('a file past its limit, and bytes past the total, are refused with the limit', () => {
  expect(reserve(initialQuota, 'a', 101)).toMatchObject({
    code: 'limit_exceeded',
    details: { limit: 'file', limitBytes: 100 },
  });
  const two = apply(apply(initialQuota, reserve(initialQuota, 'a', 100)), reserve(initialQuota, 'b', 100));
  expect(reserve(two, 'c', 51)).toMatchObject({ code: 'limit_exceeded', details: { limit: 'total', limitBytes: 250 } });
  expect(reserve(two, 'c', 50)).toMatchObject({ kind: 'accepted' });
});

test("the tenant's own limits go before the Host's, one by one", () => {
  const state = apply(initialQuota, decideLimit(initialQuota, { totalBytes: 10 }));
  expect(limitsOf(state, DEFAULTS)).toEqual({ fileBytes: 100, totalBytes: 10 });
  expect(decideLimit(state, { totalBytes: 10 })).toEqual({ kind: 'unchanged', reply: null });
  const both = apply(state, decideLimit(state, { fileBytes: 0 }));
  expect(limitsOf(both, DEFAULTS)).toEqual({ fileBytes: 0, totalBytes: 10 });
});

test('an operation that was settled stays so', () => {
  expect(decideCommit(initialQuota, 'a', 5)).toEqual({ kind: 'unchanged', reply: null });
  expect(decideRelease(initialQuota, 'a')).toEqual({ kind: 'unchanged', reply: null });
  expect(decideEndRemoval(initialQuota, 'rm', 5)).toEqual({ kind: 'unchanged', reply: null });
  const renewal = decideRenew(initialQuota, { uploadId: 'a', bytes: 1, expiresAt }, DEFAULTS);
  expect(renewal).toMatchObject({ kind: 'rejected', code: 'conflict' });
});

test('a renewal never gives bytes back, and asks for no more than it needs', () => {
  const held = apply(initialQuota, reserve(initialQuota, 'a', 40));
  const same = apply(held, decideRenew(held, { uploadId: 'a', bytes: 0, expiresAt: 'later' }, DEFAULTS));
  expect(same.reservations['a']).toEqual({ artifactId: 'af_1', bytes: 40, expiresAt: 'later' });
  const more = apply(held, decideRenew(held, { uploadId: 'a', bytes: 250, expiresAt }, DEFAULTS));
  expect(reservedBytesOf(more)).toBe(250);
  expect(decideRenew(held, { uploadId: 'a', bytes: 251, expiresAt }, DEFAULTS)).toMatchObject({ kind: 'rejected' });
});

const upload = fc.constantFrom('a', 'b', 'c', 'd', 'e');
const bytes = fc.integer({ min: 0, max: 120 });
const step = fc.oneof(
  fc.record({ type: fc.constant('reserve' as const), upload, bytes }),
  fc.record({ type: fc.constant('renew' as const), upload, bytes }),
  fc.record({ type: fc.constant('commit' as const), upload, bytes }),
  fc.record({ type: fc.constant('release' as const), upload, bytes }),
  fc.record({ type: fc.constant('remove' as const), upload, bytes }),
);

test('used and reserved never pass the total, every byte is accounted for, and nothing held means nothing reserved', () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      let state = initialQuota;
      const stored: number[] = [];
      for (const { type, upload: uploadId, bytes: size } of steps) {
        const held = state.reservations[uploadId];
        if (type === 'reserve' && held === undefined) state = apply(state, reserve(state, uploadId, size));
        if (type === 'renew') state = apply(state, decideRenew(state, { uploadId, bytes: size, expiresAt }, DEFAULTS));
        if (type === 'release') state = apply(state, decideRelease(state, uploadId));
        if (type === 'commit' && held !== undefined) {
          // An upload stores no more than it holds.
          const used = Math.min(size, held.bytes);
          for (let time = 0; time < 2; time += 1) state = apply(state, decideCommit(state, uploadId, used));
          stored.push(used);
        }
        if (type === 'remove' && stored.length > 0) {
          const gone = stored.pop() ?? 0;
          state = apply(state, decideBeginRemoval(state, { removalId: 'rm', artifactId: 'af_1', expiresAt }));
          for (let time = 0; time < 2; time += 1) state = apply(state, decideEndRemoval(state, 'rm', gone));
        }
        expect(state.usedBytes + reservedBytesOf(state)).toBeLessThanOrEqual(DEFAULTS.totalBytes);
        expect(state.usedBytes).toBe(stored.reduce((sum, one) => sum + one, 0));
      }
      for (const uploadId of Object.keys(state.reservations)) state = apply(state, decideRelease(state, uploadId));
      expect(reservedBytesOf(state)).toBe(0);
      // Never too strict once all has settled: exactly what is left can be had.
      const left = Math.min(DEFAULTS.fileBytes, DEFAULTS.totalBytes - state.usedBytes);
      expect(reserve(state, 'last', left)).toMatchObject({ kind: 'accepted' });
    }),
    { numRuns: 500 },
  );
});

import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { Decision } from '../kernel/decision.ts';
import { decideRelease, decideReserve, OPERATIONS_MAX } from './decide.ts';
import type { QuotaEvent } from './events.ts';
import { evolveQuota, initialQuota, reservedBytesOf } from './state.ts';
import type { QuotaState } from './state.ts';
import { decideHoldWorkspace, heldBy, workspaceBytesOf, WORKSPACES_MAX } from './workspaces.ts';

const META = { at: '2026-01-01T00:00:00.000Z', position: 0, index: 0 };
const TOTAL = 1_000_000;

function apply<R>(state: QuotaState, decision: Decision<QuotaEvent, R>): QuotaState {
  if (decision.kind !== 'accepted') return state;
  return decision.events.reduce((folded, event) => evolveQuota(folded, event, META), state);
}

const hold = (state: QuotaState, workspace: string, bytes: number) =>
  decideHoldWorkspace(state, { workspace, bytes }, TOTAL);

test('a workspace holds a little more than it needs, so that the next changes need nothing', () => {
  const small = apply(initialQuota, hold(initialQuota, 'ws_a', 1));
  expect(heldBy(small, 'ws_a')).toBe(65_537);
  expect(hold(small, 'ws_a', 65_537)).toEqual({ kind: 'unchanged', reply: null });
  const large = apply(small, hold(small, 'ws_a', 800_000));
  expect(workspaceBytesOf(large)).toBe(900_000);
  expect(heldBy(apply(large, decideRelease(large, 'ws_a')), 'ws_a')).toBe(0);
});

test('near the total it holds what it needs, and past it nothing changes', () => {
  const near = apply(initialQuota, hold(initialQuota, 'ws_a', 990_000));
  expect(heldBy(near, 'ws_a')).toBe(TOTAL);
  expect(hold(near, 'ws_b', 1)).toMatchObject({
    kind: 'rejected',
    code: 'limit_exceeded',
    details: { limit: 'total' },
  });
  const upload = { uploadId: 'up', artifactId: 'af', bytes: 1, expiresAt: META.at };
  expect(decideReserve(near, upload, { fileBytes: TOTAL, totalBytes: TOTAL })).toMatchObject({ kind: 'rejected' });
});

test('workspaces and uploads in progress are counted apart', () => {
  const reservation = { artifactId: '', bytes: 0, expiresAt: META.at };
  const many = (prefix: string, count: number): QuotaState => ({
    ...initialQuota,
    reservations: Object.fromEntries(Array.from({ length: count }, (_, n) => [`${prefix}${n}`, reservation])),
  });
  expect(hold(many('up_', OPERATIONS_MAX), 'ws_a', 1).kind).toBe('accepted');
  expect(hold(many('ws_', WORKSPACES_MAX), 'ws_a', 1)).toMatchObject({ details: { limit: 'workspaces' } });
  const upload = { uploadId: 'up', artifactId: 'af', bytes: 1, expiresAt: META.at };
  const limits = { fileBytes: TOTAL, totalBytes: TOTAL };
  expect(decideReserve(many('ws_', OPERATIONS_MAX), upload, limits).kind).toBe('accepted');
});

test('what is held never exceeds the total, and covers what was asked for', () => {
  const step = fc.record({
    workspace: fc.constantFrom('ws_a', 'ws_b', 'ws_c'),
    bytes: fc.nat(600_000),
    frees: fc.boolean(),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 40 }), (steps) => {
      let state = initialQuota;
      for (const { workspace, bytes, frees } of steps) {
        if (frees) state = apply(state, decideRelease(state, workspace));
        const others = reservedBytesOf(state) - heldBy(state, workspace);
        const before = heldBy(state, workspace);
        const decision = hold(state, workspace, bytes);
        state = apply(state, decision);
        expect(reservedBytesOf(state)).toBeLessThanOrEqual(TOTAL);
        expect(decision.kind === 'rejected').toBe(others + bytes > TOTAL && bytes > before);
        expect(decision.kind === 'rejected' || heldBy(state, workspace) >= bytes).toBe(true);
      }
    }),
  );
});

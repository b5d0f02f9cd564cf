import { expect, test } from 'vitest';
import { expiryOf, POD_DEFAULTS, podBounds } from './pod.ts';

test('a spec states what a pod may use, and the rest has defaults', () => {
  expect(podBounds({})).toEqual({ ...POD_DEFAULTS, ttlMs: null });
  expect(podBounds({ cpus: 0.5, memory: '512Mi', storage: '2Gi', idle: '90s', ttl: '2d' })).toEqual({
    cpus: 0.5,
    memoryBytes: 536_870_912,
    storageBytes: 2_147_483_648,
    idleMs: 90_000,
    ttlMs: 172_800_000,
  });
  expect(podBounds({ memory: '1000', storage: '3Ki', idle: '1h', ttl: '1m' })).toMatchObject({
    ...{ memoryBytes: 1_000, storageBytes: 3_072, idleMs: 3_600_000, ttlMs: 60_000 },
  });
});

test('a pod expires its ttl after it was made', () => {
  expect(expiryOf({ ttl: '1h' }, '2026-01-01T00:00:00.000Z')).toBe('2026-01-01T01:00:00.000Z');
  expect(expiryOf({}, '2026-01-01T00:00:00.000Z')).toBeNull();
});

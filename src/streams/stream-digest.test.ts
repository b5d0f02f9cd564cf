import { expect, test } from 'vitest';
import type { FollowedCommit } from './event-store.ts';
import { StreamDigest } from './stream-digest.ts';

function commit(id: string, position: number, hash: string): FollowedCommit {
  const at = '2026-01-01T00:00:00.000Z';
  const envelope = { v: 1, rev: 1, commitId: 'co', at, actor: 'admin', causation: 'r', events: [] } as const;
  return {
    kind: 'commit',
    stored: { ref: { tenant: 'tn', kind: 'session', id }, shard: 0, position, hash, commit: envelope },
  };
}

function digestOf(...commits: readonly FollowedCommit[]): string {
  const digest = new StreamDigest();
  for (const one of commits) digest.take(one);
  expect(digest.commits).toBe(commits.length);
  return digest.result();
}

test('two streams are equal only with the same commits, of the same aggregates, in the same places', () => {
  const [first, second] = [commit('a', 1, 'aa'), commit('b', 3, 'bb')];
  const whole = digestOf(first, second);
  expect(digestOf(commit('a', 1, 'aa'), commit('b', 3, 'bb'))).toBe(whole);
  const others = [
    [first],
    [second, first],
    [first, second, second],
    [first, commit('b', 4, 'bb')],
    [first, commit('b', 3, 'bc')],
    [first, commit('c', 3, 'bb')],
    [first, { kind: 'erased', ref: { tenant: 'tn', kind: 'session', id: 'b' }, shard: 0, position: 3 }],
  ] as const;
  expect(others.map((commits) => digestOf(...commits))).not.toContain(whole);
});

import { mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { genesisOf } from '../../streams/chain.ts';
import type { Commit } from '../../streams/commit.ts';
import type { FollowedCommit } from '../../streams/event-store.ts';
import type { AggregateRef } from '../../streams/subjects.ts';
import { StartError } from '../../lib/start-error.ts';
import { VerifyState } from './verify-state.ts';

const schemas = { session: { 'note.taken': z.strictObject({}), 'session.deleted': z.strictObject({}) } };
const ref = (id: string): AggregateRef => ({ tenant: 'tn_1', kind: 'session', id });

/** A commit `rev` of a session whose hash is `<id><rev>`. */
function commitOf(id: string, rev: number, changes: Partial<Commit> = {}, type = 'note.taken'): Commit {
  const prev = rev === 1 ? genesisOf(ref(id)) : `${id}${rev - 1}`;
  const events = [{ id: 'ev', type, v: 1, data: {} }];
  return { v: 1, rev, prev, commitId: `co_${id}${rev}`, at: '', actor: '', causation: '', events, ...changes };
}

function stored(position: number, id: string, commit: Commit): FollowedCommit {
  return { kind: 'commit', stored: { ref: ref(id), shard: 0, position, hash: `${id}${commit.rev}`, commit } };
}

const { prev: _none, ...unchained } = commitOf('old', 1);
const stream: readonly FollowedCommit[] = [
  stored(1, 'a', commitOf('a', 1)),
  stored(2, 'old', unchained),
  stored(3, 'a', commitOf('a', 2)),
  stored(4, 'old', commitOf('old', 2)),
  // Only the deletion of a session is left.
  stored(5, 'gone', commitOf('gone', 9, {}, 'session.deleted')),
  stored(6, 'a', commitOf('a', 3, { prev: 'another' })),
  { kind: 'undecodable', ref: ref('old'), shard: 0, position: 7, error: new Error('no'), commitId: 'co_x' },
  stored(8, 'old', commitOf('old', 4)),
  stored(9, 'gone', commitOf('gone', 10)),
  stored(10, 'late', commitOf('late', 1, { prev: genesisOf(ref('a')) })),
  stored(11, 'gone', (({ prev: _prev, ...rest }) => rest)(commitOf('gone', 11))),
  { kind: 'erased', ref: ref('b'), shard: 0, position: 12 },
];
const found = [
  { position: 3, commitId: 'co_a2', what: expect.stringMatching('is not the one that commit 3 at 6') as string },
  { position: 7, commitId: 'co_x', what: 'cannot be read: no' },
  { position: 10, commitId: 'co_late1', what: 'commit 1 carries the beginning of another aggregate' },
  { position: 11, commitId: 'co_gone11', what: expect.stringMatching('carries no hash') as string },
];

test('a verification that is interrupted anywhere finds the same when it continues', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'agent-host-verify-'));
  try {
    for (let cut = 0; cut <= stream.length; cut++) {
      const file = join(directory, 'state');
      const load = async (): Promise<VerifyState> => await VerifyState.load(file, { schemas, shards: 1 });
      const first = await load();
      for (const followed of stream.slice(0, cut)) first.take(0, followed);
      await first.save();
      const second = await load();
      expect(second.positionOf(0)).toBe(cut);
      for (const followed of stream.slice(cut)) second.take(0, followed);
      expect(second.problems).toMatchObject(found);
      const { commits, events, erased, unchained: old, heads } = second.verifier;
      expect({ commits, events, erased, old, heads: heads.size }).toEqual({
        ...{ commits: 10, events: 10, erased: 1, old: 2, heads: 4 },
      });
      await second.remove();
      await expect(stat(file)).rejects.toThrow('ENOENT');
    }
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
});

test('a session that is deleted while the log is read is no problem, nor what snapshots have seen of it', async () => {
  const state = await VerifyState.load(null, { schemas, shards: 1 });
  const { verifier } = state;
  for (const position of [2, 4]) verifier.expect({ ref: ref('s'), position, hash: `s${position}` });
  state.take(0, stored(1, 's', commitOf('s', 1)));
  state.take(0, stored(2, 's', commitOf('s', 2)));
  state.take(0, stored(5, 's', commitOf('s', 5, {}, 'session.deleted')));
  expect(state.problems).toEqual([]);
  expect(verifier.unseen).toEqual([]);
  state.take(0, stored(6, 's', commitOf('s', 6)));
  expect(state.problems).toEqual([]);
  state.take(0, stored(8, 's', commitOf('s', 8)));
  expect(state.problems).toMatchObject([{ position: 8, what: 'commit 8 follows commit 6 at 6: 1 missing' }]);
});

test('a file that is something else is refused, and left as it is', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'agent-host-verify-'));
  try {
    const file = join(directory, 'state');
    await writeFile(file, 'my diary');
    await expect(VerifyState.load(file, { schemas, shards: 1 })).rejects.toThrow(StartError);
    const state = await VerifyState.load(join(directory, 'none'), { schemas, shards: 2 });
    await state.save();
    await expect(VerifyState.load(join(directory, 'none'), { schemas, shards: 1 })).rejects.toThrow('other streams');
    expect((await stat(file)).size).toBe(8);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
});

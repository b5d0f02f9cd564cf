import { expect, test } from 'vitest';
import { systemClock } from '#src/lib/clock.ts';
import { MemoryStreams } from '#src/streams/memory/streams.ts';
import { appendAll, newCommits, newRef } from '../support/commits.ts';
import { readCommits, readEvents } from '../support/log-reader.ts';
import { newBucket, openMemoryLog } from '../support/memory-log.ts';
import { overriding } from '../support/overriding.ts';

/** The chaos judges by what it reads, and takes what is not there for lost, or for what no call has done. */
test('a checker reads all that was acknowledged, also where a replica is behind', async () => {
  using log = await openMemoryLog(new MemoryStreams(1, systemClock), newBucket());
  const ref = newRef();
  await appendAll(log.store, ref, newCommits(5));
  // Asked for no more than there is, a replica answers with what it has.
  const behind = overriding(log.store, {
    read: async (of, range) => {
      const page = await log.store.read(of, range);
      return range.atLeast === undefined ? { ...page, commits: page.commits.slice(0, 2) } : page;
    },
  });
  expect((await readCommits(behind, ref)).map(({ commit }) => commit.rev)).toEqual([1, 2, 3, 4, 5]);
  expect(await readEvents(behind, ref)).toHaveLength(5);
  expect(await readEvents(behind, newRef())).toEqual([]);
});

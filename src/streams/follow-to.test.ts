import { expect, onTestFinished, test } from 'vitest';
import { appendAll, newCommit, newRef } from '../../test/support/commits.ts';
import { newBucket, openMemoryLog } from '../../test/support/memory-log.ts';
import { systemClock } from '../lib/clock.ts';
import { commitPlace } from './event-store.ts';
import { followTo } from './follow-to.ts';
import { MemoryStreams } from './memory/streams.ts';

/** Short: nothing is ever late in memory. */
const SILENCE_MS = 1;

test('a stream is followed to a position, and not waited for when a deletion has removed what was there', async () => {
  const log = await openMemoryLog(new MemoryStreams(1, systemClock), newBucket());
  onTestFinished(() => log[Symbol.dispose]());
  const [stays, goes, left] = [newRef(), newRef(), newRef()];
  const [first = 0] = await appendAll(log.store, stays, [newCommit(1)]);
  const [second = 0, end = 0] = await appendAll(log.store, goes, [newCommit(1), newCommit(2)]);
  const followed = async (after: number, onBatch: (position: number) => Promise<void>): Promise<number[]> => {
    const positions: number[] = [];
    const options = { shard: 0, kinds: ['session'], after, end, buffer: 1, silenceMs: SILENCE_MS } as const;
    for await (const batch of followTo(log.source, options)) {
      positions.push(...batch.map((one) => commitPlace(one).position));
      await onBatch(positions.at(-1) ?? 0);
    }
    return positions;
  };
  const nothing = async (): Promise<void> => await Promise.resolve();
  expect(await followed(0, nothing)).toEqual([first, second, end]);
  expect(await followed(end, nothing)).toEqual([]);
  const erase = async (): Promise<void> => await log.store.erase(goes.tenant, ['session']);
  expect(await followed(0, async (position) => (position === second ? await erase() : undefined))).toEqual([
    first,
    second,
  ]);
  expect(await followed(0, nothing)).toEqual([first]);
  expect(await followed(first, nothing)).toEqual([]);
  // What comes behind the position is not waited for, nor taken for what was there.
  const later = await appendAll(log.store, left, [newCommit(1)]);
  expect(await followed(first, nothing)).toEqual(later);
});

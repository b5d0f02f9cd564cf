import { delay } from '../lib/backoff.ts';
import { isUnavailableError } from '../lib/unavailable.ts';
import { lastPosition } from './event-store.ts';
import type { CommitSource, FollowedCommit, FollowOptions } from './event-store.ts';

/** How long nothing may arrive before the stream is asked whether there is still something to wait for. */
const SILENCE_MS = 5_000;

export interface FollowToOptions extends Omit<FollowOptions, 'signal'> {
  /** The last position that is wanted. */
  readonly end: number;
  readonly signal?: AbortSignal | undefined;
  readonly silenceMs?: number | undefined;
}

/**
 * Follows a stream until nothing up to a position is left to come. What was there may be gone: a deletion takes commits
 * out of the log before a stream is read, and while it is.
 * @throws UnavailableError (streams) when it cannot begin
 */
export async function* followTo(
  source: CommitSource,
  { end, silenceMs = SILENCE_MS, signal, ...from }: FollowToOptions,
): AsyncGenerator<readonly FollowedCommit[]> {
  let position = from.after;
  if (position >= end) return;
  let last = Math.min(end, await source.newest(from.shard, from.kinds));
  if (position >= last) return;
  const done = new AbortController();
  const either = signal === undefined ? done.signal : AbortSignal.any([done.signal, signal]);
  const batches = source.follow({ ...from, signal: either })[Symbol.asyncIterator]();
  let next: Promise<IteratorResult<readonly FollowedCommit[], unknown>> | null = null;
  try {
    while (position < last) {
      next ??= batches.next();
      const arrived = await unlessSilent(next, silenceMs);
      if (arrived === 'silent') {
        last = Math.min(last, await newestOr(last, source, from));
        continue;
      }
      next = null;
      if (arrived.done === true) return;
      yield arrived.value;
      position = lastPosition(arrived.value) ?? position;
    }
  } finally {
    done.abort();
    await batches.return?.();
  }
}

async function unlessSilent<T>(next: Promise<T>, silenceMs: number): Promise<T | 'silent'> {
  const arrived = new AbortController();
  try {
    return await Promise.race([next, delay(silenceMs, arrived.signal).then(() => 'silent' as const)]);
  } finally {
    arrived.abort();
  }
}

/** A log that does not answer is waited for, as `follow` does. */
async function newestOr(
  known: number,
  source: CommitSource,
  { shard, kinds }: Pick<FollowOptions, 'shard' | 'kinds'>,
): Promise<number> {
  try {
    return await source.newest(shard, kinds);
  } catch (error) {
    if (isUnavailableError(error, 'streams')) return known;
    throw error;
  }
}

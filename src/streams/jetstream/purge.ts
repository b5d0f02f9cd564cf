import type { JetStreamManager } from '@nats-io/jetstream';
import { delay } from '../../lib/backoff.ts';
import { nextMessage } from './leader-read.ts';

/** Messages that one request is meant to remove: the stream is locked meanwhile, some 3 µs each. */
const STEP = 4_000;
/** Sequences that one request covers at most, where few of them match: also then it removes no more than this. */
const SPAN_MAX = 4 * STEP;
/** After a step, others get this many times as long as it took. */
const PAUSE_TIMES = 1;

/**
 * Removes what matches, in steps: a stream takes no append while it purges, and of a large tenant that is a second. What
 * arrives meanwhile stays.
 * @param before messages from this sequence on stay; null: all that are there now go
 * @throws what the client throws; what was removed stays removed, and it can be repeated
 */
export async function purgeInSteps(
  manager: JetStreamManager,
  stream: string,
  { filter, before }: { readonly filter: string; readonly before: number | null },
): Promise<void> {
  const end = before ?? (await manager.streams.info(stream)).state.last_seq + 1;
  let span = STEP;
  for (let from = 1; from < end;) {
    // What is between belongs to others.
    const next = await nextMessage(manager, stream, { seq: from, subject: filter });
    if (next === null || next.seq >= end) return;
    from = Math.min(end, next.seq + span);
    const begun = performance.now();
    const { purged } = await manager.streams.purge(stream, { filter, seq: from });
    if (purged < STEP / 2) span = Math.min(SPAN_MAX, span * 2);
    if (purged > STEP) span = STEP;
    await delay((performance.now() - begun) * PAUSE_TIMES);
  }
}

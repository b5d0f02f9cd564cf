import type { JetStreamManager } from '@nats-io/jetstream';
import { delay } from '../../lib/backoff.ts';
import { nextMessage } from './leader-read.ts';

/** Messages that one request is meant to remove: the stream is locked meanwhile, some 3 µs each. */
const STEP = 4_000;
/** Sequences that one request covers at most, where few of them match: also then it removes no more than this. */
const SPAN_MAX = 4 * STEP;
/** After a step, others get this many times as long as it took. */
const PAUSE_TIMES = 1;
/** Of many short requests, pauses are taken together: a timer takes a millisecond at least. */
const PAUSE_MS_MIN = 10;

interface Purged {
  readonly filter: string;
  /** Messages from this sequence on stay; null: all that are there now go. */
  readonly before: number | null;
}

/**
 * Removes what matches, in steps: a stream takes no append while it purges, and of a large tenant that is a second. What
 * arrives meanwhile stays.
 * @throws what the client throws; what was removed stays removed, and it can be repeated
 */
export async function purgeInSteps(
  manager: JetStreamManager,
  stream: string,
  { filter, before }: Purged,
): Promise<void> {
  const isOneSubject = !/[*>]/.test(filter);
  const { state } = await manager.streams.info(stream, isOneSubject ? { subjects_filter: filter } : undefined);
  const end = before ?? state.last_seq + 1;
  // To the server, no sequence means all, and servers differ in what the first one means.
  if (end <= 1) return;
  // Each request looks into every later block that has something of the filter, so few messages go by one.
  if (isOneSubject && (state.subjects?.[filter] ?? 0) <= STEP) {
    await manager.streams.purge(stream, { filter, seq: end });
    return;
  }
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

/**
 * Removes all that matches and is there now, subject by subject in the order of their first messages. A purge by a filter
 * with wildcards visits every later block that has something of it, with the stream locked; one of a subject only blocks
 * between its first message and its last. What arrives meanwhile stays, also where another node removes the same.
 * @throws what the client throws; what was removed stays removed, and it can be repeated
 */
export async function purgeSubjects(manager: JetStreamManager, stream: string, filter: string): Promise<void> {
  const end = (await manager.streams.info(stream)).state.last_seq + 1;
  for (let [from, owedMs] = [1, 0]; from < end;) {
    const next = await nextMessage(manager, stream, { seq: from, subject: filter });
    if (next === null || next.seq >= end) return;
    from = next.seq + 1;
    const begun = performance.now();
    await purgeInSteps(manager, stream, { filter: next.subject, before: end });
    owedMs += (performance.now() - begun) * PAUSE_TIMES;
    if (owedMs < PAUSE_MS_MIN) continue;
    await delay(owedMs);
    owedMs = 0;
  }
}

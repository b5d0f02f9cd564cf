import type { SessionEvent } from '#src/domain/session/events.ts';
import { newId } from '#src/lib/ids.ts';
import type { Commit, StoredCommit } from '#src/streams/commit.ts';
import type { KeyValue } from '#src/streams/key-value.ts';
import type { AggregateRef } from '#src/streams/subjects.ts';
import type { TestLog } from './jetstream.ts';
import { overriding } from './overriding.ts';

type EventOf<T extends SessionEvent['type']> = Extract<SessionEvent, { type: T }>;

const HOUR_MS = 3_600_000;

/** What the fold of a whole session would want to know beside this, a dispatcher does not read. */
export function started(turnId: string, deadlineMs = Date.now() + HOUR_MS): SessionEvent {
  const data = { turnId, deadlineAt: new Date(deadlineMs).toISOString() } as EventOf<'turn.started'>['data'];
  return { type: 'turn.started', data };
}

export const resting = (turnId: string): SessionEvent => ({
  type: 'segment.released',
  data: { turnId, epoch: 1, resting: true },
});

export const paused = (turnId: string): SessionEvent => ({ type: 'turn.paused', data: { turnId, interactions: [] } });

export const ended = (turnId: string): SessionEvent => ({ type: 'turn.cancelled', data: { turnId } });

/** A commit as far as a dispatcher reads it. */
export function commitOf(rev: number, events: readonly SessionEvent[]): Commit {
  return {
    v: 1,
    rev,
    commitId: newId('co'),
    at: new Date().toISOString(),
    actor: 'application:test',
    causation: `r-${rev}`,
    events: events.map(({ type, data }) => ({ id: newId('ev'), type, v: 1, data: { ...data } })),
  };
}

export function storedCommit(ref: AggregateRef, position: number, events: readonly SessionEvent[]): StoredCommit {
  return { ref, shard: 0, position, hash: '', commit: commitOf(position, events) };
}

/** Appends a commit to each session, many at a time. Returns the position of each. */
export async function appendAll(
  log: TestLog,
  refs: readonly AggregateRef[],
  { after, events }: { after: (index: number) => number; events: (index: number) => readonly SessionEvent[] },
): Promise<number[]> {
  const positions: number[] = [];
  let next = 0;
  const lane = async (): Promise<void> => {
    for (let index = next++; index < refs.length; index = next++) {
      const ref = refs[index];
      if (ref === undefined) return;
      const expected = after(index);
      const result = await log.store.append(ref, expected, commitOf(expected === 0 ? 1 : 2, events(index)));
      if (result.kind !== 'appended') throw new Error('the append met another');
      positions[index] = result.position;
    }
  };
  await Promise.all(Array.from({ length: 256 }, lane));
  return positions;
}

/** A bucket that counts what is written to it. */
export function counted(bucket: KeyValue): {
  bucket: KeyValue;
  written: { bytes: number; values: number; most: number };
} {
  const written = { bytes: 0, values: 0, most: 0 };
  const swap: KeyValue['swap'] = async (key, value, options) => {
    const bytes = Buffer.byteLength(value);
    written.bytes += bytes;
    written.values++;
    written.most = Math.max(written.most, bytes);
    return await bucket.swap(key, value, options);
  };
  return { bucket: overriding(bucket, { swap }), written };
}

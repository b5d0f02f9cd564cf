import { toCanonical } from '../domain/session/canonical.ts';
import type { SessionEvent } from '../domain/session/events.ts';
import { eventsOf } from '../streams/commit.ts';
import type { StoredCommit } from '../streams/commit.ts';
import { encodeCursor } from '../streams/cursor.ts';
import type { EventStore } from '../streams/event-store.ts';
import type { MemoryStreams } from '../streams/memory/streams.ts';
import type { AggregateRef } from '../streams/subjects.ts';
import type { UntilOptions } from './types.ts';

const WITHIN_MS = 30_000;
const PAGE = 1_000;

/** A record of a session, as its clients see it. */
interface Recorded {
  readonly eventId: string;
  readonly sessionId: string;
  readonly turnId: string | null;
  readonly cursor: string;
  readonly createdAt: string;
  readonly type: string;
  readonly payload: Readonly<Record<string, unknown>>;
}

interface UntilDeps {
  readonly streams: MemoryStreams;
  readonly store: EventStore;
}

/** The wanted event of a session, once it is recorded. @throws Error when it does not come in time */
export async function untilRecorded(
  deps: UntilDeps,
  sessionId: string,
  type: string,
  { tenant, nth = 1, withinMs = WITHIN_MS }: UntilOptions,
): Promise<Recorded> {
  const deadline = performance.now() + withinMs;
  let wake = (): void => undefined;
  const unlisten = deps.streams.listen(() => wake());
  try {
    for (;;) {
      const told = new Promise<void>((resolve) => (wake = resolve));
      const events = await recorded(deps, sessionId, tenant);
      const found = events.filter((event) => event.type === type)[nth - 1];
      if (found !== undefined) return found;
      if (performance.now() >= deadline) throw new Error(missing(sessionId, type, events, { nth, withinMs }));
      await either(told, deadline - performance.now());
    }
  } finally {
    unlisten();
  }
}

async function either(told: Promise<void>, ms: number): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  await Promise.race([told, new Promise<void>((resolve) => (timer = setTimeout(resolve, Math.max(0, ms))))]);
  clearTimeout(timer);
}

/** What a client would see of the session, in order. */
async function recorded({ streams, store }: UntilDeps, id: string, tenant?: string): Promise<readonly Recorded[]> {
  const refs = sessionsOf(streams, id).filter((ref) => tenant === undefined || ref.tenant === tenant);
  const [ref, other] = refs;
  if (other !== undefined) throw new Error(`several tenants have a session ${id}; name the tenant`);
  const found: Recorded[] = [];
  for (let [after, more] = [0, ref !== undefined]; more && ref !== undefined;) {
    const page = await store.read(ref, { after, limit: PAGE });
    for (const stored of page.commits) found.push(...recordsOf(stored));
    after = page.commits.at(-1)?.position ?? after;
    more = page.more;
  }
  return found;
}

function recordsOf({ ref, shard, position, commit }: StoredCommit): readonly Recorded[] {
  return eventsOf<SessionEvent>(commit).flatMap((event, index) => {
    const shown = toCanonical(event);
    if (shown === null) return [];
    const cursor = encodeCursor(ref, { shard, position, index });
    return [{ ...shown, eventId: commit.events[index]?.id ?? '', sessionId: ref.id, cursor, createdAt: commit.at }];
  });
}

function sessionsOf(streams: MemoryStreams, id: string): readonly AggregateRef[] {
  const found = new Map<string, AggregateRef>();
  for (let shard = 0; shard < streams.shards; shard++) {
    for (const { ref, key } of streams.after(shard, ['session'], { position: 0, most: Number.POSITIVE_INFINITY })) {
      if (ref.id === id) found.set(key, ref);
    }
  }
  return [...found.values()];
}

function missing(
  id: string,
  type: string,
  events: readonly Recorded[],
  { nth, withinMs }: { readonly nth: number; readonly withinMs: number },
): string {
  const which = nth === 1 ? type : `${type} no. ${nth}`;
  const seen = events.map((event) => event.type).join(', ');
  const last = events.findLast((event) => event.type === 'turn.failed');
  const why = last === undefined ? '' : `; the turn failed: ${JSON.stringify(last.payload)}`;
  return `the session ${id} had no ${which} within ${withinMs} ms; it had ${seen === '' ? 'nothing' : seen}${why}`;
}

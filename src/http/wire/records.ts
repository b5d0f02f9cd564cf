import type { HistoryRecord } from '../../projections/sessions/views.ts';
import { toCanonicalSandbox } from '../../domain/sandbox/canonical.ts';
import type { CanonicalSandboxEvent } from '../../domain/sandbox/canonical.ts';
import type { SandboxEvent } from '../../domain/sandbox/events.ts';
import { toCanonical } from '../../domain/session/canonical.ts';
import type { CanonicalEvent } from '../../domain/session/canonical.ts';
import type { SessionEvent } from '../../domain/session/events.ts';
import { eventsOf } from '../../streams/commit.ts';
import type { StoredCommit } from '../../streams/commit.ts';
import { encodeCursor } from '../../streams/cursor.ts';
import type { InheritedPart } from '../../streams/cursor.ts';
import type { AggregateRef } from '../../streams/subjects.ts';

/** A record of the canonical history as the text that pages and streams both send. */
export function recordText(
  ref: AggregateRef,
  record: HistoryRecord,
): { readonly cursor: string; readonly text: string } {
  const cursor = encodeCursor(ref, record);
  const { eventId, turnId, at, type, payload } = record;
  // The payload is JSON text already; everything else is ours and needs no more than quoting.
  const text =
    `{"eventId":"${eventId}","${ref.kind === 'sandbox' ? 'sandboxId' : 'sessionId'}":${JSON.stringify(ref.id)},"turnId":${turnId === null ? 'null' : JSON.stringify(turnId)},` +
    `"cursor":"${cursor}","createdAt":"${at}","type":"${type}","payload":${payload}}`;
  return { cursor, text };
}

/** One event as an SSE frame, and its place. */
export interface Frame {
  readonly index: number;
  readonly text: string;
  /** The delegation that it belongs to, for the `agent` filter. */
  readonly agent: { readonly path?: unknown; readonly delegationId?: unknown } | null;
}

const framesOf = new WeakMap<StoredCommit, readonly Frame[]>();

/** The frames of a commit, made once for all readers of it: JSON text has no line breaks, so a record is one line. */
export function frames(stored: StoredCommit): readonly Frame[] {
  const known = framesOf.get(stored);
  if (known !== undefined) return known;
  const made = makeFrames(stored, stored.ref, undefined);
  framesOf.set(stored, made);
  return made;
}

/** The frames of an ancestor's commit, as the history of a fork has them. */
export function inheritedFrames(stored: StoredCommit, ref: AggregateRef, part: InheritedPart): readonly Frame[] {
  return makeFrames(stored, ref, part);
}

function makeFrames(stored: StoredCommit, ref: AggregateRef, inherited: InheritedPart | undefined): readonly Frame[] {
  return canonicalOf(stored).flatMap((canonical, index) => {
    if (canonical === null) return [];
    const { type, turnId, payload } = canonical;
    const place = { shard: stored.shard, position: stored.position, index, inherited, at: stored.commit.at };
    const record = {
      eventId: stored.commit.events[index]?.id ?? '',
      turnId,
      type,
      payload: JSON.stringify(payload),
      ...place,
    };
    const { cursor, text } = recordText(ref, record);
    return [{ index, text: `id: ${cursor}\nevent: ${type}\ndata: ${text}\n\n`, agent: agentOf(payload) }];
  });
}

/** What readers see of each event of a commit; null: nothing. */
function canonicalOf({ ref, commit }: StoredCommit): (CanonicalEvent | CanonicalSandboxEvent | null)[] {
  if (ref.kind !== 'sandbox') return eventsOf<SessionEvent>(commit).map(toCanonical);
  return eventsOf<SandboxEvent>(commit).map((event) => toCanonicalSandbox(event, ref.id));
}

function agentOf(payload: Readonly<Record<string, unknown>>): Frame['agent'] {
  const agent = payload['agent'];
  return typeof agent === 'object' && agent !== null ? agent : null;
}

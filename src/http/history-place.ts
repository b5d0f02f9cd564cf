import { optional } from '../domain/kernel/optional.ts';
import { reject } from '../domain/kernel/rejection.ts';
import type { Rejection } from '../domain/kernel/rejection.ts';
import type { RecordPlace } from '../domain/session/fork-state.ts';
import type { ReadSession } from '../projections/forks/queries.ts';
import { decodeCursor } from '../streams/cursor.ts';
import type { EventPlace } from '../streams/cursor.ts';
import type { AggregateRef } from '../streams/subjects.ts';
import { ProblemError } from './problem.ts';

const FOREIGN_CURSOR = 'The cursor is not one of this session. Use a cursor from its items or events, or none.';

/** @throws ProblemError when the cursor is malformed or of another session */
export function placeOf(ref: AggregateRef, cursor: string): EventPlace {
  const place = decodeCursor(ref, cursor);
  if (place === null) throw foreignCursor();
  return place;
}

/** Whether a place is of the present session, not of an earlier one with the same id. */
export function isCurrent({ position, inherited }: EventPlace, { createdPosition, origin }: ReadSession): boolean {
  if (inherited === undefined) return position >= createdPosition;
  return inherited.createdPosition === createdPosition && origin?.ancestry[inherited.ancestor] !== undefined;
}

/** Why a place is none of the present session; null: it is one. */
export function misplaced(place: EventPlace, session: ReadSession): Rejection | null {
  return isCurrent(place, session) ? null : reject('cursor_invalid', FOREIGN_CURSOR);
}

/** The record at a place, as commands name it. */
export function recordPlace({ position, index, inherited }: EventPlace): RecordPlace {
  return { position, index, ...optional({ ancestor: inherited?.ancestor }) };
}

/** @throws ProblemError when the cursor is of an earlier session with the same id */
export function refuseEarlier(place: EventPlace, session: ReadSession): void {
  if (!isCurrent(place, session)) throw foreignCursor();
}

function foreignCursor(): ProblemError {
  return new ProblemError({ code: 'cursor_invalid', message: FOREIGN_CURSOR });
}

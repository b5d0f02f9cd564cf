import type { ReadSession } from '../projections/forks/queries.ts';
import { decodeCursor } from '../streams/cursor.ts';
import type { EventPlace } from '../streams/cursor.ts';
import type { AggregateRef } from '../streams/subjects.ts';
import { ProblemError } from './problem.ts';

export const FOREIGN_CURSOR = 'The cursor is not one of this session. Use a cursor from its items or events, or none.';

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

/** @throws ProblemError when the cursor is of an earlier session with the same id */
export function refuseEarlier(place: EventPlace, session: ReadSession): void {
  if (!isCurrent(place, session)) throw foreignCursor();
}

function foreignCursor(): ProblemError {
  return new ProblemError({ code: 'cursor_invalid', message: FOREIGN_CURSOR });
}

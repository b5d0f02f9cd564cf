import { hash } from 'node:crypto';
import { memoized } from '../lib/memo.ts';
import type { AggregateRef } from './subjects.ts';

/** A place in an aggregate's history: the event at `index` of the commit at `position` in stream `shard`. */
export interface EventPlace {
  readonly shard: number;
  readonly position: number;
  readonly index: number;
  /** In what a fork inherits; absent: in its own part, as for every non-fork. */
  readonly inherited?: InheritedPart | undefined;
}

/** A part of a fork's history that is in another aggregate. */
export interface InheritedPart {
  /** Its number, from the oldest. Positions of different parts do not compare, their numbers do. */
  readonly ancestor: number;
  /** Position at which the fork was created: a cursor of an earlier one with the same id differs. */
  readonly createdPosition: number;
}

/** Versions for a place of its own and for an inherited one. */
const OWN = 1;
const INHERITED = 2;
const CHECK_BYTES = 5;
const CHECKS_KNOWN = 20_000;

/**
 * An opaque text for a place, bound to its aggregate: a cursor of another session does not decode. It is no secret and
 * grants nothing; the check only keeps mistakes from being read as a position.
 * Layout: version, shard, position (6 bytes), index (2 bytes), check (5 bytes) as base64url. Version 2 adds before the
 * check: number of the part (1 byte), position of the fork's creation (6 bytes).
 */
export function encodeCursor(ref: AggregateRef, { shard, position, index, inherited }: EventPlace): string {
  const length = inherited === undefined ? 10 : 17;
  const bytes = Buffer.alloc(length + CHECK_BYTES);
  bytes.writeUInt8(inherited === undefined ? OWN : INHERITED, 0);
  bytes.writeUInt8(shard, 1);
  bytes.writeUIntBE(position, 2, 6);
  bytes.writeUInt16BE(index, 8);
  if (inherited !== undefined) {
    bytes.writeUInt8(inherited.ancestor, 10);
    bytes.writeUIntBE(inherited.createdPosition, 11, 6);
  }
  check(ref).copy(bytes, length);
  return bytes.toString('base64url');
}

/** The place, or null when the text is not a cursor of this aggregate. */
export function decodeCursor(ref: AggregateRef, cursor: string): EventPlace | null {
  const place = placeInCursor(cursor);
  if (place === null) return null;
  return Buffer.from(cursor, 'base64url').subarray(-CHECK_BYTES).equals(check(ref)) ? place : null;
}

/** The place that a cursor of any aggregate names, or null when the text is not one. Mistakes are not detected. */
export function placeInCursor(cursor: string): EventPlace | null {
  if (!/^(?:[A-Za-z0-9_-]{20}|[A-Za-z0-9_-]{29}[AQgw])$/.test(cursor)) return null;
  const bytes = Buffer.from(cursor, 'base64url');
  const isInherited = cursor.length > 20;
  if (bytes.readUInt8(0) !== (isInherited ? INHERITED : OWN)) return null;
  const place = { shard: bytes.readUInt8(1), position: bytes.readUIntBE(2, 6), index: bytes.readUInt16BE(8) };
  if (!isInherited) return place;
  return { ...place, inherited: { ancestor: bytes.readUInt8(10), createdPosition: bytes.readUIntBE(11, 6) } };
}

/** Every frame of a session has a cursor, and several sessions alternate. */
const checkOf = memoized(CHECKS_KNOWN, (key) => hash('sha256', key, 'buffer').subarray(0, CHECK_BYTES));

function check(ref: AggregateRef): Buffer {
  return checkOf(`${ref.tenant}\0${ref.kind}\0${ref.id}`);
}

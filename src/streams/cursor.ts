import { hash } from 'node:crypto';
import type { AggregateRef } from './subjects.ts';

/** A place in an aggregate's history: the event at `index` of the commit at `position` in stream `shard`. */
export interface EventPlace {
  readonly shard: number;
  readonly position: number;
  readonly index: number;
}

const VERSION = 1;
const CHECK_BYTES = 5;

/**
 * An opaque text for a place, bound to its aggregate: a cursor of another session does not decode. It is no secret and
 * no permission; the check only keeps mistakes from being read as a position.
 * Layout: version, shard, position (6 bytes), index (2 bytes), check (5 bytes) as base64url.
 */
export function encodeCursor(ref: AggregateRef, place: EventPlace): string {
  const bytes = Buffer.alloc(10 + CHECK_BYTES);
  bytes.writeUInt8(VERSION, 0);
  bytes.writeUInt8(place.shard, 1);
  bytes.writeUIntBE(place.position, 2, 6);
  bytes.writeUInt16BE(place.index, 8);
  check(ref).copy(bytes, 10);
  return bytes.toString('base64url');
}

/** The place, or null when the text is no cursor of this aggregate. */
export function decodeCursor(ref: AggregateRef, cursor: string): EventPlace | null {
  if (!/^[A-Za-z0-9_-]{20}$/.test(cursor)) return null;
  const bytes = Buffer.from(cursor, 'base64url');
  if (bytes.length !== 10 + CHECK_BYTES || bytes.readUInt8(0) !== VERSION) return null;
  if (!bytes.subarray(10).equals(check(ref))) return null;
  return { shard: bytes.readUInt8(1), position: bytes.readUIntBE(2, 6), index: bytes.readUInt16BE(8) };
}

let lastKey = '';
let lastCheck = Buffer.alloc(CHECK_BYTES);

function check(ref: AggregateRef): Buffer {
  const key = `${ref.tenant}\0${ref.kind}\0${ref.id}`;
  if (key !== lastKey) {
    lastCheck = hash('sha256', key, 'buffer').subarray(0, CHECK_BYTES);
    lastKey = key;
  }
  return lastCheck;
}

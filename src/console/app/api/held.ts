import type { EventRecord } from '../../../client/client.ts';

/** What is held of a history at once, which may have millions of records, and records of a megabyte. */
const RECORDS_MAX = 10_000;
const BYTES_MAX = 64 * 1_048_576;
/** So much more may come before it is cut: a cut costs what folding all that is left costs. */
const SLACK = 1.2;
/** What a member takes besides its text, about. */
const MEMBER_BYTES = 32;

const weights = new WeakMap<EventRecord, number>();

/** What a record takes in memory, about. */
function weightOf(record: EventRecord): number {
  const known = weights.get(record);
  if (known !== undefined) return known;
  const bytes = bytesOf(record);
  weights.set(record, bytes);
  return bytes;
}

/** Values of the API are no deeper than a stack. */
function bytesOf(value: unknown): number {
  if (typeof value === 'string') return MEMBER_BYTES + 2 * value.length;
  if (typeof value !== 'object' || value === null) return MEMBER_BYTES;
  return Object.values(value).reduce((sum: number, member: unknown) => sum + bytesOf(member), MEMBER_BYTES);
}

/** What records take in memory together, about. */
export function bytesOfAll(records: readonly EventRecord[]): number {
  return records.reduce((sum, record) => sum + weightOf(record), 0);
}

/** Whether so many records of so many bytes are so many more than are held that some should go. */
export function isTooMuch(count: number, bytes: number): boolean {
  return count > RECORDS_MAX * SLACK || bytes > BYTES_MAX * SLACK;
}

/** As many of the last records as are held; at least one. */
export function newestOf(records: readonly EventRecord[]): readonly EventRecord[] {
  const count = fitting(records.length, (place) => records[records.length - 1 - place]);
  return count === records.length ? records : records.slice(-count);
}

/** As many of the first records as are held; at least one. */
export function oldestOf(records: readonly EventRecord[]): readonly EventRecord[] {
  const count = fitting(records.length, (place) => records[place]);
  return count === records.length ? records : records.slice(0, count);
}

function fitting(length: number, at: (place: number) => EventRecord | undefined): number {
  let bytes = 0;
  for (let place = 0; place < length; place++) {
    const record = at(place);
    bytes += record === undefined ? 0 : weightOf(record);
    if (place > 0 && (place === RECORDS_MAX || bytes > BYTES_MAX)) return place;
  }
  return length;
}

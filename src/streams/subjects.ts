import { hash } from 'node:crypto';
import { memoized } from '../lib/memo.ts';

/** What a subject of the log holds the history of. The whole subject is the aggregate: no event type in it. */
export const AGGREGATE_KINDS = [
  'session',
  'sandbox',
  'artifact',
  'agent',
  'executor',
  'vault',
  'model',
  'issuer',
  'key',
  'tenant',
  'quota',
  'budget',
] as const;

export type AggregateKind = (typeof AGGREGATE_KINDS)[number];

export interface AggregateRef {
  readonly tenant: string;
  readonly kind: AggregateKind;
  readonly id: string;
}

/** Frozen: it is part of every stored subject. */
export const BUCKETS = 64;
const BUCKETS_KNOWN = 20_000;

/** A digest costs twenty times a look-up, and an aggregate that is written to is written to again. */
const bucketOfKey = memoized(BUCKETS_KNOWN, (key) => (hash('sha1', key, 'buffer')[0] ?? 0) % BUCKETS);

/** Bucket of an aggregate, 0 to 63: the same on every node, forever. */
export function bucketOf(ref: AggregateRef): number {
  return bucketOfKey(`${ref.tenant}\0${ref.id}`);
}

/** Stream that holds a bucket, of `shards` streams. */
export function streamOf(bucket: number, shards: number): number {
  return bucket % shards;
}

export function streamName(shard: number): string {
  return `EVT_${shard}`;
}

export function shardOfStreamName(name: string): number {
  return Number(name.slice('EVT_'.length));
}

const NEEDS_ESCAPE = /[^A-Za-z0-9_-]/;

/** Any text as one legal subject token: what is not a letter, digit, `_` or `-` becomes `=` and the hex of its UTF-8 bytes. */
export function escapeToken(text: string): string {
  if (!NEEDS_ESCAPE.test(text)) return text;
  return text.replace(/[^A-Za-z0-9_-]/gu, (char) =>
    [...Buffer.from(char)].map((byte) => `=${byte.toString(16).padStart(2, '0')}`).join(''),
  );
}

/** The text of a token. Total: a token that `escapeToken` never made stands for itself; one foreign message must not stop a reader. */
export function unescapeToken(token: string): string {
  if (!token.includes('=')) return token;
  try {
    return decodeURIComponent(token.replaceAll('=', '%'));
  } catch {
    return token;
  }
}

export function subjectOf(ref: AggregateRef): string {
  return `evt.${bucketOf(ref)}.${escapeToken(ref.tenant)}.${ref.kind}.${escapeToken(ref.id)}`;
}

/** The aggregate of a stored or republished subject (`evt.…` or `live.…`). */
export function refOfSubject(subject: string): AggregateRef {
  const [, , tenant = '', kind = '', id = ''] = subject.split('.');
  // Only aggregates of these kinds are ever written; a foreign one matches none, and no reader follows it.
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion
  return { tenant: unescapeToken(tenant), kind: kind as AggregateKind, id: unescapeToken(id) };
}

/** A key for maps and for key-value buckets: the subject without its first two tokens. */
export function refKey(ref: AggregateRef): string {
  return `${ref.kind}.${escapeToken(ref.tenant)}.${escapeToken(ref.id)}`;
}

/** The stored subject (`evt.…`) of one on which the server republished it (`live.…`). */
export function eventSubjectOfLive(liveSubject: string): string {
  return `evt${liveSubject.slice('live'.length)}`;
}

import { jetstream } from '@nats-io/jetstream';
import type { JetStreamClient, JsMsg } from '@nats-io/jetstream';
import type { KV } from '@nats-io/kv';
import type { NatsConnection } from '@nats-io/transport-node';
import type { KeyValue, KeyValueChange, KeyValueEntry } from '../key-value.ts';
import { UnavailableError } from '../../lib/unavailable.ts';
import { isRemoval, KeyValueWatch } from './key-value-watch.ts';
import { purgeInSteps } from './purge.ts';
import { ApiCode, apiCode, isWrongLastSequence } from './errors.ts';

/** Each try but the first means that another writer won. */
const SHRED_TRIES = 20;

export interface BucketOptions {
  readonly kv: KV;
  readonly name: string;
  /** How long the marker of a removed entry stays, ms, in a bucket that is made for markers that expire; absent: for ever. */
  readonly markerMs?: number;
  readonly onRoundTrip?: () => void;
  /** Called with why a watch could not be continued after the connection was away, and with null once one has been. */
  readonly onContinued?: (error: unknown) => void;
  /** Called with the key of a change that could not be taken, and why; the watch hears of the next one. */
  readonly onUntaken?: (key: string, error: unknown) => void;
}

/** A JetStream bucket. */
export class JetStreamKeyValue implements KeyValue {
  readonly #connection: NatsConnection;
  readonly #js: JetStreamClient;
  readonly #kv: KV;
  readonly #bucket: string;
  readonly #markerMs: number | undefined;
  readonly #onRoundTrip: () => void;
  readonly #onContinued: (error: unknown) => void;
  readonly #onUntaken: (key: string, error: unknown) => void;
  readonly #watches = new Set<KeyValueWatch>();
  #isHearing = false;

  constructor(connection: NatsConnection, bucket: BucketOptions) {
    this.#connection = connection;
    this.#js = jetstream(connection);
    this.#kv = bucket.kv;
    this.#bucket = bucket.name;
    this.#markerMs = bucket.markerMs;
    this.#onRoundTrip = bucket.onRoundTrip ?? ((): void => undefined);
    this.#onContinued = bucket.onContinued ?? ((): void => undefined);
    this.#onUntaken = bucket.onUntaken ?? ((): void => undefined);
  }

  async get(key: string): Promise<KeyValueEntry | null> {
    this.#onRoundTrip();
    const entry = await this.#reach(async () => await this.#kv.get(key));
    if (entry === null || entry.operation !== 'PUT') return null;
    return { key, value: entry.string(), revision: entry.revision };
  }

  async newest(key: string): Promise<KeyValueEntry | null> {
    this.#onRoundTrip();
    const subject = `$KV.${this.#bucket}.${key}`;
    const stored = await this.#reach(async () => {
      const manager = await this.#js.jetstreamManager(false);
      return await manager.streams.getMessage(`KV_${this.#bucket}`, { last_by_subj: subject });
    });
    if (stored === null || isRemoval(stored.header)) return null;
    return { key, value: stored.string(), revision: stored.seq };
  }

  async put(key: string, value: string): Promise<number> {
    this.#onRoundTrip();
    return await this.#reach(async () => await this.#kv.put(key, value));
  }

  /**
   * A raw publish, because the bucket's `update` silently drops a time to live: the entry would never expire. An entry
   * that was removed or expired leaves a marker with a revision of its own, which "there is none" must step over.
   */
  async swap(key: string, value: string, options: { expected: number; ttlMs?: number }): Promise<number | null> {
    const written = await this.#publish(key, value, options);
    if (written !== null || options.expected !== 0) return written;
    const marker = await this.#reach(async () => await this.#kv.get(key));
    if (marker === null || marker.operation === 'PUT') return null;
    return await this.#publish(key, value, { ...options, expected: marker.revision });
  }

  async #publish(key: string, value: string, options: { expected: number; ttlMs?: number }): Promise<number | null> {
    const ttl = options.ttlMs === undefined ? {} : { ttl: secondsOf(options.ttlMs) };
    this.#onRoundTrip();
    try {
      const expect = { lastSubjectSequence: options.expected };
      const ack = await this.#js.publish(`$KV.${this.#bucket}.${key}`, value, { expect, timeout: 2_000, ...ttl });
      return ack.seq;
    } catch (cause) {
      if (isWrongLastSequence(cause)) return null;
      throw new UnavailableError('streams', 'the key-value store cannot be reached', { cause });
    }
  }

  async remove(key: string): Promise<void> {
    this.#onRoundTrip();
    const markerMs = this.#markerMs;
    await this.#reach(async () => {
      // Only a purge takes a time to live. Nodes have keys of their own: markers that stay would be more with each ever started.
      if (markerMs === undefined) await this.#kv.delete(key);
      else await this.#kv.purge(key, { ttl: secondsOf(markerMs) });
    });
  }

  async shred(key: string): Promise<void> {
    for (let attempt = 0; attempt < SHRED_TRIES; attempt++) {
      this.#onRoundTrip();
      const entry = await this.#reach(async () => await this.#kv.get(key));
      if (entry === null || (await this.#overwrite(entry.revision))) return;
    }
    throw new UnavailableError('streams', 'an entry is written faster than it can be overwritten');
  }

  /** False: another writer has replaced the entry. */
  async #overwrite(revision: number): Promise<boolean> {
    this.#onRoundTrip();
    const manager = await this.#js.jetstreamManager(false);
    try {
      return await manager.streams.deleteMessage(`KV_${this.#bucket}`, revision, true);
    } catch (cause) {
      const code = apiCode(cause);
      if (code === ApiCode.sequenceNotFound || code === ApiCode.beyondTheEnd) return false;
      throw new UnavailableError('streams', 'the key-value store cannot be reached', { cause });
    }
  }

  async erase(prefix: string): Promise<void> {
    this.#onRoundTrip();
    await this.#reach(async () => {
      const manager = await this.#js.jetstreamManager(false);
      await purgeInSteps(manager, `KV_${this.#bucket}`, { filter: `$KV.${this.#bucket}.${prefix}.>`, before: null });
    });
  }

  async watch(prefix: string, onChange: (change: KeyValueChange) => void, signal: AbortSignal): Promise<void> {
    if (signal.aborted) return;
    const subjects = `$KV.${this.#bucket}.`;
    const tell = (change: KeyValueChange, key: string): void => {
      try {
        onChange(change);
      } catch (error) {
        // The client would hand on nothing more, and a start that waits for all that is there would wait for ever.
        this.#onUntaken(key, error);
      }
    };
    const keyOf = (subject: string): string => subject.slice(subjects.length);
    const watch = new KeyValueWatch({
      js: this.#js,
      stream: `KV_${this.#bucket}`,
      filter: prefix === '' ? `${subjects}>` : `${subjects}${prefix}.>`,
      onMessage: (message) => tell(changeOf(message, keyOf(message.subject)), keyOf(message.subject)),
      onGone: (subject) => tell({ kind: 'removed', key: keyOf(subject) }, keyOf(subject)),
      onContinued: this.#onContinued,
      signal,
    });
    if (!this.#isHearing) void this.#hearReconnections();
    this.#watches.add(watch);
    const forget = (): void => void this.#watches.delete(watch);
    signal.addEventListener('abort', forget, { once: true });
    try {
      await this.#reach(async () => await watch.start());
    } catch (error) {
      signal.removeEventListener('abort', forget);
      forget();
      throw error;
    }
  }

  /** Until the connection is closed, and with it all watches. */
  async #hearReconnections(): Promise<void> {
    this.#isHearing = true;
    for await (const { type } of this.#connection.status()) {
      if (type === 'reconnect') for (const watch of this.#watches) watch.again();
    }
    for (const watch of this.#watches) watch.end();
  }

  async #reach<T>(operation: () => Promise<T>): Promise<T> {
    try {
      return await operation();
    } catch (cause) {
      throw new UnavailableError('streams', 'the key-value store cannot be reached', { cause });
    }
  }
}

/** A time to live as the server takes it, which knows whole seconds. */
function secondsOf(ms: number): string {
  return `${Math.max(1, Math.round(ms / 1000))}s`;
}

function changeOf(message: JsMsg, key: string): KeyValueChange {
  return isRemoval(message.headers)
    ? { kind: 'removed', key }
    : { kind: 'put', entry: { key, value: message.string(), revision: message.seq } };
}

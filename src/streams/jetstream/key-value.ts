import { DeliverPolicy, jetstream } from '@nats-io/jetstream';
import type { JetStreamClient, JsMsg } from '@nats-io/jetstream';
import type { KV } from '@nats-io/kv';
import type { MsgHdrs, NatsConnection } from '@nats-io/transport-node';
import type { KeyValue, KeyValueChange, KeyValueEntry } from '../key-value.ts';
import { delay } from '../../lib/backoff.ts';
import { faultPoint } from '../../lib/fault-points.ts';
import { UnavailableError } from '../../lib/unavailable.ts';
import { purgeInSteps } from './purge.ts';
import { ApiCode, apiCode, isWrongLastSequence } from './errors.ts';

/** How often a watch asks whether entries that it has not heard of are still there, ms. */
const CHECK_MS = 500;
/** Each try but the first means that another writer won. */
const SHRED_TRIES = 20;

/** A JetStream bucket. */
export class JetStreamKeyValue implements KeyValue {
  readonly #js: JetStreamClient;
  readonly #kv: KV;
  readonly #bucket: string;
  readonly #onRoundTrip: () => void;

  constructor(connection: NatsConnection, bucket: { kv: KV; name: string; onRoundTrip?: () => void }) {
    this.#js = jetstream(connection);
    this.#kv = bucket.kv;
    this.#bucket = bucket.name;
    this.#onRoundTrip = bucket.onRoundTrip ?? ((): void => undefined);
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
    const ttl = options.ttlMs === undefined ? {} : { ttl: `${Math.max(1, Math.round(options.ttlMs / 1000))}s` };
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
    await this.#reach(async () => {
      await this.#kv.delete(key);
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
    const subjects = `$KV.${this.#bucket}.`;
    await this.#reach(async () => {
      const consumer = await this.#js.consumers.getPushConsumer(`KV_${this.#bucket}`, {
        filter_subjects: prefix === '' ? `${subjects}>` : `${subjects}${prefix}.>`,
        deliver_policy: DeliverPolicy.LastPerSubject,
      });
      const { num_pending } = await consumer.info(true);
      await faultPoint('watch.counted');
      let isWhole = false;
      let received = 0;
      await new Promise<void>((resolve, reject) => {
        signal.addEventListener('abort', () => resolve(), { once: true });
        const callback = (message: JsMsg): void => {
          if (signal.aborted) return;
          received = message.info.deliverySequence;
          onChange(changeOf(message, subjects.length));
          // Not counted down from the first number: an entry may expire before it is delivered.
          if (message.info.pending === 0) whole();
        };
        const whole = (): void => {
          isWhole = true;
          resolve();
        };
        // If the last ones expired or were purged before delivery, no message says that it is the last.
        const check = async (): Promise<void> => {
          while (!isWhole && !signal.aborted) {
            await delay(CHECK_MS, signal);
            const info = await consumer.info().catch(() => null);
            if (info?.num_pending === 0 && info.delivered.consumer_seq <= received) whole();
          }
        };
        const begin = async (): Promise<void> => {
          const messages = await consumer.consume({ callback });
          const stop = (): void => messages.stop();
          signal.addEventListener('abort', stop, { once: true });
          if (signal.aborted) stop();
          // Only once the subscription exists: of what is written earlier only the newest value would be heard.
          if (num_pending === 0 || signal.aborted) whole();
          await check();
        };
        begin().catch(reject);
      });
    });
  }

  async #reach<T>(operation: () => Promise<T>): Promise<T> {
    try {
      return await operation();
    } catch (cause) {
      throw new UnavailableError('streams', 'the key-value store cannot be reached', { cause });
    }
  }
}

function changeOf(message: JsMsg, prefixLength: number): KeyValueChange {
  const key = message.subject.slice(prefixLength);
  const revision = message.seq;
  return isRemoval(message.headers)
    ? { kind: 'removed', key, revision }
    : { kind: 'put', entry: { key, value: message.string(), revision } };
}

/** Removals and expiries are messages with one of these headers and no body. */
function isRemoval(headers: MsgHdrs | undefined): boolean {
  return headers?.has('KV-Operation') === true || headers?.has('Nats-Marker-Reason') === true;
}

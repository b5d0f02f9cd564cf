import { JetStreamApiError, jetstreamManager } from '@nats-io/jetstream';
import type { JetStreamManager, StreamConfig, StreamState } from '@nats-io/jetstream';
import { createInbox, errors } from '@nats-io/transport-node';
import type { Msg, NatsConnection } from '@nats-io/transport-node';
import { delay } from '../../lib/backoff.ts';
import { ApiCode, apiCode } from './errors.ts';

/** A copy of a stream as the server makes it: an archive of its blocks, in which every message keeps its sequence. */
export interface StreamCopy {
  readonly config: StreamConfig;
  readonly state: StreamState;
  /** The bytes. The next ones are asked for when the last have been taken. @throws when the copy is not whole */
  readonly chunks: AsyncIterable<Uint8Array>;
}

/** What the copies of several streams agree on: `position` is that of the last message stored up to one instant. */
export type Cut = ReadonlyMap<string, number>;

const API_MS = 10_000;
/** The server reads a whole stream before its first byte, and flushes it after the last. */
const SILENCE_MS = 120_000;
const CHUNK_BYTES = 512 * 1024;
/** How long a server of a cluster may take to learn where the parts of a restore are taken. */
const HEARD_MS = 30_000;
const CLOCKS_MS = 10_000;
const POLL_MS = 20;
const TRIM_AT_ONCE = 64;
const END = 204;

/** While it exists, a restore has begun and not ended: no Host starts, and the restore may be run again. */
export const RESTORE_MARK = 'RESTORING';

/** Copies streams out of a running server and into an empty one, by the server's own snapshots (what `nats stream backup` uses). */
export class StreamArchive {
  readonly #connection: NatsConnection;
  readonly #manager: JetStreamManager;
  /** Called when the connection is lost. */
  readonly #onLost = new Set<() => void>();

  private constructor(connection: NatsConnection, manager: JetStreamManager) {
    this.#connection = connection;
    this.#manager = manager;
    void this.#watchConnection();
  }

  static async open(connection: NatsConnection): Promise<StreamArchive> {
    return new StreamArchive(connection, await jetstreamManager(connection));
  }

  /** Names of all streams of the account, sorted. */
  async names(): Promise<string[]> {
    const names: string[] = [];
    for await (const name of this.#manager.streams.names()) names.push(name);
    return names.toSorted();
  }

  /** The newest value of a key of a bucket; null when it has none. */
  async value(bucket: string, key: string): Promise<string | null> {
    const found = await this.#manager.streams.getMessage(`KV_${bucket}`, { last_by_subj: `$KV.${bucket}.${key}` });
    return found?.string() ?? null;
  }

  /**
   * One instant for all streams, by the clocks of their servers: everything that was acknowledged before the call is up
   * to it, and of two messages where one caused the other, never the second alone. That holds as far as the servers'
   * clocks agree; with one stream, or one server, always.
   * @throws when the clocks do not reach the instant within 10 s
   */
  async cut(names: readonly string[]): Promise<Cut> {
    const before = await this.#heads(names);
    const instant = Math.max(...before.map(({ now }) => now));
    const deadline = performance.now() + CLOCKS_MS;
    let heads = await this.#heads(names);
    while (heads.some(({ now }) => now <= instant)) {
      if (performance.now() > deadline) throw new Error('the clocks of the NATS servers are more than 10 s apart');
      await delay(POLL_MS);
      heads = await this.#heads(names);
    }
    const positions = heads.map(async ({ name, last }) => [name, await this.#lastUpTo(name, last, instant)] as const);
    return new Map(await Promise.all(positions));
  }

  /** Asks for a copy. It has everything that was stored before the call, and may have what was stored during it. */
  async copy(name: string): Promise<StreamCopy> {
    const inbox = createInbox();
    const subscription = this.#connection.subscribe(inbox);
    const request = { deliver_subject: inbox, no_consumers: true, jsck: false, chunk_size: CHUNK_BYTES };
    const answer = await this.#request<{ config: StreamConfig; state: StreamState }>(
      `STREAM.SNAPSHOT.${name}`,
      request,
    );
    let ended: string | null = null;
    const end = (why: string): void => {
      ended ??= why;
      subscription.unsubscribe();
    };
    const timer = setTimeout(() => end('the server fell silent'), SILENCE_MS);
    // What the server sends meanwhile is lost, and not every part has a number that would show it.
    const lost = (): void => end('the connection was lost');
    const unwatch = (): boolean => this.#onLost.delete(lost);
    this.#onLost.add(lost);
    const chunks = async function* (): AsyncGenerator<Uint8Array> {
      try {
        let count = 0;
        for await (const message of subscription) {
          if (ended !== null) break;
          timer.refresh();
          if (message.data.length === 0) {
            checkEnd(name, message);
            return;
          }
          checkOrder(name, message, ++count);
          yield message.data;
          message.respond();
        }
        throw new Error(`the copy of ${name} ended early${ended === null ? '' : `: ${ended}`}`);
      } finally {
        clearTimeout(timer);
        unwatch();
        subscription.unsubscribe();
      }
    };
    return { config: answer.config, state: answer.state, chunks: chunks() };
  }

  /** Makes a stream from a copy; it must not be there. Returns what the stream then holds. */
  async restore(
    { config, state, chunks }: StreamCopy,
    { replicas }: { readonly replicas: number },
  ): Promise<StreamState> {
    const { name } = config;
    // What came after the cut is removed again, so messages may be deleted until `close`.
    const open = { ...config, num_replicas: replicas, deny_delete: false };
    const { deliver_subject: target } = await this.#request<{ deliver_subject: string }>(`STREAM.RESTORE.${name}`, {
      config: open,
      state,
    });
    for await (const chunk of chunks) await this.#hand(target, chunk);
    await this.#hand(target, new Uint8Array(0));
    return (await this.#manager.streams.info(name)).state;
  }

  /** Removes what follows a position. Not for buckets: an older value of a key does not come back. */
  async trim(name: string, position: number, last: number): Promise<void> {
    for (let from = position + 1; from <= last; from += TRIM_AT_ONCE) {
      const sequences = Array.from({ length: Math.min(TRIM_AT_ONCE, last - from + 1) }, (_, index) => from + index);
      await Promise.all(sequences.map(async (sequence) => await this.#remove(name, sequence)));
    }
  }

  /** Denies deletions in a restored stream, if it did before. */
  async close({ name, deny_delete }: StreamConfig): Promise<void> {
    if (deny_delete) await this.#manager.streams.update(name, { deny_delete });
  }

  async remove(name: string): Promise<void> {
    await this.#manager.streams.delete(name);
  }

  /** Leaves the mark of a restore. */
  async mark(replicas: number): Promise<void> {
    await this.#manager.streams.add({ name: RESTORE_MARK, subjects: ['agent-host.restoring'], num_replicas: replicas });
  }

  async #watchConnection(): Promise<void> {
    for await (const { type } of this.#connection.status()) {
      if (type === 'disconnect') for (const lost of this.#onLost) lost();
    }
  }

  async #heads(names: readonly string[]): Promise<{ name: string; last: number; now: number }[]> {
    return await Promise.all(
      names.map(async (name) => {
        const { state, ts } = await this.#manager.streams.info(name);
        return { name, last: state.last_seq, now: Date.parse(ts ?? '') };
      }),
    );
  }

  /** Few steps: from the head back to what was stored some milliseconds ago. */
  async #lastUpTo(name: string, last: number, instant: number): Promise<number> {
    let position = last;
    while (position > 0) {
      const message = await this.#manager.streams.getMessage(name, { seq: position });
      if (message !== null && message.time.getTime() <= instant) break;
      position--;
    }
    return position;
  }

  async #remove(name: string, sequence: number): Promise<void> {
    try {
      await this.#manager.streams.deleteMessage(name, sequence, false);
    } catch (error) {
      const code = apiCode(error);
      if (code !== ApiCode.sequenceNotFound && code !== ApiCode.beyondTheEnd) throw error;
    }
  }

  /**
   * One part of a restore. The server that takes them subscribes to their subject and answers; ours may hear of that
   * subscription later, and says until then that there is none: no server has had the part, and it is handed over again.
   */
  async #hand(target: string, chunk: Uint8Array): Promise<void> {
    const deadline = performance.now() + HEARD_MS;
    for (;;) {
      try {
        return checkAccepted(await this.#connection.request(target, chunk, { timeout: SILENCE_MS }));
      } catch (error) {
        const isUnheard = error instanceof errors.RequestError && error.isNoResponders();
        if (!isUnheard || performance.now() > deadline) throw error;
      }
      await delay(POLL_MS);
    }
  }

  async #request<T>(api: string, body: unknown): Promise<T> {
    const answer = await this.#connection.request(`$JS.API.${api}`, JSON.stringify(body), { timeout: API_MS });
    checkAccepted(answer);
    return answer.json<T>();
  }
}

/** The last message is empty. The server gives it a status when it gave up; else 204, or none after a single chunk (2.15.1). */
function checkEnd(name: string, { headers }: Msg): void {
  if (headers === undefined || headers.code === 0 || headers.code === END) return;
  throw new Error(`the server gave up the copy of ${name} (${headers.code} ${headers.description})`);
}

/** Every chunk but the last has its number at the end of its reply subject. */
function checkOrder(name: string, { reply }: Msg, count: number): void {
  if (reply === undefined || reply === '') return;
  if (Number(reply.slice(reply.lastIndexOf('.') + 1)) === count) return;
  throw new Error(`a part of the copy of ${name} was lost on its way (${reply} is not number ${count})`);
}

function checkAccepted(answer: Msg): void {
  const text = answer.string();
  if (text.startsWith('-ERR')) throw new Error(`the server gave up a restore: ${text}`);
  if (text === '') return;
  // The form is the server's API.
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion
  const { error } = JSON.parse(text) as { error?: ConstructorParameters<typeof JetStreamApiError>[0] };
  if (error !== undefined) throw new JetStreamApiError(error);
}

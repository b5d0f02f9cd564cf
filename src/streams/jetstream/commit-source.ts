import { DeliverPolicy, jetstream } from '@nats-io/jetstream';
import type { Consumer, JetStreamManager, JsMsg } from '@nats-io/jetstream';
import type { NatsConnection } from '@nats-io/transport-node';
import { isUnavailableError, UnavailableError } from '../../lib/unavailable.ts';
import { backoffMs, delay } from '../../lib/backoff.ts';
import type { CommitPlace } from '../commit.ts';
import { lastPosition } from '../event-store.ts';
import type { CommitSource, FollowedCommit, FollowOptions } from '../event-store.ts';
import { ErasedCommitError } from '../sealed-codec.ts';
import type { CommitCodec } from '../sealed-codec.ts';
import { refOfSubject, streamName, subjectOf } from '../subjects.ts';
import type { AggregateKind, AggregateRef } from '../subjects.ts';
import { BulkReader } from './bulk-read.ts';
import { within } from './direct-read.ts';
import { nextMessage } from './leader-read.ts';
import { commitIdOf } from './message-id.ts';
import { filtersOf, NewestCommits } from './newest-commits.ts';
import type { Kinds } from './newest-commits.ts';

/**
 * How long a consumer may stay silent before the stream is asked whether there is something to deliver. A pull consumer
 * can stay silent for good after a server restart while it looks healthy.
 */
const SILENCE_MS = 5_000;
/** The longest that one request for messages stays open. */
const FETCH_MS = 30_000;
const FORGOTTEN_AFTER_MS = 30_000;
const ANSWER_MS = 1_000;
/** Commits of one aggregate that are read at once. */
const READ_BATCH = 500;

/** Ordered consumers, one per follower and stream; lost or silent ones are recreated from the last position seen. */
export class JetStreamCommitSource implements CommitSource {
  readonly shards: number;
  readonly #connection: NatsConnection;
  readonly #manager: JetStreamManager;
  readonly #codec: CommitCodec;
  readonly #bulk: BulkReader;
  readonly #newest: NewestCommits;
  readonly #reconnected = new Set<() => void>();

  constructor(options: { connection: NatsConnection; manager: JetStreamManager; codec: CommitCodec; shards: number }) {
    this.#connection = options.connection;
    this.#manager = options.manager;
    this.#newest = new NewestCommits(options.manager);
    this.#codec = options.codec;
    this.shards = options.shards;
    const ignore = (): void => undefined;
    this.#bulk = new BulkReader(options.connection, { onRead: ignore, onTorn: ignore });
    void this.#watchConnection();
  }

  async newest(shard: number, kinds: Kinds): Promise<number> {
    try {
      return await this.#newest.of(shard, kinds);
    } catch (cause) {
      throw new UnavailableError('streams', 'the log cannot be read', { cause });
    }
  }

  async timeAfter(shard: number, kinds: readonly AggregateKind[], position: number): Promise<number | null> {
    try {
      const found = await Promise.all(
        filtersOf(kinds).map(
          async (subject) => await nextMessage(this.#manager, streamName(shard), { seq: position + 1, subject }),
        ),
      );
      const times = found.flatMap((message) => (message === null ? [] : [message.time.getTime()]));
      return times.length === 0 ? null : Math.min(...times);
    } catch (cause) {
      throw new UnavailableError('streams', 'the log cannot be read', { cause });
    }
  }

  async *commitsOf(ref: AggregateRef, shard: number, upTo: number): AsyncGenerator<readonly FollowedCommit[]> {
    const [stream, subject] = [streamName(shard), subjectOf(ref)];
    try {
      const head = await within(ANSWER_MS, this.#manager.streams.getMessage(stream, { last_by_subj: subject }));
      const end = Math.min(upTo, head?.seq ?? 0);
      for (let after = 0; after < end;) {
        const { messages } = await this.#bulk.from(stream, { seq: after + 1, subject }, READ_BATCH);
        const last = messages.at(-1);
        // The replica that answered is behind, or the rest has been erased meanwhile.
        if (last === undefined) throw new Error('the log has less of an aggregate than it had a moment ago');
        after = last.seq;
        const wanted = messages.filter(({ seq }) => seq <= end);
        yield await Promise.all(
          wanted.map(async ({ seq, data, msgId }) => {
            return await this.#decode({ ref, shard, position: seq, data, msgIdOf: () => msgId });
          }),
        );
      }
    } catch (cause) {
      if (isUnavailableError(cause, 'streams')) throw cause;
      throw new UnavailableError('streams', 'the log cannot be read', { cause });
    }
  }

  async commitAt(ref: AggregateRef, shard: number, position: number): Promise<FollowedCommit | null> {
    try {
      const request = { seq: position, subject: subjectOf(ref) };
      const message = await within(ANSWER_MS, nextMessage(this.#manager, streamName(shard), request));
      if (message?.seq !== position) return null;
      const { data, header } = message;
      return await this.#decode({ ref, shard, position, data, msgIdOf: () => header.get('Nats-Msg-Id') });
    } catch (cause) {
      throw new UnavailableError('streams', 'the log cannot be read', { cause });
    }
  }

  async *follow(options: FollowOptions): AsyncGenerator<readonly FollowedCommit[]> {
    let position = options.after;
    for (let failures = 0; !options.signal.aborted; failures++) {
      try {
        for await (const batch of this.#consume(options, position)) {
          yield batch;
          position = lastPosition(batch) ?? position;
          failures = 0;
        }
      } catch {
        // The server is unreachable or dropped the consumer: the position is ours, so a new consumer continues there.
      }
      if (!options.signal.aborted) await delay(backoffMs(failures, { baseMs: 50, capMs: 2_000 }), options.signal);
    }
  }

  async *#consume(options: FollowOptions, after: number): AsyncGenerator<readonly FollowedCommit[]> {
    const making = jetstream(this.#connection).consumers.get(streamName(options.shard), {
      // With several shards, `evt.>` is more than one stream has, which the server refuses.
      ...(options.kinds === 'all' ? {} : { filter_subjects: filtersOf(options.kinds) }),
      deliver_policy: DeliverPolicy.StartSequence,
      opt_start_seq: after + 1,
      inactive_threshold: FORGOTTEN_AFTER_MS,
    });
    // A request made while the connection is down is never answered.
    const consumer = await within(ANSWER_MS, making);
    const inbox = new Inbox();
    // While the follower is busy with what it has taken, the next is decoded.
    void fill(inbox, consumer, {
      most: options.buffer,
      decode: async (m) => await this.#decode(messageOf(m, options.shard)),
    });
    const stop = (): void => inbox.end();
    options.signal.addEventListener('abort', stop, { once: true });
    // The server may have forgotten the consumer, and waiting for its silence would take seconds.
    this.#reconnected.add(stop);
    let last = after;
    try {
      while (!options.signal.aborted) {
        let arrived = await inbox.take(options.buffer, SILENCE_MS);
        if (arrived === 'silent') {
          const newest = await within(ANSWER_MS, this.newest(options.shard, options.kinds));
          arrived = newest > last && inbox.isEmpty ? 'ended' : [];
        }
        if (arrived === 'ended') return;
        if (arrived.length === 0) continue;
        last = lastPosition(arrived) ?? last;
        yield arrived;
      }
    } finally {
      options.signal.removeEventListener('abort', stop);
      this.#reconnected.delete(stop);
      inbox.end();
      await remove(consumer);
    }
  }

  async #watchConnection(): Promise<void> {
    for await (const status of this.#connection.status()) {
      if (status.type === 'reconnect') for (const renew of this.#reconnected) renew();
    }
  }

  async #decode({ ref, shard, position, data, msgIdOf }: Message): Promise<FollowedCommit> {
    // A key that cannot be asked for is an outage: the follower restarts from here.
    if (!this.#codec.isReady(data)) await this.#codec.prepare(ref, data);
    try {
      return { kind: 'commit', stored: { ref, shard, position, ...this.#codec.decode(ref, data) }, bytes: data };
    } catch (error) {
      if (!(error instanceof Error)) throw error;
      if (error instanceof ErasedCommitError) return { kind: 'erased', ref, shard, position };
      const commitId = commitIdOf(msgIdOf());
      return { kind: 'undecodable', ref, shard, position, error, commitId };
    }
  }
}

/** A message of the log, however it was read. */
interface Message extends CommitPlace {
  readonly data: Uint8Array;
  /** Asked for of few messages: to read headers takes half as long as to parse a commit. */
  readonly msgIdOf: () => string | undefined;
}

function messageOf(message: JsMsg, shard: number): Message {
  const { subject, seq, data } = message;
  return { ref: refOfSubject(subject), shard, position: seq, data, msgIdOf: () => message.headers?.get('Nats-Msg-Id') };
}

/**
 * Asks for at most `buffer` messages whenever all of the last ones have been taken. The client's own `consume` asks again
 * as soon as messages arrive, whether or not anybody takes them: a slow reader would have the whole log in its memory.
 */
async function fill(
  inbox: Inbox,
  consumer: Consumer,
  { most, decode }: { most: number; decode: (message: JsMsg) => Promise<FollowedCommit> },
): Promise<void> {
  try {
    while (await inbox.emptied()) {
      const messages = await consumer.fetch({ max_messages: most, expires: FETCH_MS });
      inbox.whenEnded(() => messages.stop());
      for await (const message of messages) inbox.push(await decode(message));
    }
  } catch {
    inbox.end();
  }
}

async function remove(consumer: Consumer): Promise<void> {
  try {
    await within(ANSWER_MS, consumer.delete());
  } catch {
    // The connection is gone; the server forgets the consumer by itself.
  }
}

/** What has been delivered and not taken yet. */
class Inbox {
  #commits: FollowedCommit[] = [];
  #ended = false;
  #wakeReader: (() => void) | null = null;
  #wakeWriter: (() => void) | null = null;
  #onEnd: (() => void) | null = null;

  get isEmpty(): boolean {
    return this.#commits.length === 0;
  }

  push(commit: FollowedCommit): void {
    this.#commits.push(commit);
    this.#wakeReader?.();
  }

  end(): void {
    this.#ended = true;
    this.#onEnd?.();
    this.#wakeReader?.();
    this.#wakeWriter?.();
  }

  whenEnded(stop: () => void): void {
    this.#onEnd = stop;
    if (this.#ended) stop();
  }

  /** Resolves when everything has been taken; false when no more is wanted. */
  async emptied(): Promise<boolean> {
    while (!this.isEmpty && !this.#ended) {
      await new Promise<void>((resolve) => {
        this.#wakeWriter = resolve;
      });
    }
    return !this.#ended;
  }

  async take(most: number, silenceMs: number): Promise<FollowedCommit[] | 'ended' | 'silent'> {
    if (this.isEmpty && !this.#ended) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, silenceMs);
        this.#wakeReader = (): void => {
          clearTimeout(timer);
          resolve();
        };
      });
      this.#wakeReader = null;
    }
    if (this.#ended) return 'ended';
    if (this.isEmpty) return 'silent';
    const taken = this.#commits.splice(0, most);
    if (this.isEmpty) this.#wakeWriter?.();
    return taken;
  }
}

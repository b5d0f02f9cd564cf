import { jetstream } from '@nats-io/jetstream';
import type { JetStreamClient, JetStreamManager, MsgRequest, NextMsgRequest, StoredMsg } from '@nats-io/jetstream';
import { backoffMs, delay } from '../../lib/backoff.ts';
import { faultPoint } from '../../lib/fault-points.ts';
import type { Codec } from '../codec.ts';
import type { Commit, StoredCommit } from '../commit.ts';
import { LogUnavailableError } from '../event-store.ts';
import type { AppendResult, CommitPage, EventStore, ReadRange } from '../event-store.ts';
import { bucketOf, refKey, refOfSubject, streamName, streamOf, subjectOf } from '../subjects.ts';
import type { AggregateRef } from '../subjects.ts';
import type { NatsConnection } from '@nats-io/transport-node';
import { ApiCode, apiCode, isWrongLastSequence } from './errors.ts';

export interface EventStoreOptions {
  readonly connection: NatsConnection;
  readonly manager: JetStreamManager;
  readonly codec: Codec;
  readonly shards: number;
  /** Bound of one publish, ms. Short: an append in flight at a disconnect is not failed, it times out. */
  readonly publishTimeoutMs?: number;
  /** How long an append of unknown outcome is followed, ms; longer than an election (4 to 9 s measured). */
  readonly appendDeadlineMs?: number;
  /** Counts round trips by name, for the test that asserts their number. */
  readonly onRoundTrip?: (name: 'append' | 'read' | 'head' | 'successor') => void;
  /** Counts what the retry rule did, for the metrics. */
  readonly onOutcome?: (outcome: 'appended' | 'conflict' | 'retried') => void;
}

const READ_TIMEOUT_MS = 5_000;
const STALE_READ_TRIES = 5;
/** The server answers at most so many subjects at once. */
const HEADS_PER_REQUEST = 1_000;

/** The log on JetStream streams `EVT_0 … EVT_{n-1}`. */
export class JetStreamEventStore implements EventStore {
  readonly #js: JetStreamClient;
  readonly #manager: JetStreamManager;
  readonly #codec: Codec;
  readonly #shards: number;
  readonly #publishTimeoutMs: number;
  readonly #appendDeadlineMs: number;
  readonly #onRoundTrip: NonNullable<EventStoreOptions['onRoundTrip']>;
  readonly #onOutcome: NonNullable<EventStoreOptions['onOutcome']>;

  constructor(options: EventStoreOptions) {
    this.#js = jetstream(options.connection);
    this.#manager = options.manager;
    this.#codec = options.codec;
    this.#shards = options.shards;
    this.#publishTimeoutMs = options.publishTimeoutMs ?? 1_000;
    this.#appendDeadlineMs = options.appendDeadlineMs ?? 15_000;
    this.#onRoundTrip = options.onRoundTrip ?? ((): void => undefined);
    this.#onOutcome = options.onOutcome ?? ((): void => undefined);
  }

  shardOf(ref: AggregateRef): number {
    return streamOf(bucketOf(ref), this.#shards);
  }

  /**
   * The retry rule (anchors/nats-event-store.md, 1.3): while the outcome is unknown, the same id with the same
   * expectation again; when the expectation is refused, the immediate successor of the expected position tells whether
   * the commit that stands there is ours. An append with expectation E, if stored, is that successor, so the test is
   * exact and needs no time window.
   */
  async append(ref: AggregateRef, expected: number, commit: Commit): Promise<AppendResult> {
    const subject = subjectOf(ref);
    // The id names the aggregate: the server's duplicate check spans the whole stream.
    const msgID = `${subject.slice('evt.'.length)}:${commit.commitId}`;
    const bytes = this.#codec.encode(commit);
    const deadline = Date.now() + this.#appendDeadlineMs;
    for (let attempt = 0; ; attempt++) {
      try {
        this.#onRoundTrip('append');
        const expect = { lastSubjectSequence: expected };
        const ack = await this.#js.publish(subject, bytes, { msgID, expect, timeout: this.#publishTimeoutMs });
        await faultPoint('append.acknowledged');
        // A duplicate acknowledgement of an id that is still being stored carries no sequence (seen on 2.10).
        if (ack.seq > 0) return this.#appended(ack.seq);
      } catch (error) {
        if (isWrongLastSequence(error)) {
          const successor = await this.#successor(ref, expected, deadline);
          if (successor !== null && successor.msgId === msgID) return this.#appended(successor.position);
          if (successor !== null) {
            this.#onOutcome('conflict');
            return { kind: 'conflict' };
          }
        } else if (apiCode(error) !== null && !isPassing(error)) {
          throw new LogUnavailableError(`the log refused an append (${String(apiCode(error))})`, { cause: error });
        }
        if (Date.now() >= deadline) throw new LogUnavailableError('the log did not confirm an append in time', { cause: error });
      }
      this.#onOutcome('retried');
      await delay(backoffMs(attempt, { baseMs: 20, capMs: 500 }));
    }
  }

  #appended(position: number): AppendResult {
    this.#onOutcome('appended');
    return { kind: 'appended', position };
  }

  async #successor(ref: AggregateRef, expected: number, deadline: number): Promise<{ position: number; msgId: string } | null> {
    for (let attempt = 0; ; attempt++) {
      try {
        this.#onRoundTrip('successor');
        const request: NextMsgRequest = { seq: expected + 1, next_by_subj: subjectOf(ref) };
        // The client's type leaves this form out for the leader's read; the server answers it (run on 2.15.1).
        // oxlint-disable-next-line typescript/no-unsafe-type-assertion
        const message = await this.#manager.streams.getMessage(this.#streamOf(ref), request as unknown as MsgRequest);
        return message === null ? null : { position: message.seq, msgId: message.header.get('Nats-Msg-Id') };
      } catch (cause) {
        if (Date.now() >= deadline) throw new LogUnavailableError('the log did not answer a read in time', { cause });
        await delay(backoffMs(attempt, { baseMs: 20, capMs: 500 }));
      }
    }
  }

  async read(ref: AggregateRef, range: ReadRange): Promise<CommitPage> {
    for (let attempt = 0; ; attempt++) {
      const page = await this.#readOnce(ref, range);
      const reached = page.commits.at(-1)?.position ?? range.after;
      if (page.more || range.atLeast === undefined || reached >= range.atLeast) return page;
      if (attempt === STALE_READ_TRIES) throw new LogUnavailableError('every replica that answered is behind');
      await delay(20);
    }
  }

  async #readOnce(ref: AggregateRef, range: ReadRange): Promise<CommitPage> {
    this.#onRoundTrip('read');
    const shard = this.shardOf(ref);
    const messages = await this.#directBatch(streamName(shard), {
      seq: range.after + 1,
      next_by_subj: subjectOf(ref),
      batch: range.limit,
    });
    const commits = messages.map((message) => this.#stored(ref, shard, message));
    return { commits, more: (messages.at(-1)?.pending ?? 0) > 0 };
  }

  #stored(ref: AggregateRef, shard: number, message: StoredMsg): StoredCommit {
    return { ref, shard, position: message.seq, commit: this.#codec.decode(message.data) };
  }

  /** The callback form: the iterator form of the client keeps its subscription for five seconds (measured). */
  async #directBatch(
    stream: string,
    request: { seq: number; next_by_subj: string; batch: number },
  ): Promise<(StoredMsg & { pending: number })[]> {
    return await new Promise((resolve, reject) => {
      const messages: (StoredMsg & { pending: number })[] = [];
      const timer = setTimeout(() => {
        reject(new LogUnavailableError('the log did not answer a read in time'));
      }, READ_TIMEOUT_MS);
      const settle = (error: Error | undefined): void => {
        clearTimeout(timer);
        // 404 is how the server says that there is nothing after the given position.
        if (error !== undefined && messages.length === 0 && !isNothingFound(error)) {
          reject(new LogUnavailableError('the log did not answer a read', { cause: error }));
        } else {
          resolve(messages);
        }
      };
      const callback = (done: { err?: Error } | null, message: StoredMsg & { pending: number }): void => {
        if (done === null) messages.push(message);
        else settle(done.err);
      };
      this.#manager.direct.getBatch(stream, { ...request, callback }).catch((cause: unknown) => {
        clearTimeout(timer);
        reject(new LogUnavailableError('the log cannot be read', { cause }));
      });
    });
  }

  async head(ref: AggregateRef): Promise<number> {
    this.#onRoundTrip('head');
    try {
      const message = await this.#manager.streams.getMessage(this.#streamOf(ref), { last_by_subj: subjectOf(ref) });
      return message?.seq ?? 0;
    } catch (cause) {
      throw new LogUnavailableError('the log cannot be read', { cause });
    }
  }

  async heads(refs: readonly AggregateRef[]): Promise<ReadonlyMap<string, number>> {
    const found = new Map<string, number>();
    const byStream = Map.groupBy(refs, (ref) => this.#streamOf(ref));
    for (const [stream, members] of byStream) {
      for (let i = 0; i < members.length; i += HEADS_PER_REQUEST) {
        const subjects = members.slice(i, i + HEADS_PER_REQUEST).map(subjectOf);
        for (const { subject, seq } of await this.#lastOf(stream, subjects)) found.set(refKey(refOfSubject(subject)), seq);
      }
    }
    return found;
  }

  async #lastOf(stream: string, subjects: string[]): Promise<StoredMsg[]> {
    try {
      const messages: StoredMsg[] = [];
      for await (const message of await this.#manager.direct.getLastMessagesFor(stream, { multi_last: subjects })) messages.push(message);
      return messages;
    } catch (cause) {
      if (cause instanceof Error && isNothingFound(cause)) return [];
      throw new LogUnavailableError('the log cannot be read', { cause });
    }
  }

  #streamOf(ref: AggregateRef): string {
    return streamName(this.shardOf(ref));
  }
}

/** Refusals that a moment changes: no leader, the same id in flight, a server that is starting. */
function isPassing(error: unknown): boolean {
  const code = apiCode(error);
  return code === ApiCode.duplicateInProcess || code === 10_008 || code === 10_039 || code === 10_076 || code === 10_118;
}

function isNothingFound(error: Error): boolean {
  return 'code' in error && error.code === 404;
}


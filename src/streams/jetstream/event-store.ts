import type { JetStreamManager, StoredMsg } from '@nats-io/jetstream';
import { backoffMs, delay } from '../../lib/backoff.ts';
import { faultPoint } from '../../lib/fault-points.ts';
import type { Commit } from '../commit.ts';
import { LogUnavailableError } from '../event-store.ts';
import { TenantErasedError } from '../keyring.ts';
import { ErasedCommitError } from '../sealed-codec.ts';
import type { CommitCodec } from '../sealed-codec.ts';
import type { AppendResult, CommitPage, EventStore, PlainPage, ReadRange } from '../event-store.ts';
import { bucketOf, refKey, refOfSubject, streamName, streamOf, subjectOf, escapeToken } from '../subjects.ts';
import type { AggregateKind, AggregateRef } from '../subjects.ts';
import { errors } from '@nats-io/transport-node';
import type { NatsConnection } from '@nats-io/transport-node';
import { nextMessage } from './leader-read.ts';
import { directBatch, lastOf, within } from './direct-read.ts';
import { apiCode, isPassing, isWrongLastSequence } from './errors.ts';
import { messageId } from './message-id.ts';
import { Publisher } from './publisher.ts';

export interface EventStoreOptions {
  readonly connection: NatsConnection;
  readonly manager: JetStreamManager;
  readonly codec: CommitCodec;
  readonly shards: number;
  /** Bound of one publish, ms. Short: an append in flight at a disconnect is not failed, it times out. */
  readonly publishTimeoutMs?: number;
  /** How long an append of unknown outcome is followed, ms; longer than an election (4 to 9 s measured). */
  readonly appendDeadlineMs?: number;
  /** Counts round trips by name, for the test that asserts their number. */
  readonly onRoundTrip?: (name: 'append' | 'read' | 'head' | 'successor') => void;
  /** Told of every append that is over, for the metrics; `failed`: refused, or still unknown at the deadline. */
  readonly onAppend?: (outcome: AppendResult['kind'] | 'failed', ms: number) => void;
  /** Told whenever an append of unknown outcome is sent again, for the metrics. */
  readonly onRetry?: () => void;
}

/** How long a read is tried. A request that meets a disconnect is never answered, so each try is short. */
const READ_DEADLINE_MS = 5_000;
const READ_TRY_MS = 1_000;
const STALE_READ_TRIES = 5;
/** The server answers at most so many subjects at once. */
const HEADS_PER_REQUEST = 1_000;

interface Page<T> {
  readonly commits: readonly T[];
  readonly more: boolean;
}

/** An append whose outcome is to be found out. */
interface AppendTry {
  readonly ref: AggregateRef;
  readonly expected: number;
  readonly msgID: string;
  /** On the clock of `performance.now`, which nobody sets. */
  readonly deadline: number;
  readonly hash: string;
}

/** The log on JetStream streams `EVT_0 … EVT_{n-1}`. */
export class JetStreamEventStore implements EventStore {
  readonly #publisher: Publisher;
  readonly #manager: JetStreamManager;
  readonly #codec: CommitCodec;
  readonly #shards: number;
  readonly #publishTimeoutMs: number;
  readonly #appendDeadlineMs: number;
  readonly #onRoundTrip: NonNullable<EventStoreOptions['onRoundTrip']>;
  readonly #onAppend: NonNullable<EventStoreOptions['onAppend']>;
  readonly #onRetry: NonNullable<EventStoreOptions['onRetry']>;

  constructor(options: EventStoreOptions) {
    this.#publisher = new Publisher(options.connection);
    this.#manager = options.manager;
    this.#codec = options.codec;
    this.#shards = options.shards;
    this.#publishTimeoutMs = options.publishTimeoutMs ?? 1_000;
    this.#appendDeadlineMs = options.appendDeadlineMs ?? 15_000;
    this.#onRoundTrip = options.onRoundTrip ?? ((): void => undefined);
    this.#onAppend = options.onAppend ?? ((): void => undefined);
    this.#onRetry = options.onRetry ?? ((): void => undefined);
  }

  shardOf(ref: AggregateRef): number {
    return this.#shards === 1 ? 0 : streamOf(bucketOf(ref), this.#shards);
  }

  async append(ref: AggregateRef, expected: number, commit: Commit): Promise<AppendResult> {
    const begun = performance.now();
    let outcome: AppendResult['kind'] | 'failed' = 'failed';
    try {
      const result = await this.#appendUntilKnown(ref, expected, commit);
      outcome = result.kind;
      return result;
    } finally {
      this.#onAppend(outcome, performance.now() - begun);
    }
  }

  /**
   * The retry rule (anchors/nats-event-store.md, 1.3): while the outcome is unknown, the same id with the same
   * expectation again; when the expectation is refused, the immediate successor of the expected position tells whether
   * the commit that stands there is ours. An append with expectation E, if stored, is that successor, so the test is
   * exact and needs no time window.
   */
  async #appendUntilKnown(ref: AggregateRef, expected: number, commit: Commit): Promise<AppendResult> {
    const subject = subjectOf(ref);
    const msgID = messageId(subject, commit.commitId);
    const encoded = await this.#encoded(ref, commit);
    if (encoded === null) return { kind: 'conflict' };
    const { bytes, hash } = encoded;
    const deadline = performance.now() + this.#appendDeadlineMs;
    for (let attempt = 0; ; attempt++) {
      let cause: unknown;
      try {
        this.#onRoundTrip('append');
        const options = { msgId: msgID, expected, timeoutMs: this.#publishTimeoutMs };
        await faultPoint('append.started');
        const position = await this.#publisher.publish(subject, bytes, options);
        await faultPoint('append.acknowledged');
        // A duplicate acknowledgement of an id that is still being stored carries no sequence (seen on 2.10).
        if (position > 0) return { kind: 'appended', position, hash };
      } catch (error) {
        const result = await this.#afterFailure(error, { ref, expected, msgID, deadline, hash });
        if (result !== null) return result;
        cause = error;
      }
      if (performance.now() >= deadline)
        throw new LogUnavailableError('the log did not confirm an append in time', { cause });
      this.#onRetry();
      await delay(backoffMs(attempt, { baseMs: 20, capMs: 500 }));
    }
  }

  /** Null: the tenant has been erased under this writer, and so has what the decision was made on. */
  async #encoded(ref: AggregateRef, commit: Commit): Promise<Awaited<ReturnType<CommitCodec['encode']>> | null> {
    try {
      return await this.#codec.encode(ref, commit);
    } catch (error) {
      if (error instanceof TenantErasedError) return null;
      throw error;
    }
  }

  /** What a failed publish means; null: not known, the same has to be sent again. */
  async #afterFailure(
    error: unknown,
    { ref, expected, msgID, deadline, hash }: AppendTry,
  ): Promise<AppendResult | null> {
    // The client did not send it, and never will: it is larger than the server takes.
    if (error instanceof errors.InvalidArgumentError) throw error;
    if (isWrongLastSequence(error)) {
      const successor = await this.#successor(ref, expected, deadline);
      // Nothing follows: somebody's append is in flight, or the aggregate has been erased under this writer.
      if (successor === null) return (await this.#isErased(ref, expected)) ? { kind: 'conflict' } : null;
      if (successor.msgId === msgID) return { kind: 'appended', position: successor.position, hash };
      return { kind: 'conflict' };
    }
    if (apiCode(error) !== null && !isPassing(error)) {
      throw new LogUnavailableError(`the log refused an append (${String(apiCode(error))})`, { cause: error });
    }
    return null;
  }

  async #isErased(ref: AggregateRef, expected: number): Promise<boolean> {
    try {
      return (await this.head(ref)) < expected;
    } catch {
      return false;
    }
  }

  /** The commit directly after a position, from the leader. */
  async #successor(
    ref: AggregateRef,
    expected: number,
    deadline: number,
  ): Promise<{ position: number; msgId: string } | null> {
    const message = await this.#tried(deadline - performance.now(), async () => {
      this.#onRoundTrip('successor');
      return await nextMessage(this.#manager, this.#streamOf(ref), { seq: expected + 1, subject: subjectOf(ref) });
    });
    return message === null ? null : { position: message.seq, msgId: message.header.get('Nats-Msg-Id') };
  }

  /**
   * Reads until it is answered. What the client was to send while the connection was down is lost without a word, and
   * would otherwise be waited for in vain long after the server is back.
   */
  async #tried<T>(deadlineMs: number, read: () => Promise<T>): Promise<T> {
    const deadline = performance.now() + deadlineMs;
    for (let attempt = 0; ; attempt++) {
      try {
        return await within(READ_TRY_MS, read());
      } catch (cause) {
        if (performance.now() >= deadline)
          throw new LogUnavailableError('the log did not answer a read in time', { cause });
        await delay(backoffMs(attempt, { baseMs: 20, capMs: 250 }));
      }
    }
  }

  async read(ref: AggregateRef, range: ReadRange): Promise<CommitPage> {
    const shard = this.shardOf(ref);
    return await this.#read(ref, range, ({ seq, data }) => ({
      ...{ ref, shard, position: seq },
      ...this.#codec.decode(ref, data),
    }));
  }

  async readPlain(ref: AggregateRef, range: ReadRange): Promise<PlainPage> {
    return await this.#read(ref, range, ({ seq, data }) => ({ position: seq, bytes: this.#codec.open(ref, data) }));
  }

  /** A page of what `take` makes of each message; what is erased is left out. */
  async #read<T>(ref: AggregateRef, range: ReadRange, take: (message: StoredMsg) => T): Promise<Page<T>> {
    let { after } = range;
    for (let attempt = 0; ; attempt++) {
      const { commits, more, reached } = await this.#readOnce(ref, { ...range, after }, take);
      const isWhole = more || range.atLeast === undefined || reached >= range.atLeast;
      // A page of nothing but erased commits is stepped over.
      if (isWhole && (commits.length > 0 || !more)) return { commits, more };
      if (attempt === STALE_READ_TRIES && !isWhole) {
        throw new LogUnavailableError('every replica that answered is behind');
      }
      if (isWhole) [after, attempt] = [reached, -1];
      else await delay(20);
    }
  }

  async #readOnce<T>(
    ref: AggregateRef,
    range: ReadRange,
    take: (message: StoredMsg) => T,
  ): Promise<Page<T> & { readonly reached: number }> {
    const request = { seq: range.after + 1, next_by_subj: subjectOf(ref), batch: range.limit };
    const messages = await this.#tried(READ_DEADLINE_MS, async () => {
      this.#onRoundTrip('read');
      return await directBatch(this.#manager, this.#streamOf(ref), request);
    });
    const commits: T[] = [];
    for (const message of messages) {
      if (!this.#codec.isReady(message.data)) await this.#codec.prepare(ref, message.data);
      try {
        commits.push(take(message));
      } catch (error) {
        if (!(error instanceof ErasedCommitError)) throw error;
      }
    }
    const last = messages.at(-1);
    return { commits, more: (last?.pending ?? 0) > 0, reached: last?.seq ?? range.after };
  }

  async head(ref: AggregateRef): Promise<number> {
    const message = await this.#tried(READ_DEADLINE_MS, async () => {
      this.#onRoundTrip('head');
      return await this.#manager.streams.getMessage(this.#streamOf(ref), { last_by_subj: subjectOf(ref) });
    });
    return message?.seq ?? 0;
  }

  async heads(refs: readonly AggregateRef[]): Promise<ReadonlyMap<string, number>> {
    const found = new Map<string, number>();
    const byStream = Map.groupBy(refs, (ref) => this.#streamOf(ref));
    for (const [stream, members] of byStream) {
      for (let i = 0; i < members.length; i += HEADS_PER_REQUEST) {
        const subjects = members.slice(i, i + HEADS_PER_REQUEST).map(subjectOf);
        const newest = await this.#tried(READ_DEADLINE_MS, async () => await lastOf(this.#manager, stream, subjects));
        for (const { subject, seq } of newest) found.set(refKey(refOfSubject(subject)), seq);
      }
    }
    return found;
  }

  async eraseBefore(ref: AggregateRef, position: number): Promise<void> {
    try {
      await this.#manager.streams.purge(this.#streamOf(ref), { filter: subjectOf(ref), seq: position });
    } catch (cause) {
      throw new LogUnavailableError('the log did not erase what it was asked to', { cause });
    }
  }

  async erase(tenant: string, kinds: readonly AggregateKind[]): Promise<void> {
    try {
      for (let shard = 0; shard < this.#shards; shard++) {
        for (const kind of kinds) {
          await this.#manager.streams.purge(streamName(shard), { filter: `evt.*.${escapeToken(tenant)}.${kind}.*` });
        }
      }
    } catch (cause) {
      throw new LogUnavailableError('the log did not erase what it was asked to', { cause });
    }
  }

  #streamOf(ref: AggregateRef): string {
    return streamName(this.shardOf(ref));
  }
}

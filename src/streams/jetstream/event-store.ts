import type { JetStreamManager } from '@nats-io/jetstream';
import { UnavailableError } from '../../lib/unavailable.ts';
import { backoffMs, delay } from '../../lib/backoff.ts';
import { faultPoint } from '../../lib/fault-points.ts';
import { follows } from '../chain.ts';
import type { Commit, StoredCommit } from '../commit.ts';
import { TenantErasedError } from '../sealed-bytes.ts';
import { ErasedCommitError } from '../sealed-codec.ts';
import type { CommitCodec } from '../sealed-codec.ts';
import type { AppendResult, CommitPage, EventStore, PlainPage, ReadRange } from '../event-store.ts';
import { bucketOf, refKey, refOfSubject, streamName, streamOf, subjectOf, escapeToken } from '../subjects.ts';
import type { AggregateKind, AggregateRef } from '../subjects.ts';
import { errors } from '@nats-io/transport-node';
import type { NatsConnection } from '@nats-io/transport-node';
import { nextMessage } from './leader-read.ts';
import { BulkReader, READ_DEADLINE_MS } from './bulk-read.ts';
import { within } from './direct-read.ts';
import type { Batch, ReadMessage } from './direct-read.ts';
import { apiCode, isPassing, isWrongLastSequence } from './errors.ts';
import { messageId } from './message-id.ts';
import { PublishDeniedError, Publisher } from './publisher.ts';
import { purgeInSteps, purgeSubjects } from './purge.ts';
import { bucketsOf } from './shard-streams.ts';

export interface EventStoreOptions {
  readonly connection: NatsConnection;
  /** For reads that may be long; what an append waits for goes through `manager`. */
  readonly reads: NatsConnection;
  readonly manager: JetStreamManager;
  readonly codec: CommitCodec;
  readonly shards: number;
  /** Bound of one publish, ms. Short: an append in flight at a disconnect does not fail, it times out. */
  readonly publishTimeoutMs?: number;
  /** How long an append of unknown outcome is followed, ms; longer than an election (4 to 9 s measured). */
  readonly appendDeadlineMs?: number;
  /** Counts round trips by name, for the test that asserts their number. */
  readonly onRoundTrip?: (name: 'append' | 'read' | 'head' | 'successor') => void;
  /** Called for every finished append, for the metrics; `failed`: refused, or still unknown at the deadline. */
  readonly onAppend?: (outcome: AppendResult['kind'] | 'failed', ms: number) => void;
  /** Called whenever an append of unknown outcome is sent again, for the metrics. */
  readonly onRetry?: () => void;
  /** Called whenever what was read had a hole and is read again, for the metrics. */
  readonly onHole?: () => void;
}

/** Bound of one try of a read from the leader, ms: a request that hits a disconnect is never answered. */
const READ_TRY_MS = 1_000;
/** Stale replica answers after which the leader is asked, commit by commit. */
const STALE_READ_TRIES = 3;
const STALE_WAIT_MS = 20;
/** Commits that a page takes from the leader at most. */
const LEADER_READS = 50;
/** Pages with a hole after which it is taken to be in the log. */
const BROKEN_READ_TRIES = 4;

interface Page<T> {
  readonly commits: readonly T[];
  readonly more: boolean;
}

/** What to make of the messages of a page. */
interface PageReader<T> {
  readonly take: (message: ReadMessage) => T;
  /** Whether the second can directly follow the first. */
  readonly isNext: (before: T, after: T) => boolean;
}

/** An append whose outcome is not known yet. */
interface AppendTry {
  readonly ref: AggregateRef;
  readonly expected: number;
  readonly msgID: string;
  /** On the clock of `performance.now`, which is never adjusted. */
  readonly deadline: number;
  readonly hash: string;
}

/** The log on JetStream streams `EVT_0 … EVT_{n-1}`. */
export class JetStreamEventStore implements EventStore {
  readonly #publisher: Publisher;
  readonly #bulk: BulkReader;
  readonly #manager: JetStreamManager;
  readonly #codec: CommitCodec;
  readonly #shards: number;
  readonly #publishTimeoutMs: number;
  readonly #appendDeadlineMs: number;
  readonly #onRoundTrip: NonNullable<EventStoreOptions['onRoundTrip']>;
  readonly #onAppend: NonNullable<EventStoreOptions['onAppend']>;
  readonly #onRetry: NonNullable<EventStoreOptions['onRetry']>;
  readonly #onHole: NonNullable<EventStoreOptions['onHole']>;

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
    this.#onHole = options.onHole ?? ((): void => undefined);
    const onRead = (): void => this.#onRoundTrip('read');
    this.#bulk = new BulkReader(options.reads, { onRead, onTorn: this.#onHole });
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
   * The retry rule: while the outcome is unknown, resend the same id with the same expectation; when the expectation is
   * refused, the immediate successor of the expected position tells whether the commit there is ours. An append with
   * expectation E, if stored, is that successor, so the test is exact and needs no time window.
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
        // A duplicate acknowledgement of an id that is still being stored may carry no sequence.
        if (position > 0) return { kind: 'appended', position, hash };
      } catch (error) {
        const result = await this.#afterFailure(error, { ref, expected, msgID, deadline, hash });
        if (result !== null) return result;
        cause = error;
      }
      if (performance.now() >= deadline)
        throw new UnavailableError('streams', 'the log did not confirm an append in time', { cause });
      this.#onRetry();
      await delay(backoffMs(attempt, { baseMs: 20, capMs: 500 }));
    }
  }

  /** Null: the tenant has been erased under this writer, and so has what the decision was based on. */
  async #encoded(ref: AggregateRef, commit: Commit): Promise<Awaited<ReturnType<CommitCodec['encode']>> | null> {
    try {
      return await this.#codec.encode(ref, commit);
    } catch (error) {
      if (error instanceof TenantErasedError) return null;
      throw error;
    }
  }

  /** What a failed publish means; null: unknown, send the same again. */
  async #afterFailure(
    error: unknown,
    { ref, expected, msgID, deadline, hash }: AppendTry,
  ): Promise<AppendResult | null> {
    // The client did not and will not send it: it is larger than the server accepts.
    if (error instanceof errors.InvalidArgumentError) throw error;
    if (error instanceof PublishDeniedError)
      throw new UnavailableError('streams', 'this node may not write', { cause: error });
    if (isWrongLastSequence(error)) {
      const successor = await this.#successor(ref, expected, deadline);
      // Nothing follows: another append is in flight, or the aggregate has been erased under this writer.
      if (successor === null) return (await this.#isErased(ref, expected)) ? { kind: 'conflict' } : null;
      if (successor.msgId === msgID) return { kind: 'appended', position: successor.position, hash };
      return { kind: 'conflict' };
    }
    if (apiCode(error) !== null && !isPassing(error)) {
      throw new UnavailableError('streams', `the log refused an append (${String(apiCode(error))})`, { cause: error });
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
   * Reads until it is answered. What the client should send while the connection is down is silently lost, and would
   * otherwise be waited for in vain long after the server is back.
   */
  async #tried<T>(deadlineMs: number, read: () => Promise<T>): Promise<T> {
    const deadline = performance.now() + deadlineMs;
    for (let attempt = 0; ; attempt++) {
      try {
        return await within(READ_TRY_MS, read());
      } catch (cause) {
        if (performance.now() >= deadline)
          throw new UnavailableError('streams', 'the log did not answer a read in time', { cause });
        await delay(backoffMs(attempt, { baseMs: 20, capMs: 250 }));
      }
    }
  }

  async read(ref: AggregateRef, range: ReadRange): Promise<CommitPage> {
    const shard = this.shardOf(ref);
    return await this.#read<StoredCommit>(ref, range, {
      take: ({ seq, data }) => ({ ...{ ref, shard, position: seq }, ...this.#codec.decode(ref, data) }),
      // Without a hash there is nothing to compare: commits that old are not always numbered.
      isNext: ({ commit: { rev }, hash }, { commit }) => commit.prev === undefined || follows({ rev, hash }, commit),
    });
  }

  async readPlain(ref: AggregateRef, range: ReadRange): Promise<PlainPage> {
    return await this.#read(ref, range, {
      take: ({ seq, data }) => ({ position: seq, bytes: this.#codec.open(ref, data) }),
      isNext: () => true,
    });
  }

  /** A page of what the reader makes of each message, without the erased. */
  async #read<T>(ref: AggregateRef, range: ReadRange, reader: PageReader<T>): Promise<Page<T>> {
    let { after } = range;
    for (let [stale, broken] = [0, 0]; ;) {
      const batch =
        stale < STALE_READ_TRIES
          ? await this.#batch(ref, { ...range, after })
          : await this.#fromLeader(ref, range, after);
      const commits = await this.#taken(ref, batch.messages, reader);
      const reached = batch.messages.at(-1)?.seq ?? after;
      const isWhole = batch.more || range.atLeast === undefined || reached >= range.atLeast;
      if (commits === 'broken') {
        this.#onHole();
        if (++broken === BROKEN_READ_TRIES)
          throw new UnavailableError('streams', `commits of ${refKey(ref)} are missing`);
        await delay(STALE_WAIT_MS);
      } else if (!isWhole) {
        if (stale++ >= STALE_READ_TRIES) throw new UnavailableError('streams', 'every replica that answered is behind');
        await delay(STALE_WAIT_MS);
      } else if (commits.length > 0 || !batch.more) {
        return { commits, more: batch.more };
      } else {
        // A page of nothing but erased commits is stepped over.
        [after, stale] = [reached, 0];
      }
    }
  }

  async #taken<T>(
    ref: AggregateRef,
    messages: readonly ReadMessage[],
    { take, isNext }: PageReader<T>,
  ): Promise<readonly T[] | 'broken'> {
    const commits: T[] = [];
    let before: T | null = null;
    for (const message of messages) {
      if (!this.#codec.isReady(message.data)) await this.#codec.prepare(ref, message.data);
      try {
        const commit = take(message);
        if (before !== null && !isNext(before, commit)) return 'broken';
        before = commit;
        commits.push(commit);
      } catch (error) {
        if (!(error instanceof ErasedCommitError)) throw error;
        before = null;
      }
    }
    return commits;
  }

  async #batch(ref: AggregateRef, { after, limit }: ReadRange): Promise<Batch> {
    return await this.#bulk.from(this.#streamOf(ref), { seq: after + 1, subject: subjectOf(ref) }, limit);
  }

  /** What replicas do not have yet. One request each: it is rarely more than the newest. */
  async #fromLeader(ref: AggregateRef, { limit, atLeast = 0 }: ReadRange, after: number): Promise<Batch> {
    const messages: ReadMessage[] = [];
    for (let reached = after; reached < atLeast; reached = messages.at(-1)?.seq ?? atLeast) {
      if (messages.length === Math.min(limit, LEADER_READS)) return { messages, more: true };
      const message = await this.#tried(READ_DEADLINE_MS, async () => {
        this.#onRoundTrip('read');
        return await nextMessage(this.#manager, this.#streamOf(ref), { seq: reached + 1, subject: subjectOf(ref) });
      });
      if (message === null) break;
      const { seq, subject, data, header } = message;
      messages.push({ seq, subject, data, msgId: header.get('Nats-Msg-Id') });
    }
    return { messages, more: false };
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
      for (const { subject, seq } of await this.#bulk.newest(stream, members.map(subjectOf))) {
        found.set(refKey(refOfSubject(subject)), seq);
      }
    }
    return found;
  }

  async eraseBefore(ref: AggregateRef, position: number): Promise<void> {
    try {
      await purgeInSteps(this.#manager, this.#streamOf(ref), { filter: subjectOf(ref), before: position });
    } catch (cause) {
      throw new UnavailableError('streams', 'the log did not erase what it was asked to', { cause });
    }
  }

  async erase(tenant: string, kinds: readonly AggregateKind[]): Promise<void> {
    try {
      for (let shard = 0; shard < this.#shards; shard++) {
        for (const kind of kinds) {
          const filterIn = (bucket: number | '*'): string => `evt.${bucket}.${escapeToken(tenant)}.${kind}.*`;
          const doomed = { filter: filterIn('*'), parts: bucketsOf(shard, this.#shards).map(filterIn) };
          await purgeSubjects(this.#manager, streamName(shard), doomed);
        }
      }
    } catch (cause) {
      throw new UnavailableError('streams', 'the log did not erase what it was asked to', { cause });
    }
  }

  #streamOf(ref: AggregateRef): string {
    return streamName(this.shardOf(ref));
  }
}

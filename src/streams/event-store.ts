import type { Commit, CommitPlace, StoredCommit } from './commit.ts';
import type { AggregateRef } from './subjects.ts';

/** `hash`: of the commit as it is stored. `conflict`: another writer's commit directly follows the expected position. */
export type AppendResult =
  | { readonly kind: 'appended'; readonly position: number; readonly hash: string }
  | { readonly kind: 'conflict' };

export interface ReadRange {
  /** Read what comes after this position; 0 = from the beginning. */
  readonly after: number;
  /** Commits at most, 1 to 1000; fewer where they are large, as a page is also bounded in bytes (1 MiB). */
  readonly limit: number;
  /**
   * The result must reach this position if the log has it. Without it a read may be answered by a replica that is
   * behind (measured: 59 of 500 reads right after the acknowledgement).
   */
  readonly atLeast?: number;
}

/** A commit as it was encoded, before it was sealed. */
export interface PlainCommit {
  readonly position: number;
  readonly bytes: Uint8Array;
}

export interface PlainPage {
  readonly commits: readonly PlainCommit[];
  readonly more: boolean;
}

export interface CommitPage {
  readonly commits: readonly StoredCommit[];
  /** Whether more commits of the aggregate follow the last one. */
  readonly more: boolean;
}

/**
 * The log of the aggregates. Guarantees, checked by test/conformance/event-store.ts:
 * - `append` stores the commit if and only if `expected` is the position of the aggregate's newest commit (0: it has
 *   none), exactly once, even when acknowledgements are lost; of writers with the same expectation, one wins.
 * - Once it has returned `appended`, the commit is on disk and no crash undoes it.
 * - Commits of one aggregate are read in the order of their positions, without gaps: a page that lost a part on its
 *   way, or whose commits are not chained, is read again, never handed on.
 * - Every way to read a commit gives the same `hash` as its append did: that of the stored bytes, whatever shape its
 *   events are shown in now.
 * - Once the data key of a tenant has been destroyed, its commits are as if they had never been; only `head` and `heads`
 *   still see them until they are erased.
 * Positions are opaque, rising numbers; they are not consecutive within an aggregate.
 */
export interface EventStore {
  /** @throws UnavailableError (streams) when the outcome is still unknown at the store's deadline */
  append(ref: AggregateRef, expected: number, commit: Commit): Promise<AppendResult>;
  /** @throws UnavailableError (streams) when no complete page arrived in time */
  read(ref: AggregateRef, range: ReadRange): Promise<CommitPage>;
  /** As `read`, byte for byte: what the chain of the aggregate is made of. */
  readPlain(ref: AggregateRef, range: ReadRange): Promise<PlainPage>;
  /** Position of the newest commit, from the leader, never stale; 0 when the aggregate has none. */
  head(ref: AggregateRef): Promise<number>;
  /** As `head` for many at once, but possibly stale; by `refKey`, absent where there is none. For reconciling tails. */
  heads(refs: readonly AggregateRef[]): Promise<ReadonlyMap<string, number>>;
  /** Number of the stream that holds the aggregate. */
  shardOf(ref: AggregateRef): number;
  /** Removes an aggregate's commits before a position, for good. May be repeated. */
  eraseBefore(ref: AggregateRef, position: number): Promise<void>;
  /**
   * Removes every commit of a tenant's aggregates of these kinds, for good. The caller must keep appends out meanwhile.
   * An aggregate that is gone restarts with expectation 0.
   */
  erase(tenant: string, kinds: readonly AggregateRef['kind'][]): Promise<void>;
}

/** A commit as the server republished it right after it was stored. At most once: a listener must expect gaps. */
export interface LiveCommit extends CommitPlace {
  readonly key: string;
  /** Position of the commit before it in the same aggregate; 0 = it is the first. A mismatch is a gap. */
  readonly previous: number;
  /** Its length as it was stored. */
  readonly bytes: number;
  /** As it was stored. */
  readonly data?: Uint8Array;
  /** Decoded on first use, shared by all listeners. @throws ErasedCommitError, UndecodableCommitError */
  readonly stored: () => StoredCommit;
}

export interface LiveListener {
  readonly onCommit: (commit: LiveCommit) => void;
  /** Deliveries may have been missed (reconnect, slow consumer): read the log for everything that matters. */
  readonly onDisruption: () => void;
}

/** Everything stored, as it happens, by one subscription on this node, however many listeners. */
export interface LiveFeed {
  /** Returns the function that stops listening. */
  listen(listener: LiveListener): () => void;
}

export interface FollowOptions {
  readonly shard: number;
  /** `all`: whatever the stream holds, even what is no kind of aggregate. */
  readonly kinds: readonly AggregateRef['kind'][] | 'all';
  /** Start after this position. */
  readonly after: number;
  readonly signal: AbortSignal;
  /** Commits read ahead, at most. */
  readonly buffer: number;
}

/** Follows a whole stream in order from a position, indefinitely. */
export interface CommitSource {
  /**
   * Batches of commits in the order of their positions: one batch is what had arrived when the last one was taken, at
   * most `buffer`. Ends when the signal aborts. A commit that cannot be decoded comes as `undecodable`, one of a tenant
   * whose data key has been destroyed as `erased`.
   */
  follow(options: FollowOptions): AsyncIterable<readonly FollowedCommit[]>;
  /** Position of the newest commit of these kinds in the stream; 0 when there is none. From the leader, never stale. */
  newest(shard: number, kinds: readonly AggregateRef['kind'][] | 'all'): Promise<number>;
  /** When the first commit of these kinds after a position was stored, ms since the epoch; null when there is none. */
  timeAfter(shard: number, kinds: readonly AggregateRef['kind'][], position: number): Promise<number | null>;
  /**
   * The commits of one aggregate up to a position, all of them in order, in batches, including undecodable ones. Ends
   * with the last one. @throws UnavailableError (streams)
   */
  commitsOf(ref: AggregateRef, shard: number, upTo: number): AsyncIterable<readonly FollowedCommit[]>;
  /** The commit of an aggregate at a position; null: it is gone. @throws UnavailableError (streams) */
  commitAt(ref: AggregateRef, shard: number, position: number): Promise<FollowedCommit | null>;
  /** How many streams there are. */
  readonly shards: number;
}

export type FollowedCommit =
  | {
      readonly kind: 'commit';
      readonly stored: StoredCommit;
      /** The bytes that the log holds; absent where they are not at hand. */
      readonly bytes?: Uint8Array;
    }
  | (CommitPlace & { readonly kind: 'erased' })
  | (CommitPlace & {
      readonly kind: 'undecodable';
      readonly error: Error;
      /** As the message claims, unproven; null: it does not, or it is not known here. */
      readonly commitId: string | null;
    });

/** Where a followed commit is stored, whatever has become of it. */
export function commitPlace(followed: FollowedCommit): CommitPlace {
  return followed.kind === 'commit' ? followed.stored : followed;
}

/** Position of the last commit of a batch; undefined when the batch is empty. */
export function lastPosition(batch: readonly FollowedCommit[]): number | undefined {
  const last = batch.at(-1);
  return last === undefined ? undefined : commitPlace(last).position;
}

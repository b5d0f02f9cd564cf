import type { AggregateRef } from './subjects.ts';

/**
 * One command is one commit is one message of the log: atomic, one acknowledgement, one retry rule
 * (docs/decisions/0001).
 */
export interface Commit {
  /** Version of this envelope. */
  readonly v: 1;
  /** Number of the commit in its aggregate, from 1, without gaps. */
  readonly rev: number;
  /**
   * Hash of the commit before it in its aggregate; for the first, the aggregate's genesis (chain.ts). Absent in commits
   * stored before chaining.
   */
  readonly prev?: string;
  readonly commitId: string;
  /** RFC 3339 with milliseconds. */
  readonly at: string;
  /** Who caused it: `application:<id>`, `subject:<id>`, `admin`, `worker:<id>`. Never a credential. */
  readonly actor: string;
  /** The request or effect that led to it, as it is named in the log lines. */
  readonly causation: string;
  readonly receipt?: CommitReceipt;
  readonly events: readonly CommitEvent[];
}

export interface CommitEvent {
  readonly id: string;
  readonly type: string;
  /** Version of `data`'s shape; older ones are read through upcasters. */
  readonly v: number;
  readonly data: Readonly<Record<string, unknown>>;
}

/** The answer that a repeated command gets again; its position is that of the commit which holds it. */
export interface CommitReceipt {
  readonly key: string;
  readonly hash: string;
  readonly requestId: string;
  readonly turnId: string | null;
}

/**
 * The events of a commit, typed by their kind. The one place where the log's untyped events become typed ones: they
 * were checked against their kind's schemas when they were appended, and upcast when they were read.
 */
export function eventsOf<E extends { readonly type: string; readonly data: object }>(commit: Commit): readonly E[] {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion
  return commit.events as unknown as readonly E[];
}

/** Where a commit is stored. */
export interface CommitPlace {
  readonly ref: AggregateRef;
  /** Number of the stream that holds it. */
  readonly shard: number;
  /** Sequence in its stream: rises within an aggregate, with gaps. */
  readonly position: number;
}

export interface StoredCommit extends CommitPlace {
  /** Of the bytes of the commit; what the next one carries as `prev`. */
  readonly hash: string;
  readonly commit: Commit;
}

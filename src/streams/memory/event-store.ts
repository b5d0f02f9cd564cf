import { faultPoint } from '../../lib/fault-points.ts';
import type { Commit, StoredCommit } from '../commit.ts';
import type { AppendResult, CommitPage, EventStore, PlainPage, ReadRange } from '../event-store.ts';
import { TenantErasedError } from '../sealed-bytes.ts';
import { ErasedCommitError } from '../sealed-codec.ts';
import type { CommitCodec } from '../sealed-codec.ts';
import { refKey } from '../subjects.ts';
import type { AggregateRef } from '../subjects.ts';
import type { MemoryStreams, StoredMessage } from './streams.ts';
import { turn } from './turn.ts';

/** Bytes of a page, at most, unless its first commit is larger. */
const PAGE_BYTES = 1_048_576;

export interface MemoryEventStoreOptions {
  readonly streams: MemoryStreams;
  readonly codec: CommitCodec;
  /** Called for every finished append, for the metrics. */
  readonly onAppend?: (outcome: AppendResult['kind'] | 'failed', ms: number) => void;
}

interface Page<T> {
  readonly commits: readonly T[];
  readonly more: boolean;
}

/** One node's view of a log in memory. An operation is answered in a later turn of the event loop, as by a server. */
export class MemoryEventStore implements EventStore {
  readonly #streams: MemoryStreams;
  readonly #codec: CommitCodec;
  readonly #onAppend: NonNullable<MemoryEventStoreOptions['onAppend']>;

  constructor({ streams, codec, onAppend = () => undefined }: MemoryEventStoreOptions) {
    this.#streams = streams;
    this.#codec = codec;
    this.#onAppend = onAppend;
  }

  shardOf(ref: AggregateRef): number {
    return this.#streams.shardOf(ref);
  }

  async append(ref: AggregateRef, expected: number, commit: Commit): Promise<AppendResult> {
    const begun = performance.now();
    let outcome: AppendResult['kind'] | 'failed' = 'failed';
    try {
      const result = await this.#append(ref, expected, commit);
      outcome = result.kind;
      return result;
    } finally {
      this.#onAppend(outcome, performance.now() - begun);
    }
  }

  async #append(ref: AggregateRef, expected: number, commit: Commit): Promise<AppendResult> {
    const encoded = await this.#encoded(ref, commit);
    // The tenant has been erased under this writer, and so has what the decision was based on.
    if (encoded === null) return { kind: 'conflict' };
    const { bytes: data, hash } = encoded;
    await faultPoint('append.started');
    const position = this.#streams.publish({ ref, data, commitId: commit.commitId, expected });
    await turn();
    await faultPoint('append.acknowledged');
    if (position !== null) return { kind: 'appended', position, hash };
    // The same commit, sent again by a caller that did not learn the outcome.
    const [successor] = this.#streams.of(ref, expected);
    if (successor?.commitId === commit.commitId) return { kind: 'appended', position: successor.position, hash };
    return { kind: 'conflict' };
  }

  async #encoded(ref: AggregateRef, commit: Commit): Promise<Awaited<ReturnType<CommitCodec['encode']>> | null> {
    try {
      return await this.#codec.encode(ref, commit);
    } catch (error) {
      if (error instanceof TenantErasedError) return null;
      throw error;
    }
  }

  async read(ref: AggregateRef, range: ReadRange): Promise<CommitPage> {
    const shard = this.shardOf(ref);
    return await this.#read<StoredCommit>(ref, range, ({ position, data }) => {
      return { ref, shard, position, ...this.#codec.decode(ref, data) };
    });
  }

  async readPlain(ref: AggregateRef, range: ReadRange): Promise<PlainPage> {
    return await this.#read(ref, range, ({ position, data }) => ({ position, bytes: this.#codec.open(ref, data) }));
  }

  /** A page of what `take` makes of each message, without the erased. */
  async #read<T>(ref: AggregateRef, range: ReadRange, take: (message: StoredMessage) => T): Promise<Page<T>> {
    await turn();
    const commits: T[] = [];
    const messages = this.#streams.of(ref, range.after);
    let bytes = 0;
    for (const [at, message] of messages.entries()) {
      if (commits.length === range.limit || bytes >= PAGE_BYTES) return { commits, more: at < messages.length };
      if (!this.#codec.isReady(message.data)) await this.#codec.prepare(ref, message.data);
      try {
        commits.push(take(message));
        bytes += message.data.length;
      } catch (error) {
        if (!(error instanceof ErasedCommitError)) throw error;
      }
    }
    return { commits, more: false };
  }

  async head(ref: AggregateRef): Promise<number> {
    await turn();
    return this.#streams.of(ref, 0).at(-1)?.position ?? 0;
  }

  async heads(refs: readonly AggregateRef[]): Promise<ReadonlyMap<string, number>> {
    await turn();
    const found = new Map<string, number>();
    for (const ref of refs) {
      const position = this.#streams.of(ref, 0).at(-1)?.position;
      if (position !== undefined) found.set(refKey(ref), position);
    }
    return found;
  }

  async eraseBefore(ref: AggregateRef, position: number): Promise<void> {
    await turn();
    const key = refKey(ref);
    this.#streams.remove(this.shardOf(ref), (message) => message.key === key && message.position < position);
  }

  async erase(tenant: string, kinds: readonly AggregateRef['kind'][]): Promise<void> {
    await turn();
    for (let shard = 0; shard < this.#streams.shards; shard++) {
      this.#streams.remove(shard, ({ ref }) => ref.tenant === tenant && kinds.includes(ref.kind));
    }
  }
}

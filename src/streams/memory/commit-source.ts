import type { CommitSource, FollowedCommit, FollowOptions } from '../event-store.ts';
import { ErasedCommitError } from '../sealed-codec.ts';
import type { CommitCodec } from '../sealed-codec.ts';
import type { AggregateKind, AggregateRef } from '../subjects.ts';
import type { MemoryStreams, StoredMessage } from './streams.ts';
import { turn } from './turn.ts';

/** Commits of one aggregate that are read at once. */
const READ_BATCH = 500;

/** Follows a log in memory. */
export class MemoryCommitSource implements CommitSource {
  readonly shards: number;
  readonly #streams: MemoryStreams;
  readonly #codec: CommitCodec;

  constructor(streams: MemoryStreams, codec: CommitCodec) {
    this.shards = streams.shards;
    this.#streams = streams;
    this.#codec = codec;
  }

  async newest(shard: number, kinds: readonly AggregateKind[] | 'all'): Promise<number> {
    await turn();
    return this.#streams.newest(shard, kinds);
  }

  async timeAfter(shard: number, kinds: readonly AggregateKind[], position: number): Promise<number | null> {
    await turn();
    return this.#streams.after(shard, kinds, { position, most: 1 })[0]?.storedAtMs ?? null;
  }

  async *commitsOf(ref: AggregateRef, _shard: number, upTo: number): AsyncGenerator<readonly FollowedCommit[]> {
    await turn();
    const wanted = this.#streams.of(ref, 0).filter(({ position }) => position <= upTo);
    for (let at = 0; at < wanted.length; at += READ_BATCH) {
      yield await this.#decoded(wanted.slice(at, at + READ_BATCH));
    }
  }

  async commitAt(ref: AggregateRef, _shard: number, position: number): Promise<FollowedCommit | null> {
    await turn();
    const [message] = this.#streams.of(ref, position - 1);
    return message?.position === position ? await this.#decode(message) : null;
  }

  async *follow({ shard, kinds, after, signal, buffer }: FollowOptions): AsyncGenerator<readonly FollowedCommit[]> {
    let position = after;
    let wake = (): void => undefined;
    const unlisten = this.#streams.listen((message) => {
      if (message.shard === shard) wake();
    });
    const ended = (): void => wake();
    signal.addEventListener('abort', ended, { once: true });
    try {
      while (!signal.aborted) {
        const messages = this.#streams.after(shard, kinds, { position, most: buffer });
        if (messages.length === 0) {
          // What is stored from here on is told: nothing was awaited since it was looked for.
          await new Promise<void>((resolve) => (wake = resolve));
          continue;
        }
        yield await this.#decoded(messages);
        position = messages.at(-1)?.position ?? position;
        await turn();
      }
    } finally {
      signal.removeEventListener('abort', ended);
      unlisten();
    }
  }

  async #decoded(messages: readonly StoredMessage[]): Promise<readonly FollowedCommit[]> {
    return await Promise.all(messages.map(async (message) => await this.#decode(message)));
  }

  async #decode({ ref, shard, position, data, commitId }: StoredMessage): Promise<FollowedCommit> {
    if (!this.#codec.isReady(data)) await this.#codec.prepare(ref, data);
    try {
      return { kind: 'commit', stored: { ref, shard, position, ...this.#codec.decode(ref, data) }, bytes: data };
    } catch (error) {
      if (!(error instanceof Error)) throw error;
      if (error instanceof ErasedCommitError) return { kind: 'erased', ref, shard, position };
      return { kind: 'undecodable', ref, shard, position, error, commitId };
    }
  }
}

import { createHash } from 'node:crypto';
import { commitPlace } from './event-store.ts';
import type { FollowedCommit } from './event-store.ts';
import { subjectOf } from './subjects.ts';

/**
 * What a stream holds, in its order: two are equal exactly if they have the same commits of the same aggregates at the
 * same positions. A commit is in it by its hash, which the chain of its aggregate vouches for; one that cannot be read,
 * by its place alone.
 */
export class StreamDigest {
  readonly #hash = createHash('sha256');
  commits = 0;

  take(followed: FollowedCommit): void {
    const { ref, position } = commitPlace(followed);
    const content = followed.kind === 'commit' ? followed.stored.hash : followed.kind;
    this.#hash.update(`${subjectOf(ref)} ${position} ${content}\n`);
    this.commits++;
  }

  /** 64 lower-case hex digits. Call it once, after the end. */
  result(): string {
    return this.#hash.digest('hex');
  }
}

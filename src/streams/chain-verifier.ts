import type { z } from 'zod';
import { genesisOf } from './chain.ts';
import type { StoredCommit } from './commit.ts';
import type { FollowedCommit } from './event-store.ts';
import { subjectOf } from './subjects.ts';
import type { AggregateRef } from './subjects.ts';

export interface ChainProblem {
  readonly subject: string;
  readonly position: number;
  /** Id of the commit at that position, if known. */
  readonly commitId: string | null;
  readonly what: string;
}

/** The newest commit of an aggregate that has been checked. */
export interface ChainHead {
  readonly rev: number;
  readonly hash: string;
  readonly position: number;
  readonly commitId: string;
  /** False: this commit and those before it carry no hash; they predate the chaining of commits. */
  readonly chained: boolean;
  /** Messages that came after it and could not be read. */
  readonly unreadable: number;
  /** Position of the deletion that the chain begins with; 0: it begins with its first commit. */
  readonly since: number;
}

/** What another part of the installation recorded about a commit. */
export interface Witness {
  readonly ref: AggregateRef;
  readonly position: number;
  readonly hash: string;
}

/** Shapes of the events of a kind of aggregate, by type. */
type Schemas = Readonly<Record<string, Readonly<Record<string, z.ZodType>>>>;

/**
 * Checks a stream from its beginning: the commits of an aggregate are numbered without a gap, each carries the hash of
 * the one before it, and each event has its shape. After a deletion a chain begins wherever the deletion is, also where
 * commits before it have been seen. It holds about 300 bytes per aggregate.
 */
export class ChainVerifier {
  readonly #schemas: Schemas;
  readonly #heads: Map<string, ChainHead>;
  /** By subject and position, until the commit has been seen. */
  readonly #witnesses = new Map<string, Witness>();
  commits = 0;
  events = 0;
  erased = 0;
  /** Commits without a hash, at the beginning of their chains. */
  unchained = 0;

  constructor(schemas: Schemas, heads: Iterable<readonly [subject: string, head: ChainHead]> = []) {
    this.#schemas = schemas;
    this.#heads = new Map(heads);
  }

  /** By subject. */
  get heads(): ReadonlyMap<string, ChainHead> {
    return this.#heads;
  }

  /** Call it before the commit is shown. */
  expect(witness: Witness): void {
    this.#witnesses.set(placeKey(subjectOf(witness.ref), witness.position), witness);
  }

  /** Witnesses whose commits have not been shown, except those that a deletion erased. */
  get unseen(): readonly Witness[] {
    return [...this.#witnesses.values()].filter(
      ({ ref, position }) => position >= (this.#heads.get(subjectOf(ref))?.since ?? 0),
    );
  }

  take(followed: FollowedCommit): readonly ChainProblem[] {
    if (followed.kind === 'commit') return this.#check(followed.stored);
    if (followed.kind === 'erased') {
      this.erased++;
      return [];
    }
    const { ref, position, commitId, error } = followed;
    const subject = subjectOf(ref);
    const head = this.#heads.get(subject) ?? beginning(ref);
    this.#heads.set(subject, { ...head, unreadable: head.unreadable + 1 });
    return [{ subject, position, commitId, what: `cannot be read: ${error.message}` }];
  }

  #check(stored: StoredCommit): readonly ChainProblem[] {
    const { ref, position, hash, commit } = stored;
    const { rev, commitId } = commit;
    const subject = subjectOf(ref);
    this.commits++;
    this.events += commit.events.length;
    const before = this.#heads.get(subject);
    const problems = [...this.#links(subject, before, stored), ...this.#shapes(subject, stored)];
    const key = placeKey(subject, position);
    const witness = this.#witnesses.get(key);
    if (witness !== undefined && witness.hash !== hash) {
      problems.push({ subject, position, commitId, what: `is not what the snapshot of commit ${rev} was made of` });
    }
    this.#witnesses.delete(key);
    const chained = commit.prev !== undefined;
    if (!chained) this.unchained++;
    const since = sinceOf(before, stored);
    this.#heads.set(subject, { rev, hash, position, commitId, chained, unreadable: 0, since });
    return problems;
  }

  /** Why this commit cannot follow the one before it. */
  #links(subject: string, before: ChainHead | undefined, { ref, position, commit }: StoredCommit): ChainProblem[] {
    const { rev, prev, commitId } = commit;
    const at = { subject, position, commitId };
    const isDeletion = isDeletionIn(commit);
    // Of a deleted session only the deletion is left.
    if (before === undefined && isDeletion) return [];
    const head = before ?? beginning(ref);
    if (prev === undefined && head.chained) {
      return [{ ...at, what: `commit ${rev} carries no hash of the one before it, unlike those before` }];
    }
    const missing = rev - head.rev - 1;
    // Those that could not be read have been reported.
    if (missing > 0 && missing <= head.unreadable) return [];
    // It has removed them since those before them were read.
    if (missing > 0 && isDeletion) return [];
    if (missing !== 0)
      return [{ ...at, what: `commit ${rev} follows commit ${head.rev} at ${head.position}${hint(missing)}` }];
    if (prev === undefined || prev === head.hash) return [];
    if (rev === 1) return [{ ...at, what: 'commit 1 carries the beginning of another aggregate' }];
    const what = `commit ${head.rev} is not the one that commit ${rev} at ${position} (${commitId}) follows: one of them was changed`;
    return [{ subject, position: head.position, commitId: head.commitId, what }];
  }

  #shapes(subject: string, { ref, position, commit }: StoredCommit): ChainProblem[] {
    const { commitId } = commit;
    return commit.events.flatMap(({ type, data }) => {
      const schema = this.#schemas[ref.kind]?.[type];
      const at = { subject, position, commitId };
      if (schema === undefined) return [{ ...at, what: `${type} is not an event of a ${ref.kind}` }];
      const parsed = schema.safeParse(data);
      if (parsed.success) return [];
      return [{ ...at, what: `${type} has another shape: ${parsed.error.issues[0]?.message ?? ''}` }];
    });
  }
}

function isDeletionIn({ events }: StoredCommit['commit']): boolean {
  return events.some(({ type }) => type === 'session.deleted');
}

/** Position of the deletion that the chain begins with after this commit. */
function sinceOf(before: ChainHead | undefined, { position, commit }: StoredCommit): number {
  if (before === undefined) return commit.rev === 1 ? 0 : position;
  return isDeletionIn(commit) && commit.rev > before.rev + 1 ? position : before.since;
}

function hint(missing: number): string {
  return missing > 0 ? `: ${missing} missing` : ': put in, or out of order';
}

function beginning(ref: AggregateRef): ChainHead {
  return { rev: 0, hash: genesisOf(ref), position: 0, commitId: '', chained: false, unreadable: 0, since: 0 };
}

function placeKey(subject: string, position: number): string {
  return `${subject} ${position}`;
}

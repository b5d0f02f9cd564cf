import type { z } from 'zod';
import type { StoredCommit } from './commit.ts';
import type { FollowedCommit } from './event-store.ts';
import { refKey, subjectOf } from './subjects.ts';

export interface ChainProblem {
  readonly subject: string;
  readonly position: number;
  readonly what: string;
}

/** Shapes of the events of a kind of aggregate, by type. */
type Schemas = Readonly<Record<string, Readonly<Record<string, z.ZodType>>>>;

/**
 * Checks a stream that it is shown from its beginning: the commits of an aggregate are numbered without a gap, each has
 * an id of its own, and each event has its shape. What follows a deletion begins wherever the deletion stands.
 */
export class ChainVerifier {
  readonly #schemas: Schemas;
  readonly #revs = new Map<string, number>();
  commits = 0;
  erased = 0;
  /** Of the newest commit that was shown. */
  position = 0;

  constructor(schemas: Schemas) {
    this.#schemas = schemas;
  }

  get aggregates(): number {
    return this.#revs.size;
  }

  take(followed: FollowedCommit): readonly ChainProblem[] {
    if (followed.kind === 'commit') return this.#check(followed.stored);
    const { ref, position } = followed;
    this.position = position;
    if (followed.kind === 'undecodable') {
      return [{ subject: subjectOf(ref), position, what: `cannot be read: ${followed.error.message}` }];
    }
    this.erased++;
    return [];
  }

  #check({ ref, position, commit }: StoredCommit): readonly ChainProblem[] {
    const [key, subject] = [refKey(ref), subjectOf(ref)];
    const problems: ChainProblem[] = [];
    const wrong = (what: string): void => void problems.push({ subject, position, what });
    this.commits++;
    this.position = position;
    const before = this.#revs.get(key);
    // Of a deleted session only the deletion is left of what was.
    const mayBegin = commit.rev === 1 || commit.events.some(({ type }) => type === 'session.deleted');
    if (before === undefined ? !mayBegin : commit.rev !== before + 1) {
      wrong(`commit ${commit.rev} follows commit ${before ?? 0}`);
    }
    this.#revs.set(key, commit.rev);
    for (const { type, data } of commit.events) {
      const schema = this.#schemas[ref.kind]?.[type];
      const parsed = schema?.safeParse(data);
      if (schema === undefined) wrong(`${type} is no event of a ${ref.kind}`);
      else if (parsed?.success === false) wrong(`${type} has another shape: ${parsed.error.issues[0]?.message ?? ''}`);
    }
    return problems;
  }
}

import { decodePageCursor, encodePageCursor } from './page-cursor.ts';
import { ProblemError } from './problem.ts';

export interface ListQuery {
  readonly limit: number;
  readonly cursor?: string | undefined;
}

/** One page of a list: where it starts, how much to ask for, and how the answer is cut. */
export class ListRequest {
  /** The key of the last entry that the caller has; null: from the start. */
  readonly after: readonly string[] | null;
  /** One more than the page holds: it tells whether there is more. */
  readonly wanted: number;
  readonly #scope: string;

  /**
   * @param scope names the route, the tenant and the filters; a cursor is good for this scope only
   * @param keyParts how many texts make up the key of an entry
   * @throws ProblemError cursor_invalid
   */
  constructor(scope: string, query: ListQuery, keyParts: number) {
    this.#scope = scope;
    this.wanted = query.limit + 1;
    this.after = query.cursor === undefined ? null : decodePageCursor(scope, query.cursor, keyParts);
    if (query.cursor !== undefined && this.after === null) throw foreignCursor();
  }

  /**
   * For a list ordered by the places of events: the place of the last entry that the caller has; null: from the start.
   * @throws ProblemError cursor_invalid
   */
  get afterPlace(): { readonly position: number; readonly index: number } | null {
    if (this.after === null) return null;
    const [position = NaN, index = NaN] = this.after.map(Number);
    if (!Number.isSafeInteger(position) || !Number.isInteger(index) || Math.abs(index) > INDEX_MAX)
      throw foreignCursor();
    return { position, index };
  }

  page<T>(found: readonly T[], keyOf: (entry: T) => readonly string[]): { entries: T[]; nextCursor: string | null } {
    const entries = found.slice(0, this.wanted - 1);
    const last = entries.at(-1);
    const more = found.length === this.wanted && last !== undefined;
    return { entries, nextCursor: more ? encodePageCursor(this.#scope, keyOf(last)) : null };
  }
}

/** Of a commit's event; the column is one of 32 bits. */
const INDEX_MAX = 65_535;

/** The refusal of a cursor that is not one of the list. */
function foreignCursor(): ProblemError {
  const message = 'The cursor is not one of this list. Use a cursor of the same route with the same filters, or none.';
  return new ProblemError({ code: 'cursor_invalid', message });
}

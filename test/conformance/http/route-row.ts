/** What a row of the table of routes says, and texts that no route takes. */

export type Json = Readonly<Record<string, unknown>>;

export interface RouteRow {
  readonly realm: 'open' | 'admin' | 'tenant';
  /** Called with this credential; absent: with an application key. */
  readonly credential?: 'studio' | 'executor';
  /** Which scope lets a subject in; absent: none does. */
  readonly scope?: string;
  /** Path parameters with a value that is there. */
  readonly params?: Readonly<Record<string, string>>;
  /** Query parameters with values that are refused as invalid, percent-encoded; `limit` and `cursor` have theirs in common. */
  readonly query?: Readonly<Record<string, readonly string[]>>;
  readonly limitMax?: number;
  readonly bodies?: readonly BodyRow[];
  /** The body is a file: any bytes are right. */
  readonly rawBody?: true;
  /** Path parameters that any text may be. */
  readonly freeParams?: readonly string[];
}

export interface BodyRow {
  /** With every member that it may have, all of them right. */
  readonly whole: Json;
  /** Members that hold any JSON object: what is inside is not ours to type. */
  readonly free?: readonly string[];
  /** Members, dotted, without which the body is refused. */
  readonly required: readonly string[];
  /** More that is refused: members that replace those of `whole`; undefined takes one away. */
  readonly wrong?: readonly Json[];
}

/** One character more than an id of a request may have. */
export const LONG = 'x'.repeat(257);
export const badClientIds = ['', 'x'.repeat(201), '/a', 'a/', 'a//b', '.a', 'a b', 'ä', '-', 'a\u0000'];

import { sql } from 'slonik';
import type { DatabasePoolConnection, ListSqlToken, QuerySqlToken } from 'slonik';
import { z } from 'zod';
import { BY_KEY, withSettings } from './read-store/long-work.ts';

/** A row that the live read model and a replay of the log do not have in common, as text. */
export interface Difference {
  readonly side: 'only live' | 'only replayed';
  readonly row: string;
}

export interface Compared {
  /** Rows that were compared, live ones. */
  readonly rows: number;
  readonly differences: number;
}

/** One of two tables of the same columns and primary key, in a database. */
export interface Side {
  readonly connection: DatabasePoolConnection;
  readonly table: readonly [schema: string, name: string];
}

export interface Sides {
  readonly live: Side;
  readonly replayed: Side;
}

/** A row of a side that the other one has not, by the columns of its key, as text. */
export interface Differing {
  readonly side: Side;
  readonly key: Readonly<Record<string, string>>;
}

/** Who gets the first differences; the others are only counted. */
export interface Shown {
  readonly max: number;
  readonly tell: (difference: Difference) => void;
  /** Whether a row may differ, so that it is not counted; absent: none may. */
  readonly isExplained?: (row: Differing) => Promise<boolean>;
}

/** Rows of either side that are held at a time: their keys and digests, not their contents. */
const PAGE_ROWS = 2_000;

const keyColumn = z.object({ name: z.string() });
const digestRow = z.object({ key: z.array(z.string()), digest: z.string() });
const textRow = z.object({ row: z.string() });

/** Values of the columns of a primary key, as text. */
type Key = readonly string[];
type DigestRow = Readonly<z.infer<typeof digestRow>>;
/** Rows of the same stretch of keys on both sides. */
type Pages = readonly [live: readonly DigestRow[], replayed: readonly DigestRow[]];

/**
 * Compares two tables row for row, a page of their primary keys at a time. It sorts nothing and holds a page of keys and
 * digests, however large the tables and their rows are. Only the database decides which of two keys comes first: its
 * order of texts is not this program's.
 */
export async function compareTables(sides: Sides, shown: Shown): Promise<Compared> {
  const inOrder = async (): Promise<Compared> => await new Comparison(sides, await keyOf(sides.live), shown).run();
  const { live, replayed } = sides;
  return await withSettings(
    live.connection,
    BY_KEY,
    async () => await withSettings(replayed.connection, BY_KEY, inOrder),
  );
}

class Comparison {
  readonly #sides: Sides;
  readonly #columns: readonly string[];
  readonly #shown: Shown;
  #rows = 0;
  #differences = 0;

  constructor(sides: Sides, columns: readonly string[], shown: Shown) {
    this.#sides = sides;
    this.#columns = columns;
    this.#shown = shown;
  }

  async run(): Promise<Compared> {
    const { live, replayed } = this.#sides;
    for (let [after, more]: readonly [Key | null, boolean] = [null, true]; more;) {
      const pages: Pages = await Promise.all([this.#page(live, after, null), this.#page(replayed, after, null)]);
      const aligned: Pages = pages.some(isFull) ? await this.#aligned(pages, after) : pages;
      await this.#compare(aligned);
      [after, more] = [aligned.find(isFull)?.at(-1)?.key ?? null, pages.some(isFull)];
    }
    return { rows: this.#rows, differences: this.#differences };
  }

  /** Two pages that end with the same key, one of them full: the other side's rows up to there, and no more than a page. */
  async #aligned([live, replayed]: Pages, after: Key | null): Promise<Pages> {
    const sides = this.#sides;
    const [a, b] = [live.at(-1)?.key, replayed.at(-1)?.key];
    if (isFull(live) && isFull(replayed) && String(a) === String(b)) return [live, replayed];
    if (!isFull(live)) return [await this.#page(sides.live, after, b ?? null), replayed];
    const upTo = await this.#page(sides.replayed, after, a ?? null);
    // Its last key comes before that of the live page: the live page has to end there.
    if (isFull(upTo)) return [await this.#page(sides.live, after, upTo.at(-1)?.key ?? null), upTo];
    return [live, upTo];
  }

  async #page({ connection, table }: Side, after: Key | null, upTo: Key | null): Promise<readonly DigestRow[]> {
    return await connection.any(digestsInOrder(table, this.#columns, { after, upTo, limit: PAGE_ROWS }));
  }

  async #compare([live, replayed]: Pages): Promise<void> {
    this.#rows += live.length;
    const [inLive, inReplayed] = [digestsOf(live), digestsOf(replayed)];
    for (const { key, digest } of live) {
      if (inReplayed.get(nameOf(key)) !== digest) await this.#differs('only live', this.#sides.live, key);
    }
    for (const { key, digest } of replayed) {
      if (inLive.get(nameOf(key)) !== digest) await this.#differs('only replayed', this.#sides.replayed, key);
    }
  }

  async #differs(side: Difference['side'], of: Side, key: Key): Promise<void> {
    const { connection, table } = of;
    const named = Object.fromEntries(this.#columns.map((name, at) => [name, key[at] ?? '']));
    if ((await this.#shown.isExplained?.({ side: of, key: named })) === true) return;
    this.#differences++;
    if (this.#differences > this.#shown.max) return;
    const row = await connection.oneFirst(sql.type(textRow)`
      select t::text as row from ${sql.identifier([...table])} t where (${listOf(this.#columns)}) = (${valuesOf(key)})`);
    this.#shown.tell({ side, row });
  }
}

const isFull = (page: readonly DigestRow[]): boolean => page.length === PAGE_ROWS;
const nameOf = (key: Key): string => JSON.stringify(key);

function digestsOf(rows: readonly DigestRow[]): ReadonlyMap<string, string> {
  return new Map(rows.map(({ key, digest }) => [nameOf(key), digest]));
}

function listOf(columns: readonly string[]): ListSqlToken {
  return sql.join(
    columns.map((name) => sql.identifier([name])),
    sql.fragment`, `,
  );
}

function valuesOf(key: Key): ListSqlToken {
  return sql.join([...key], sql.fragment`, `);
}

/** Keys and digests of the rows between two keys, in the order of the keys. */
export function digestsInOrder(
  table: readonly [schema: string, name: string],
  columns: readonly string[],
  { after, upTo, limit }: { readonly after: Key | null; readonly upTo: Key | null; readonly limit: number },
): QuerySqlToken<typeof digestRow> {
  const list = listOf(columns);
  const texts = columns.map((name) => sql.fragment`${sql.identifier([name])}::text`);
  const conditions = [
    ...(after === null ? [] : [sql.fragment`(${list}) > (${valuesOf(after)})`]),
    ...(upTo === null ? [] : [sql.fragment`(${list}) <= (${valuesOf(upTo)})`]),
    sql.fragment`true`,
  ];
  return sql.type(digestRow)`
    select json_build_array(${sql.join(texts, sql.fragment`, `)}) as key,
      encode(sha256(convert_to(t::text, 'UTF8')), 'hex') as digest
    from ${sql.identifier([...table])} t where ${sql.join(conditions, sql.fragment` and `)} order by ${list} limit ${limit}`;
}

/** Columns of the primary key, in its order. */
async function keyOf({ connection, table: [schema, name] }: Side): Promise<readonly string[]> {
  const columns = await connection.anyFirst(sql.type(keyColumn)`
    select attname::text as name
    from pg_index join unnest(indkey::int2[]) with ordinality as part(number, place) on true
    join pg_attribute on attrelid = indrelid and attnum = part.number
    where indrelid = format('%I.%I', ${schema}::text, ${name}::text)::regclass and indisprimary order by place`);
  if (columns.length === 0) throw new Error(`${schema}.${name} has no primary key`);
  return columns;
}

import { sql } from 'slonik';
import type { DatabaseTransactionConnection } from 'slonik';
import { z } from 'zod';

/** A row's identity within its table: the tenant and what the table's other key columns say. */
export type DocumentKey = Readonly<Record<string, string>>;

/**
 * A table of documents: key columns, some columns taken out of the document for filters and order, and the document
 * itself. Its evolve functions are pure; a batch of commits costs one read and one write, however long it is.
 */
export interface DocumentTable<V> {
  readonly name: string;
  readonly keyColumns: readonly string[];
  /** Columns besides key and document, with their SQL types. */
  readonly columns: Readonly<Record<string, 'text' | 'int' | 'bigint'>>;
  readonly columnsOf: (view: V) => Readonly<Record<string, string | number | null>>;
}

interface Entry<V> {
  readonly key: DocumentKey;
  view: V | undefined;
  /** Begins in this batch. Should the batch be a repetition, the stored document is newer and stays. */
  readonly isNew: boolean;
  /** Position of the newest commit in the stored document; 0: there is none. */
  stored: number;
  /** The same with this batch; equal to `stored` while the batch has not touched it. */
  applied: number;
}

/**
 * Views of one batch: read once, changed in memory, written once. A document remembers the newest commit that it holds,
 * so that applying a commit again changes nothing.
 */
export class DocumentBatch<V> {
  readonly #table: DocumentTable<V>;
  readonly #schema: string;
  readonly #views = new Map<string, Entry<V>>();

  constructor(table: DocumentTable<V>, schema: string) {
    this.#table = table;
    this.#schema = schema;
  }

  /** Names a document that the batch may touch; call it for all of them before `load`. */
  want(key: DocumentKey): void {
    this.#name(key, false);
  }

  /** The same for one that begins in this batch: there is nothing to read. */
  begin(key: DocumentKey): void {
    this.#name(key, true);
  }

  #name(key: DocumentKey, isNew: boolean): void {
    const id = idOf(this.#table, key);
    if (!this.#views.has(id)) this.#views.set(id, { key, view: undefined, isNew, stored: 0, applied: 0 });
  }

  async load(transaction: DatabaseTransactionConnection): Promise<void> {
    const wanted = [...this.#views.values()].filter(({ isNew }) => !isNew);
    if (wanted.length === 0) return;
    const { keyColumns, name } = this.#table;
    const keys = JSON.stringify(wanted.map(({ key }) => key));
    const columns = keyColumns.map((column) => sql.identifier([column]));
    const definition = keyColumns.map((column) => sql.fragment`${sql.identifier([column])} text`);
    const row = z.object({ doc: z.unknown(), applied: z.int() }).and(z.record(z.string(), z.unknown()));
    const rows = await transaction.any(sql.type(row)`
      select ${sql.join(columns, sql.fragment`, `)}, doc, applied from ${sql.identifier([this.#schema, name])}
      where (${sql.join(columns, sql.fragment`, `)}) in (
        select ${sql.join(columns, sql.fragment`, `)} from json_to_recordset(${keys}) as wanted(${sql.join(definition, sql.fragment`, `)}))`);
    for (const found of rows) {
      const entry = this.#views.get(keyColumns.map((column) => `${String(found[column])}\0`).join(''));
      if (entry === undefined) continue;
      // Written by `save` from the same type.
      // oxlint-disable-next-line typescript/no-unsafe-type-assertion
      entry.view = found.doc as V;
      entry.stored = found.applied;
      entry.applied = found.applied;
    }
  }

  get(key: DocumentKey): V | undefined {
    return this.#views.get(idOf(this.#table, key))?.view;
  }

  /** Takes in one event of the commit at `position`. Undefined from `evolve`: there is no such document. */
  evolve(key: DocumentKey, position: number, evolve: (view: V | undefined) => V | undefined): void {
    const entry = this.#views.get(idOf(this.#table, key));
    if (entry === undefined) throw new Error(`a document of ${this.#table.name} was not asked for`);
    if (position <= entry.stored) return;
    entry.view = evolve(entry.view);
    entry.applied = position;
  }

  async save(transaction: DatabaseTransactionConnection): Promise<void> {
    const { name, keyColumns, columns, columnsOf } = this.#table;
    const rows = [...this.#views.values()].flatMap(({ key, view, stored, applied }) =>
      applied > stored && view !== undefined ? [{ ...key, ...columnsOf(view), applied, doc: view }] : [],
    );
    await upsert(transaction, {
      table: [this.#schema, name],
      key: keyColumns,
      columns: {
        ...Object.fromEntries(keyColumns.map((column) => [column, 'text'])),
        ...columns,
        applied: 'bigint',
        doc: 'jsonb',
      },
      newerBy: 'applied',
      rows,
    });
  }
}

function idOf<V>(table: DocumentTable<V>, key: DocumentKey): string {
  // Several times for each event; an array and its join cost five times as much.
  let id = '';
  for (const column of table.keyColumns) id += `${key[column]}\0`;
  return id;
}

export interface Upsert {
  readonly table: readonly [schema: string, name: string];
  readonly key: readonly string[];
  readonly columns: Readonly<Record<string, string>>;
  /** Replace a row that is there only if this column is higher; absent: always. */
  readonly newerBy?: string;
  readonly rows: readonly object[];
}

/** Writes rows set-based: one statement, whatever their number. A row that is there is replaced. */
export async function upsert(
  transaction: DatabaseTransactionConnection,
  { table, key, columns, newerBy, rows }: Upsert,
): Promise<void> {
  if (rows.length === 0) return;
  const names = Object.keys(columns);
  const identifiers = sql.join(
    names.map((name) => sql.identifier([name])),
    sql.fragment`, `,
  );
  const definition = names.map(
    (name) => sql.fragment`${sql.identifier([name])} ${sql.identifier([pgType(columns[name])])}`,
  );
  const others = names.filter((name) => !key.includes(name));
  const changes = others.map((name) => sql.fragment`${sql.identifier([name])} = excluded.${sql.identifier([name])}`);
  const onlyNewer =
    newerBy === undefined
      ? sql.fragment``
      : sql.fragment`where old.${sql.identifier([newerBy])} < excluded.${sql.identifier([newerBy])}`;
  await transaction.query(sql.unsafe`
    insert into ${sql.identifier([...table])} as old (${identifiers})
    select ${identifiers} from json_to_recordset(${storableJson(rows)}) as fresh(${sql.join(definition, sql.fragment`, `)})
    on conflict (${sql.join(
      key.map((name) => sql.identifier([name])),
      sql.fragment`, `,
    )})
    do update set ${sql.join(changes, sql.fragment`, `)} ${onlyNewer}`);
}

/** As text that Postgres can hold: what a model or a provider says may have a NUL or half a surrogate pair in it. */
export function storableText(text: string): string {
  return text.toWellFormed().replaceAll('\0', '\ufffd');
}

/** Refused by the database, one such character would park its whole commit, and with it the end of a turn. */
function storableJson(rows: readonly object[]): string {
  const json = JSON.stringify(rows);
  if (!/\\u(?:0000|d[89a-f])/.test(json)) return json;
  return JSON.stringify(rows, (_, value: unknown) => (typeof value === 'string' ? storableText(value) : value));
}

/** Type names as the catalogue spells them: a quoted alias such as "int" would not be found. */
function pgType(type: string | undefined): string {
  return type === 'int' ? 'int4' : type === 'bigint' ? 'int8' : (type ?? 'text');
}

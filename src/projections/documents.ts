import { sql } from 'slonik';
import type { DatabaseTransactionConnection, FragmentSqlToken } from 'slonik';
import { z } from 'zod';
import { inTurns } from '../lib/in-turns.ts';
import type { RowSeals } from '../streams/row-seals.ts';
import type { ProjectionTarget } from './projection.ts';
import { prepared } from './prepared.ts';

/** A row's identity within its table: the tenant and the table's other key columns. */
export type DocumentKey = Readonly<Record<string, string>>;

type Value = string | number | boolean | null | readonly string[];
type ColumnType = 'text' | 'text[]' | 'int' | 'bigint' | 'numeric' | 'boolean';

/** Names a text for filters, and says nothing without the tenant's key. */
export type Digest = (text: string) => string;

/**
 * A table of documents: key columns, some columns taken out of the document for filters and order, and the document
 * itself, sealed with the data key of its tenant. What a column holds outlives the key until its page is rewritten: ids
 * and numbers, and of what tenants wrote digests. Its evolve functions are pure; a batch of commits costs one read and
 * one write, however long it is.
 */
export interface DocumentTable<V> {
  readonly name: string;
  readonly keyColumns: readonly string[];
  /** Columns besides key and document, with their SQL types. */
  readonly columns: Readonly<Record<string, ColumnType>>;
  readonly columnsOf: (view: V, digest: Digest) => Readonly<Record<string, Value>>;
}

/** What a batch has made of a document; `before` is undefined for one that was not there. */
export interface Change<V> {
  readonly key: DocumentKey;
  readonly before: V | undefined;
  readonly after: V;
}

interface Entry<V> {
  readonly key: DocumentKey;
  /** As it was stored; unknown of one that begins in this batch. */
  before: V | undefined;
  view: V | undefined;
  /** Begins in this batch. If the batch is a repetition, the stored document is newer and stays. */
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
  readonly #seals: RowSeals;
  readonly #views = new Map<string, Entry<V>>();

  constructor(table: DocumentTable<V>, { schema, seals }: ProjectionTarget) {
    this.#table = table;
    this.#schema = schema;
    this.#seals = seals;
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
    if (!this.#views.has(id))
      this.#views.set(id, { key, before: undefined, view: undefined, isNew, stored: 0, applied: 0 });
  }

  async load(transaction: DatabaseTransactionConnection): Promise<void> {
    const wanted = [...this.#views.values()].filter(({ isNew }) => !isNew);
    if (wanted.length === 0) return;
    const { keyColumns, name } = this.#table;
    const keys = JSON.stringify(wanted.map(({ key }) => key));
    const columns = keyColumns.map((column) => sql.identifier([column]));
    const definition = keyColumns.map((column) => sql.fragment`${sql.identifier([column])} text`);
    const row = z.object({ doc: sealed, applied: z.int() }).and(z.record(z.string(), z.unknown()));
    const select = sql.type(row)`
      select ${sql.join(columns, sql.fragment`, `)}, doc, applied from ${sql.identifier([this.#schema, name])}
      where (${sql.join(columns, sql.fragment`, `)}) in (
        select ${sql.join(columns, sql.fragment`, `)} from json_to_recordset(${keys}) as wanted(${sql.join(definition, sql.fragment`, `)}))`;
    const rows = await transaction.any(prepared(`load ${this.#schema}.${name}`, select));
    for (const found of rows) {
      const entry = this.#views.get(keyColumns.map((column) => `${String(found[column])}\0`).join(''));
      if (entry === undefined) continue;
      const values = keyColumns.map((column) => entry.key[column] ?? '');
      entry.view = (await openDocument<V>(this.#seals, { table: name, key: values }, found.doc)) ?? undefined;
      entry.before = entry.view;
      entry.stored = found.applied;
      entry.applied = found.applied;
    }
  }

  /** The newest commit that the stored document holds; 0: there is none. */
  stored(key: DocumentKey): number {
    return this.#views.get(idOf(this.#table, key))?.stored ?? 0;
  }

  get(key: DocumentKey): V | undefined {
    return this.#views.get(idOf(this.#table, key))?.view;
  }

  /** Applies one event of the commit at `position`. Undefined from `evolve`: no such document. */
  evolve(key: DocumentKey, position: number, evolve: (view: V | undefined) => V | undefined): void {
    const entry = this.#views.get(idOf(this.#table, key));
    if (entry === undefined) throw new Error(`a document of ${this.#table.name} was not asked for`);
    if (position <= entry.stored) return;
    entry.view = evolve(entry.view);
    entry.applied = position;
  }

  /**
   * Returns what it has written. Sums over the rows of a table are kept by it, so a document of theirs that is named with
   * `begin` must not be there: where the batch may be a repetition, `want` reads it.
   */
  async save(transaction: DatabaseTransactionConnection): Promise<readonly Change<V>[]> {
    const { name, keyColumns, columns, columnsOf } = this.#table;
    const changes: Change<V>[] = [];
    const rows = [...this.#views.values()].flatMap(({ key, before, view, stored, applied }) => {
      if (applied <= stored || view === undefined) return [];
      const { tenant = '' } = key;
      const doc = sealDocument(this.#seals, { table: name, key: keyColumns.map((column) => key[column] ?? '') }, view);
      if (doc === null) return [];
      changes.push({ key, before, after: view });
      return [{ ...key, ...columnsOf(view, (text) => this.#seals.digest(tenant, text)), applied, doc }];
    });
    await upsert(transaction, {
      table: [this.#schema, name],
      key: keyColumns,
      columns: {
        ...Object.fromEntries(keyColumns.map((column) => [column, 'text'])),
        ...columns,
        applied: 'bigint',
        doc: 'bytea',
      },
      newerBy: 'applied',
      rows,
    });
    return changes;
  }
}

/** Where a document is: its table, and the values of its key in their order, the tenant first. */
export interface DocumentPlace {
  readonly table: string;
  readonly key: readonly string[];
}

/** A column of sealed bytes, as the database gives it. */
export const sealed = z.instanceof(Buffer);

/** Null: the tenant is erased. */
export function sealDocument(seals: RowSeals, place: DocumentPlace, document: unknown): Buffer | null {
  return seals.seal(place.key[0] ?? '', contextOf(place), Buffer.from(JSON.stringify(document)));
}

/** Null: the tenant is erased. @throws SealBrokenError, UnavailableError (streams) */
export async function openDocument<V>(seals: RowSeals, place: DocumentPlace, bytes: Uint8Array): Promise<V | null> {
  const plain = await seals.open(place.key[0] ?? '', contextOf(place), bytes);
  if (plain === null) return null;
  // Written by `sealDocument` from the same type, and without the key no other can be written.
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion
  return JSON.parse(plain.toString()) as V;
}

/** Those of a tenant's rows that can be read, in their order. @throws as `openDocument` */
export async function openDocuments<V>(
  seals: RowSeals,
  table: string,
  rows: readonly { readonly key: readonly string[]; readonly doc: Uint8Array }[],
): Promise<readonly V[]> {
  const documents: V[] = [];
  for await (const { key, doc } of inTurns(rows, rows[0]?.key[0] ?? '')) {
    const document = await openDocument<V>(seals, { table, key }, doc);
    if (document !== null) documents.push(document);
  }
  return documents;
}

function contextOf({ table, key }: DocumentPlace): string {
  return `row ${table} ${JSON.stringify(key)}`;
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
  /** By column. What a column of the type `bytea` has is bytes. */
  readonly rows: readonly object[];
}

/**
 * Writes rows set-based: one statement, whatever their number. A row that is there is replaced. All calls for a table name
 * the same columns, in one order.
 */
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
  const others = names.filter((name) => !key.includes(name));
  const changes = others.map((name) => sql.fragment`${sql.identifier([name])} = excluded.${sql.identifier([name])}`);
  const onlyNewer =
    newerBy === undefined
      ? sql.fragment``
      : sql.fragment`where old.${sql.identifier([newerBy])} < excluded.${sql.identifier([newerBy])}`;
  const insert = sql.unsafe`
    insert into ${sql.identifier([...table])} as old (${identifiers})
    select ${identifiers} from ${recordset(rows, columns, 'fresh')}
    on conflict (${sql.join(
      key.map((name) => sql.identifier([name])),
      sql.fragment`, `,
    )})
    ${changes.length === 0 ? sql.fragment`do nothing` : sql.fragment`do update set ${sql.join(changes, sql.fragment`, `)} ${onlyNewer}`}`;
  await transaction.query(prepared(`upsert ${table.join('.')}`, insert));
}

/**
 * Rows as a table of a statement, with these columns and types. Bytes go beside the JSON, those of all rows as one value
 * in the protocol's own form: in base64 within it Node encoded and scanned them, and Postgres read each of their
 * characters (docs/benchmark-results.md).
 */
export function recordset(
  rows: readonly object[],
  columns: Readonly<Record<string, string>>,
  name: string,
): FragmentSqlToken {
  const plain = Object.entries(columns).filter(([, type]) => type !== 'bytea');
  const bytes = Object.keys(columns).filter((column) => columns[column] === 'bytea');
  if (bytes.length === 0) return ofJson(rows, plain, name);
  const [parts, at]: [Uint8Array[], { from: number }] = [[], { from: 1 }];
  const placed = rows.map((row) => placing(row, bytes, { parts, at }));
  const places = bytes.flatMap((column): [string, string][] => [
    [fromOf(column), 'int'],
    [forOf(column), 'int'],
  ]);
  const all = sql.binary(Buffer.concat(parts));
  const selected = [
    ...plain.map(([column]) => sql.fragment`${sql.identifier([column])}`),
    ...bytes.map((column) => {
      const [from, length] = [sql.identifier([fromOf(column)]), sql.identifier([forOf(column)])];
      return sql.fragment`substring(${all}::bytea from ${from} for ${length}) as ${sql.identifier([column])}`;
    }),
  ];
  return sql.fragment`(
    select ${sql.join(selected, sql.fragment`, `)} from ${ofJson(placed, [...plain, ...places], 'placed')}) as ${sql.identifier([name])}`;
}

const fromOf = (column: string): string => `${column}_from`;
const forOf = (column: string): string => `${column}_for`;

/** The row with where its bytes are, from 1, in place of them. */
function placing(
  row: object,
  columns: readonly string[],
  { parts, at }: { readonly parts: Uint8Array[]; readonly at: { from: number } },
): object {
  const placed: Record<string, unknown> = { ...row };
  for (const column of columns) {
    const bytes = placed[column];
    if (!(bytes instanceof Uint8Array)) throw new Error(`the column ${column} has no bytes`);
    parts.push(bytes);
    placed[column] = undefined;
    placed[fromOf(column)] = at.from;
    placed[forOf(column)] = bytes.length;
    at.from += bytes.length;
  }
  return placed;
}

function ofJson(
  rows: readonly object[],
  columns: readonly (readonly [column: string, type: string])[],
  name: string,
): FragmentSqlToken {
  const definition = columns.map(
    ([column, type]) => sql.fragment`${sql.identifier([column])} ${sql.identifier([pgType(type)])}`,
  );
  return sql.fragment`json_to_recordset(${storableJson(rows)}) as ${sql.identifier([name])}(${sql.join(definition, sql.fragment`, `)})`;
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
const PG_TYPES: Readonly<Record<string, string>> = {
  ...{ int: 'int4', bigint: 'int8', numeric: 'numeric', boolean: 'bool', 'text[]': '_text' },
};

function pgType(type: string | undefined): string {
  return PG_TYPES[type ?? ''] ?? 'text';
}

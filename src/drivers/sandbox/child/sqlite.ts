import { decodeBytesToUtf8, defineCommand } from 'just-bash';
import type { CustomCommand } from 'just-bash';
import { compiled, factoryOf, freeMemory, instantiator, outside } from './emscripten.ts';
import type { Compiled, OnMemory } from './emscripten.ts';
import { normalized } from './tree.ts';
import { formatted, isMode } from './sqlite-output.ts';
import type { Format, Value } from './sqlite-output.ts';
import type { WorkspaceFs } from './workspace-fs.ts';

const OUTPUT_CHARACTERS_MAX = 16_777_216;
const USAGE =
  'usage: sqlite3 [-csv|-json|-line|-column|-list|-markdown|-tabs] [-header] [-separator SEP] [-bail] FILE [SQL]\n';

interface Statement {
  step(): boolean;
  get(): Value[];
  getColumnNames(): string[];
  free(): void;
}

interface Database {
  run(sql: string): void;
  iterateStatements(sql: string): Iterator<Statement> & { getRemainingSQL(): string };
  export(): Uint8Array;
  close(): void;
}

interface Sqlite {
  readonly Database: new (bytes?: Uint8Array) => Database;
}

let parts: { create: ReturnType<typeof factoryOf<Sqlite>>; module: Compiled } | null = null;

/** `sqlite3`: SQLite as WebAssembly. A database is read as a whole, and written as a whole when all of it has run. */
export function sqliteCommand(fs: WorkspaceFs, bounds: { memoryMiB: number; onMemory: OnMemory }): CustomCommand {
  return defineCommand('sqlite3', async (arguments_, context) => {
    const given = parsed(arguments_);
    if (typeof given === 'string') return { stdout: '', stderr: given, exitCode: 1 };
    const sql = given.sql ?? decodeBytesToUtf8(context.stdin);
    const path =
      given.file === ':memory:'
        ? null
        : normalized(given.file.startsWith('/') ? given.file : `${context.cwd}/${given.file}`);
    return await outside(async () => {
      try {
        return await answered({ ...given, sql, path }, fs, bounds);
      } catch (error) {
        const words = error instanceof Error ? error.message : 'failed';
        if (/allocation|out of memory/i.test(words)) return bounds.onMemory();
        return { stdout: '', stderr: `Error: ${words}\n`, exitCode: 1 };
      }
    });
  });
}

interface Given {
  readonly file: string;
  readonly sql: string | null;
  readonly format: Format;
  readonly isBail: boolean;
  readonly isReadOnly: boolean;
}

function parsed(arguments_: readonly string[]): Given | string {
  const format: Format = { mode: 'list', isHeaded: false, separator: null, nothing: '' };
  const [rest, flags] = [[...arguments_], new Set<string>()];
  while (rest[0]?.startsWith('-') === true) {
    const option = (rest.shift() ?? '').replace(/^--?/, '');
    if (isMode(option)) format.mode = option;
    else if (option === 'header' || option === 'noheader') format.isHeaded = option === 'header';
    else if (option === 'separator') format.separator = rest.shift() ?? '|';
    else if (option === 'nullvalue') format.nothing = rest.shift() ?? '';
    else if (['bail', 'batch', 'readonly'].includes(option)) flags.add(option);
    else return `sqlite3: unknown option: -${option}\n${USAGE}`;
  }
  const [file = ':memory:', ...sql] = rest;
  const texts = { file: file || ':memory:', sql: sql.length === 0 ? null : sql.join('\n') };
  return { ...texts, format, isBail: flags.has('bail'), isReadOnly: flags.has('readonly') };
}

interface Asked extends Given {
  readonly sql: string;
  readonly path: string | null;
}

async function answered(asked: Asked, fs: WorkspaceFs, bounds: { memoryMiB: number; onMemory: OnMemory }) {
  const sqlite = await started(bounds);
  const file = asked.path === null ? undefined : fs.tree.find(asked.path);
  if (file?.kind === 'directory') throw new Error(`unable to open database "${asked.file}"`);
  const before = file === undefined ? undefined : fs.load(file).slice(0, file.size);
  const database = new sqlite.Database(before);
  bound(database, fs.tree.limits.fileBytes, bounds.memoryMiB);
  const shell = new SqliteShell(database, asked);
  shell.run(asked.sql);
  const after = asked.path === null || asked.isReadOnly ? null : database.export();
  if (asked.path !== null && after !== null && !isSame(before, after)) fs.writeFileSync(asked.path, after);
  database.close();
  return { stdout: shell.output, stderr: shell.errors, exitCode: shell.errors === '' ? 0 : 1 };
}

async function started({ memoryMiB, onMemory }: { memoryMiB: number; onMemory: OnMemory }): Promise<Sqlite> {
  freeMemory();
  parts ??= { create: factoryOf<Sqlite>('sql-wasm.js'), module: await compiled('sql-wasm.wasm') };
  return await parts.create()({
    instantiateWasm: instantiator(parts.module, memoryMiB, onMemory),
    print: () => undefined,
    printErr: () => undefined,
  });
}

/** A database is in memory twice, once as a file of the program; the heap of SQLite cannot be given more by a statement. */
function bound(database: Database, fileBytes: number, memoryMiB: number): void {
  database.run(`PRAGMA hard_heap_limit = ${Math.floor(memoryMiB / 2) * 1_048_576}`);
  database.run(`PRAGMA max_page_count = ${Math.ceil(fileBytes / PAGE_BYTES) + 1}`);
}
const PAGE_BYTES = 4_096;

function isSame(a: Uint8Array | undefined, b: Uint8Array): boolean {
  return Buffer.compare(a ?? new Uint8Array(0), b) === 0;
}

const TABLES = "SELECT name FROM sqlite_schema WHERE type IN ('table','view') AND name NOT LIKE 'sqlite_%' ORDER BY 1";
const SCHEMA = "SELECT sql || ';' FROM sqlite_schema WHERE sql IS NOT NULL";

/** Statements and the dot commands that scripts use, one after the other. */
class SqliteShell {
  readonly #database: Database;
  readonly #isBail: boolean;
  readonly #format: Format;
  output = '';
  errors = '';
  #isEnded = false;

  constructor(database: Database, { format, isBail }: Given) {
    this.#database = database;
    this.#format = { ...format };
    this.#isBail = isBail;
  }

  run(sql: string): void {
    let statements = '';
    for (const line of sql.split('\n')) {
      if (!line.startsWith('.') || !isBetween(statements)) {
        statements += `${line}\n`;
        continue;
      }
      this.#statements(statements);
      statements = '';
      if (!this.#isEnded) this.#dot(line.slice(1).trim().split(/\s+/));
    }
    this.#statements(statements);
  }

  #dot([name = '', value = '', ...more]: string[]): void {
    if (name === 'tables') this.#statements(TABLES);
    else if (name === 'schema')
      this.#statements(value === '' ? SCHEMA : `${SCHEMA} AND tbl_name = '${value.replaceAll("'", "''")}'`);
    else if (name === 'headers' || name === 'header') this.#format.isHeaded = value === 'on';
    else if (name === 'mode' && isMode(value)) this.#format.mode = value;
    else if (name === 'separator' && more.length === 0) this.#format.separator = value.replace(/^"(.*)"$/, '$1');
    else if (name === 'quit' || name === 'exit') this.#isEnded = true;
    else this.#fail(`unknown command or invalid arguments: "${name}"`);
  }

  #statements(sql: string): void {
    if (this.#isEnded || sql.trim() === '') return;
    const statements = this.#database.iterateStatements(sql);
    try {
      for (let next = statements.next(); next.done !== true && !this.#isEnded; next = statements.next())
        this.#one(next.value);
    } catch (error) {
      if (error instanceof Error && /allocation|out of memory/i.test(error.message)) throw error;
      this.#fail(error instanceof Error ? error.message : 'failed');
    }
  }

  #one(statement: Statement): void {
    const columns = statement.getColumnNames();
    const rows: Value[][] = [];
    let characters = 0;
    while (statement.step()) {
      const row = statement.get();
      characters += row.reduce<number>((sum, value) => sum + lengthOf(value), ROW_CHARACTERS);
      if (characters > OUTPUT_CHARACTERS_MAX) throw new Error('the result is too long; select less');
      rows.push(row);
    }
    this.output += formatted(columns, rows, this.#format);
    if (this.output.length > OUTPUT_CHARACTERS_MAX) throw new Error('the output is too long; select less');
  }

  #fail(words: string): void {
    this.errors += `Error: ${words}\n`;
    // As sqlite3 does when it is given a text: what follows a fault is not run with -bail.
    if (this.#isBail) this.#isEnded = true;
  }
}

/** What a row costs in memory, besides its texts. */
const ROW_CHARACTERS = 64;

function lengthOf(value: Value): number {
  return typeof value === 'string' || value instanceof Uint8Array ? value.length : 16;
}

function isBetween(statements: string): boolean {
  return statements.trim() === '' || statements.trimEnd().endsWith(';');
}

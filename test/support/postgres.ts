import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client } from 'pg';
import { startPostgres } from '#src/embedded/postgres.ts';
import type { EmbeddedServer } from '#src/embedded/nats-server.ts';
import { migrate } from '#src/projections/read-store/migrate.ts';
import { openReadStore } from '#src/projections/read-store/pool.ts';
import type { ReadStore, Statement } from '#src/projections/read-store/pool.ts';
import { putCluster } from './cluster.ts';
import { until } from './wait-until.ts';

const TEMPLATE = 'migrated';

/** A Postgres of its own for one test file; each test takes a database of its own from it. */
export class TestPostgres implements AsyncDisposable {
  /** Its data lies somewhere below. */
  readonly directory: string;
  readonly #server: EmbeddedServer;
  #made = 0;

  private constructor(directory: string, server: EmbeddedServer) {
    this.directory = directory;
    this.#server = server;
  }

  static async start(): Promise<TestPostgres> {
    const directory = await mkdtemp(join(tmpdir(), 'agent-host-postgres-'));
    await putCluster(directory);
    const postgres = new TestPostgres(directory, await startPostgres({ directory, report: () => undefined }));
    // Its tables are there already where the cluster was copied.
    await postgres.query(`create database ${TEMPLATE} template agent_host`);
    await migrate(postgres.#urlOf(TEMPLATE));
    return postgres;
  }

  /** A database that holds nothing. */
  async empty(): Promise<string> {
    return await this.#create('template1');
  }

  /** A database with the tables of the read models: a copy of one that was migrated, which is faster than migrating. */
  async migrated(): Promise<TestDatabase> {
    return new TestDatabase(await this.#create(TEMPLATE));
  }

  /** As an operator would who takes the wrong one: with whoever is connected to it. */
  async drop(database: TestDatabase): Promise<void> {
    await this.query(`drop database ${new URL(database.url).pathname.slice(1)} with (force)`);
  }

  /** A statement in the server's own database. */
  async query(text: string): Promise<unknown[]> {
    return await query(this.#server.url, text);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#server.stop();
    await rm(this.directory, { recursive: true, force: true });
  }

  async #create(template: string): Promise<string> {
    const name = `test_${++this.#made}`;
    await this.query(`create database ${name} template ${template}`);
    return this.#urlOf(name);
  }

  #urlOf(database: string): string {
    const url = new URL(this.#server.url);
    url.pathname = `/${database}`;
    return url.href;
  }
}

/** Rows of tables as text, in a fixed order: what two databases must have in common to be equal. */
export type Rows = Readonly<Record<string, readonly string[]>>;

export class TestDatabase implements AsyncDisposable {
  readonly url: string;
  /** Statements of all its pools so far. */
  statements = 0;
  readonly #pools: ReadStore[] = [];

  constructor(url: string) {
    this.url = url;
  }

  async pool(maximumConnections = 5, told?: (statement: Statement) => void): Promise<ReadStore> {
    const onStatement = (statement: Statement): void => {
      this.statements += 1;
      told?.(statement);
    };
    const pool = await openReadStore({
      url: this.url,
      maximumConnections,
      onStatement,
      leavesNothing: true,
      prepares: true,
    });
    this.#pools.push(pool);
    return pool;
  }

  async query<R = unknown>(text: string, values: readonly unknown[] = []): Promise<R[]> {
    return (await query(this.url, text, values)) as R[];
  }

  async rows(schema: string, tables: readonly string[]): Promise<Rows> {
    const dump: Record<string, string[]> = {};
    for (const table of tables) {
      const rows = await this.query<{ row: string }>(`select t::text as row from ${schema}.${table} t order by 1`);
      dump[table] = rows.map(({ row }) => row);
    }
    return dump;
  }

  /** Ends connections as an operator would: those that hold an advisory lock, or all but the one that asks. */
  async terminate(which: 'lock holders' | 'all'): Promise<number> {
    const holders = `pid in (select pid from pg_locks where locktype = 'advisory' and granted)`;
    const ended = await this.query(`
      select pg_terminate_backend(pid) from pg_stat_activity
      where datname = current_database() and pid <> pg_backend_pid() ${which === 'all' ? '' : `and ${holders}`}`);
    return ended.length;
  }

  /** Kills the server process of a connection: Postgres ends all others with it, and recovers as after a crash. */
  async crash(): Promise<void> {
    const client = new Client({ connectionString: this.url });
    client.on('error', () => undefined);
    await client.connect();
    const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid');
    process.kill(rows[0]?.pid ?? NaN, 'SIGKILL');
    await client.end().catch(() => undefined);
    await until('Postgres has recovered', async () => await this.query('select 1').catch(() => false));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const pool of this.#pools.splice(0)) await pool.end().catch(() => undefined);
  }
}

async function query(url: string, text: string, values: readonly unknown[] = []): Promise<unknown[]> {
  const client = new Client({ connectionString: url });
  client.on('error', () => undefined);
  await client.connect();
  try {
    return (await client.query<Record<string, unknown>>(text, values.length === 0 ? undefined : [...values])).rows;
  } finally {
    await client.end();
  }
}

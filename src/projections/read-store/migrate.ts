import { readdir, readFile } from 'node:fs/promises';
import { Client } from 'pg';

const DIRECTORY = new URL('../../../migrations/', import.meta.url);
const LOCK = 7_070_001;
const CONNECT_MS = 5_000;

/** Conditions of Postgres (SQLSTATE). Two processes that make the same database meet the last one, too. */
const NO_SUCH_DATABASE = '3D000';
const MAY_NOT = '42501';
const DUPLICATE_DATABASE = '42P04';
const UNIQUE_VIOLATION = '23505';

/** The database was made by a newer version of this program. */
export class NewerSchemaError extends Error {}

/**
 * Makes the database where it is missing and may be made, and brings its schema up to date: numbered SQL files, forward
 * only, each once and whole. Safe to run from many processes at once: they queue at an advisory lock, and all but the
 * first find nothing to do.
 * It uses the driver itself, because a file of several statements is no tagged template.
 */
export async function migrate(url: string): Promise<void> {
  const client = await connected(url);
  try {
    await client.query('begin');
    await client.query('select pg_advisory_xact_lock($1)', [LOCK]);
    await client.query(`create table if not exists public.migration
      (number int primary key, name text not null, applied_at timestamptz not null default now())`);
    const { rows } = await client.query<{ number: number }>('select number from public.migration');
    const applied = new Set(rows.map(({ number }) => number));
    const files = (await readdir(DIRECTORY)).filter((name) => /^\d{4}-.*\.sql$/.test(name)).toSorted();
    refuseNewer(applied, files);
    for (const name of files) {
      if (applied.has(numberOf(name))) continue;
      await client.query(await readFile(new URL(name, DIRECTORY), 'utf8'));
      await client.query('insert into public.migration (number, name) values ($1, $2)', [numberOf(name), name]);
    }
    await client.query('commit');
  } finally {
    // Without a commit, the end of the connection rolls everything back.
    await client.end();
  }
}

async function connected(url: string): Promise<Client> {
  try {
    return await open(url);
  } catch (error) {
    if (stateOf(error) !== NO_SUCH_DATABASE) throw error;
    await createDatabase(url, error);
    return await open(url);
  }
}

async function open(url: string): Promise<Client> {
  const client = new Client({ connectionString: url, connectionTimeoutMillis: CONNECT_MS });
  await client.connect();
  return client;
}

/** By way of the database that every server has. What is in it can all be read from the log again. */
async function createDatabase(url: string, missing: unknown): Promise<void> {
  const server = new URL(url);
  const name = decodeURIComponent(server.pathname.slice(1));
  server.pathname = '/postgres';
  const client = await open(server.href);
  try {
    await client.query(`create database ${client.escapeIdentifier(name)}`);
  } catch (error) {
    const state = stateOf(error);
    // Whoever may not make databases is told which one is missing; what another process has made is there.
    if (state === MAY_NOT) throw missing;
    if (state !== DUPLICATE_DATABASE && state !== UNIQUE_VIOLATION) throw error;
  } finally {
    await client.end();
  }
}

function stateOf(error: unknown): unknown {
  return error instanceof Error && 'code' in error ? error.code : undefined;
}

function refuseNewer(applied: ReadonlySet<number>, files: readonly string[]): void {
  const newest = Math.max(0, ...files.map(numberOf));
  const beyond = applied.values().find((number) => number > newest);
  if (beyond === undefined) return;
  throw new NewerSchemaError(
    `The database has migration ${beyond}, this version knows up to ${newest}. Start a newer version of the Host.`,
  );
}

function numberOf(name: string): number {
  return Number(name.slice(0, 4));
}

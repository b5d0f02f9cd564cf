import { readdir, readFile } from 'node:fs/promises';
import type { Client } from 'pg';
import { installed } from '../../lib/installation.ts';
import { withConnection } from './connection.ts';

const DIRECTORY = installed('migrations/');
const LOCK = 7_070_001;

/** The database was made by a newer version of this program. */
export class NewerSchemaError extends Error {}

/**
 * Brings the schema up to date: numbered SQL files, forward only, each once and whole. Safe to run from many processes
 * at once: they queue at an advisory lock, and all but the first find nothing to do.
 */
export async function migrate(url: string): Promise<void> {
  // Without a commit, the end of the connection rolls everything back.
  await withConnection(url, async (client) => {
    await client.query('begin');
    await client.query('select pg_advisory_xact_lock($1)', [LOCK]);
    await applyAll(client);
    await client.query('commit');
  });
}

async function applyAll(client: Client): Promise<void> {
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
}

/** Whether the database has been used by a Host. @throws when it cannot be reached */
export async function isMigrated(url: string): Promise<boolean> {
  return await withConnection(url, async (client) => {
    const { rows } = await client.query<{ found: boolean }>(
      "select to_regclass('public.migration') is not null as found",
    );
    return rows[0]?.found === true;
  });
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

import { readdir, readFile } from 'node:fs/promises';
import type { Client } from 'pg';
import { backoffMs, delay } from '../../lib/backoff.ts';
import { installed } from '../../lib/installation.ts';
import { SCHEMAS } from '../schemas.ts';
import { withConnection } from './connection.ts';

const DIRECTORY = installed('migrations/');
const LOCK = 7_070_001;

/**
 * From this number on migrations only add, and are noted in a table of their own: versions before 0.12 refuse to start on a
 * database with a number that they do not know in `public.migration`, but these do not concern them.
 */
const FIRST_ADDITION = 9;

/** How long a statement waits for a lock at most, ms: others that want the same lock meanwhile wait behind it. */
const LOCK_MS = 2_000;
/** Between two attempts, so that waiting statements get their turn. */
const PAUSE_MS = { baseMs: 250, capMs: 5_000 };
const WITHIN_MS = 60_000;
/** Who only looks waits for no lock, and not for a database that has stopped answering. */
const ANSWER_MS = 10_000;

/** The database was made by a newer version of this program, which has removed what this one uses. */
export class NewerSchemaError extends Error {}

/** A lock that the migrations need is held elsewhere for too long. */
export class MigrationBlockedError extends Error {}

export interface MigrateOptions {
  /** Called for each file that was applied. */
  readonly onApplied?: (name: string) => void;
  /** How long locks are tried for, ms. */
  readonly withinMs?: number;
  readonly signal?: AbortSignal;
}

/**
 * Brings the schema up to date: numbered SQL files, forward only, each once and whole. Safe to run from many processes
 * at once: they queue at an advisory lock, and all but the first find nothing to do. No lock is waited for long at a
 * time: nodes of the previous version keep using the same tables.
 * @throws NewerSchemaError, MigrationBlockedError, or what says that the database cannot be used
 */
export async function migrate(url: string, options: MigrateOptions = {}): Promise<void> {
  const { withinMs = WITHIN_MS, signal } = options;
  const deadline = performance.now() + withinMs;
  for (let blocked = 1; ; blocked++) {
    try {
      return await withConnection(url, async (client) => await applyAll(client, options));
    } catch (cause) {
      if (!isBlocked(cause)) throw cause;
      const pauseMs = backoffMs(blocked, PAUSE_MS);
      if (signal?.aborted === true || performance.now() + pauseMs >= deadline) {
        const message = `A lock that the migrations need was not to be had within ${withinMs / 1000} s`;
        throw new MigrationBlockedError(`${message}; end what holds it (a backup, a long transaction) and try again.`, {
          cause,
        });
      }
      await delay(pauseMs, signal);
    }
  }
}

async function applyAll(client: Client, { onApplied = () => undefined }: MigrateOptions): Promise<void> {
  const files = await migrations();
  const noted = await inTransaction(client, async () => {
    await client.query(`create table if not exists public.migration
      (number int primary key, name text not null, applied_at timestamptz not null default now())`);
    await client.query(`create table if not exists public.addition
      (number int primary key, name text not null, removes text[] not null, applied_at timestamptz not null default now())`);
    return await readNoted(client);
  });
  refuseNewer(noted, files);
  // Most starts find all of them applied, and need not ask of each.
  for (const name of files.filter((file) => !isNoted(noted, file))) {
    // One at a time: what one has locked is free again before the next waits for its own.
    const applied = await inTransaction(client, async () => await apply(client, name, files));
    if (applied) onApplied(name);
  }
}

async function apply(client: Client, name: string, files: readonly string[]): Promise<boolean> {
  const noted = await readNoted(client);
  refuseNewer(noted, files);
  if (isNoted(noted, name)) return false;
  const text = await readFile(new URL(name, DIRECTORY), 'utf8');
  await client.query(text);
  if (numberOf(name) < FIRST_ADDITION)
    await client.query('insert into public.migration (number, name) values ($1, $2)', [numberOf(name), name]);
  else
    await client.query('insert into public.addition (number, name, removes) values ($1, $2, $3)', [
      ...[numberOf(name), name],
      removedBy(text),
    ]);
  return true;
}

const isNoted = (noted: readonly Noted[], file: string): boolean =>
  noted.some(({ number }) => number === numberOf(file));

/** Without a commit, the end of the connection rolls everything back. */
async function inTransaction<T>(client: Client, work: () => Promise<T>): Promise<T> {
  await client.query('begin');
  await client.query(`set local lock_timeout = ${LOCK_MS}`);
  await client.query('select pg_advisory_xact_lock($1)', [LOCK]);
  const result = await work();
  await client.query('commit');
  return result;
}

/**
 * Whether all migrations of this version are applied; changes nothing. Refuses a database from which newer versions have
 * removed something that this one reads. What needs a migration that is missing is not available until a projector, or
 * `agent-host migrate`, has applied it.
 * @throws NewerSchemaError, or what says that the database cannot be used
 */
export async function checkSchema(url: string): Promise<boolean> {
  const files = await migrations();
  const look = async (client: Client): Promise<boolean> => {
    const noted = await readNoted(client);
    refuseNewer(noted, files);
    return files.every((file) => isNoted(noted, file));
  };
  return await withConnection(url, look, { answerMs: ANSWER_MS });
}

/** Whether the database has been used by a Host. @throws when it cannot be reached */
export async function isMigrated(url: string): Promise<boolean> {
  return await withConnection(url, async (client) => await hasTable(client, 'public.migration'));
}

/** Files of this version, in their order. */
async function migrations(): Promise<readonly string[]> {
  return (await readdir(DIRECTORY)).filter((name) => /^\d{4}-.*\.sql$/.test(name)).toSorted();
}

/** What the files of this version say, in their order. */
export async function migrationTexts(): Promise<readonly string[]> {
  return await Promise.all((await migrations()).map(async (name) => await readFile(new URL(name, DIRECTORY), 'utf8')));
}

/** The schemas and tables that a migration says it removes: `-- removes: <names>, unused since release <version>`. */
export function removedBy(text: string): readonly string[] {
  const removals = [...text.matchAll(/^-- removes: (.+), unused since release \d+\.\d+/gm)];
  return removals.flatMap(([, names = '']) => names.split(',').map((name) => name.trim()));
}

interface Noted {
  readonly number: number;
  /** Null: noted where any number counts. */
  readonly removes: readonly string[] | null;
}

async function readNoted(client: Client): Promise<readonly Noted[]> {
  const noted: Noted[] = [];
  if (await hasTable(client, 'public.migration')) {
    const { rows } = await client.query<{ number: number }>('select number from public.migration');
    noted.push(...rows.map(({ number }) => ({ number, removes: null })));
  }
  if (await hasTable(client, 'public.addition')) {
    const { rows } = await client.query<{ number: number; removes: string[] }>(
      'select number, removes from public.addition',
    );
    noted.push(...rows);
  }
  return noted;
}

async function hasTable(client: Client, name: string): Promise<boolean> {
  const { rows } = await client.query<{ found: boolean }>('select to_regclass($1) is not null as found', [name]);
  return rows[0]?.found === true;
}

function refuseNewer(noted: readonly Noted[], files: readonly string[]): void {
  const newest = Math.max(0, ...files.map(numberOf));
  const used: readonly string[] = Object.values(SCHEMAS);
  const isUsed = (name: string): boolean => used.includes(name.split('.')[0] ?? '');
  const beyond = noted.find(({ number, removes }) => number > newest && (removes === null || removes.some(isUsed)));
  if (beyond === undefined) return;
  throw new NewerSchemaError(
    `The database has migration ${beyond.number}, this version knows up to ${newest}. Start a newer version of the Host.`,
  );
}

/** Lock timeouts and deadlocks: nothing was changed, and another attempt may find the lock free. */
function isBlocked(error: unknown): boolean {
  return error instanceof Error && 'code' in error && (error.code === '55P03' || error.code === '40P01');
}

function numberOf(name: string): number {
  return Number(name.slice(0, 4));
}

import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inject } from 'vitest';
import { startPostgres } from '#src/embedded/postgres.ts';
import { runCommand } from '#src/embedded/run-command.ts';
import { migrate } from '#src/projections/read-store/migrate.ts';

declare module 'vitest' {
  export interface ProvidedContext {
    /** The directory of a stopped Postgres whose database has the tables of the read models; null: none was made. */
    cluster: string | null;
  }
}

/** What a Postgres that does not run consists of. */
const PARTS = ['postgres', 'postgres-password'];
const COPY_MS = 60_000;

/**
 * Makes the cluster that temporary directories of a project begin with. Returns its directory: the caller removes it.
 * Null where root's Postgres has to keep its data elsewhere, by the name of its directory.
 */
export async function makeCluster(): Promise<string | null> {
  const directory = await mkdtemp(join(tmpdir(), 'agent-host-cluster-'));
  const postgres = await startPostgres({ directory, report: () => undefined });
  await migrate(postgres.url);
  await postgres.stop();
  if (existsSync(join(directory, 'postgres/data'))) return directory;
  await rm(directory, { recursive: true, force: true });
  return null;
}

/**
 * Puts a copy of the project's cluster into a directory, where Postgres then starts as after a stop: to make one is a
 * third of what a first start costs. Nothing is put there where the project has none.
 */
export async function putCluster(directory: string): Promise<void> {
  // Not there at all in a project without a set-up that provides it.
  const cluster: string | null | undefined = inject('cluster');
  if (cluster === null || cluster === undefined) return;
  // Not by Node: it would make root the owner.
  const parts = PARTS.map((part) => join(cluster, part));
  const { code, stderr } = await runCommand('cp', ['-pR', ...parts, directory], { timeoutMs: COPY_MS });
  if (code !== 0) throw new Error(`the cluster could not be copied: ${stderr}`);
}

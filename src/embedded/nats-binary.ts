import { constants } from 'node:fs';
import { access, chmod, copyFile, mkdir, mkdtemp, readdir, rename, rm } from 'node:fs/promises';
import { homedir } from 'node:os';
import { delimiter, isAbsolute, join } from 'node:path';
import { StartError } from '../lib/start-error.ts';
import { tryClaim } from './claim.ts';
import type { Claim } from './claim.ts';
import { fetchFromDebian, fetchRelease } from './nats-fetch.ts';
import type { Fetched, FetchContext } from './nats-fetch.ts';
import { machineEnvironment, runCommand } from './run-command.ts';
import { compareVersions, formatVersion, parseVersion } from './versions.ts';
import type { Version } from './versions.ts';
import { waitUntil } from './wait-until.ts';

/** The oldest nats-server that does what the log needs; older ones accept its options and silently ignore them. */
export const REQUIRED_NATS: Version = { numbers: [2, 12, 0], preRelease: undefined };

/** A nats-server that is new enough. */
export interface NatsBinary {
  readonly path: string;
  readonly version: string;
}

/** Where to look. `env` gives NATS_SERVER_BIN, PATH, XDG_CACHE_HOME and HOME. */
export interface FindNatsOptions {
  readonly report: (line: string) => void;
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** The network sources in order; tests omit them. */
  readonly sources?: readonly NatsSource[];
}

/** A place to fetch a nats-server from. */
export interface NatsSource {
  readonly name: string;
  readonly fetch: (context: FetchContext) => Promise<Fetched>;
}

const SOURCES: readonly NatsSource[] = [
  { name: 'the official release', fetch: fetchRelease },
  { name: 'the Debian archive', fetch: fetchFromDebian },
];
/** Longer than every source together can take. */
const OTHER_FETCH_MS = 420_000;

/**
 * Finds nats-server: NATS_SERVER_BIN, else one on PATH, else the user's cache, else a fetch into that cache.
 * Throws StartError when NATS_SERVER_BIN is unusable or too old, or with the list of what was tried.
 */
export async function findNatsServer(options: FindNatsOptions): Promise<NatsBinary> {
  const env = options.env ?? machineEnvironment();
  const given = env['NATS_SERVER_BIN'];
  if (given !== undefined && given !== '') return requireRecent(given);
  const tried: string[] = [];
  const onPath = await findOnPath(env['PATH'] ?? '', tried);
  if (onPath !== undefined) return onPath;
  const cache = cacheDirectory(env);
  const cached = await findInCache(cache);
  if (cached !== undefined) return cached;
  tried.push(`the cache ${cache}: none`);
  return fetchIntoCache(cache, options.sources ?? SOURCES, tried, options.report);
}

/** Reads the version of a server by running it. Throws StartError when it does not run or is too old. */
export async function requireRecent(path: string): Promise<NatsBinary> {
  const look = await versionOf(path);
  if (typeof look === 'string') {
    throw new StartError(
      `the nats-server ${path} does not run (${look}); set NATS_SERVER_BIN to one that does, version ${formatVersion(REQUIRED_NATS)} or newer`,
    );
  }
  if (compareVersions(look, REQUIRED_NATS) < 0) throw tooOld(path, formatVersion(look));
  return { path, version: formatVersion(look) };
}

/** The error for a server that is too old, however its version was found out. */
export function tooOld(what: string, version: string): StartError {
  return new StartError(
    `nats-server ${version} (${what}) is too old, ${formatVersion(REQUIRED_NATS)} or newer is required; set NATS_SERVER_BIN to a newer one`,
  );
}

async function versionOf(path: string): Promise<Version | string> {
  const result = await runCommand(path, ['--version'], { timeoutMs: 10_000 });
  if (result.failure !== undefined) return result.failure;
  return parseVersion(result.stdout) ?? `it printed no version: ${result.stdout.trim().slice(0, 80)}`;
}

function cacheDirectory(env: Readonly<Record<string, string | undefined>>): string {
  const configured = env['XDG_CACHE_HOME'];
  const home = env['HOME'];
  const root = configured !== undefined && isAbsolute(configured) ? configured : join(home || homedir(), '.cache');
  return join(root, 'agent-runtime-host', 'nats-server');
}

async function findOnPath(path: string, tried: string[]): Promise<NatsBinary | undefined> {
  const before = tried.length;
  for (const directory of path.split(delimiter).filter((part) => isAbsolute(part))) {
    const candidate = join(directory, 'nats-server');
    if (!(await isExecutable(candidate))) continue;
    const look = await versionOf(candidate);
    if (typeof look !== 'string' && compareVersions(look, REQUIRED_NATS) >= 0) {
      return { path: candidate, version: formatVersion(look) };
    }
    tried.push(`${candidate}: ${typeof look === 'string' ? look : `too old (${formatVersion(look)})`}`);
  }
  if (tried.length === before) tried.push('PATH: none');
  return undefined;
}

/** What is there was run before it was placed: to run it once more for its version would be a tenth of what a start takes. */
async function findInCache(cache: string): Promise<NatsBinary | undefined> {
  const versions: Version[] = [];
  for (const name of await readdir(cache).catch(() => [])) {
    const version = /^\d+\.\d+\.\d+/.test(name) ? parseVersion(name) : undefined;
    if (version !== undefined && compareVersions(version, REQUIRED_NATS) >= 0) versions.push(version);
  }
  for (const version of versions.sort((left, right) => compareVersions(right, left))) {
    const path = join(cache, formatVersion(version), 'nats-server');
    if (await isExecutable(path)) return { path, version: formatVersion(version) };
  }
  return undefined;
}

async function fetchIntoCache(
  cache: string,
  sources: readonly NatsSource[],
  tried: string[],
  report: (line: string) => void,
): Promise<NatsBinary> {
  await mkdir(cache, { recursive: true, mode: 0o700 }).catch((error: unknown) => {
    throw new StartError(`${cache} cannot be made (${String(error)}); set XDG_CACHE_HOME or NATS_SERVER_BIN`);
  });
  const claim = await claimFetch(cache, report);
  try {
    const byAnother = await findInCache(cache);
    if (byAnother !== undefined) return byAnother;
    for (const source of sources) {
      const placed = await fetchAndPlace(source, cache, report);
      if (typeof placed !== 'string') return placed;
      tried.push(`${source.name}: ${placed}`);
      report(`No nats-server from ${source.name} (${placed})`);
    }
  } finally {
    await claim?.release();
  }
  throw new StartError(
    `no nats-server ${formatVersion(REQUIRED_NATS)} or newer was found or fetched; install one and set NATS_SERVER_BIN to it, or set NATS_URL. Tried: ${tried.join('; ')}`,
  );
}

/** The placed server, or in words why there is none. */
async function fetchAndPlace(
  source: NatsSource,
  cache: string,
  report: (line: string) => void,
): Promise<NatsBinary | string> {
  const workDirectory = await mkdtemp(join(cache, '.fetch-'));
  try {
    const fetched = await source.fetch({ workDirectory, report });
    return 'binary' in fetched ? await place(fetched.binary, cache, workDirectory) : fetched.failure;
  } finally {
    await rm(workDirectory, { recursive: true, force: true });
  }
}

/** One fetch at a time only saves traffic: if the other does not end in time, both fetch, and the rename decides. */
async function claimFetch(cache: string, report: (line: string) => void): Promise<Claim | undefined> {
  let told = false;
  return waitUntil(
    async () => {
      const attempt = await tryClaim(cache, 'fetching');
      if ('claim' in attempt) return attempt.claim;
      if (!told) report(`Waiting for the process ${attempt.heldBy}, which is fetching nats-server`);
      told = true;
      return undefined;
    },
    { timeoutMs: OTHER_FETCH_MS, intervalMs: 100 },
  );
}

/** Puts a checked server into its place in the cache, in one step; else says in words what is wrong. */
async function place(binary: string, cache: string, workDirectory: string): Promise<NatsBinary | string> {
  const staged = join(workDirectory, 'nats-server');
  await copyFile(binary, staged);
  await chmod(staged, 0o755);
  const look = await versionOf(staged);
  if (typeof look === 'string') return look;
  if (compareVersions(look, REQUIRED_NATS) < 0) return `it has only ${formatVersion(look)}`;
  const version = formatVersion(look);
  await mkdir(join(cache, version), { recursive: true });
  const path = join(cache, version, 'nats-server');
  await rename(staged, path);
  return { path, version };
}

async function isExecutable(path: string): Promise<boolean> {
  return access(path, constants.X_OK).then(
    () => true,
    () => false,
  );
}

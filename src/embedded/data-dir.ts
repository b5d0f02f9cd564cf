import { randomBytes } from 'node:crypto';
import { chmod, mkdir, realpath, rm } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { StartError } from '../lib/start-error.ts';
import { tryClaim } from './claim.ts';
import type { ClaimAttempt } from './claim.ts';
import { readIfPresent, readOrCreateSecret, replaceFile } from '../lib/files.ts';

/** The files by which other processes find a running Host. The addresses hold credentials, so all are 0600. */
export type PublishedFile = 'listen' | 'metrics-listen' | 'console-listen' | 'nats-url' | 'database-url';

/** What the Host on a data directory tells there; undefined: none runs, or a power cut has left the file empty. */
export async function readPublished(dataDir: string, file: PublishedFile): Promise<string | undefined> {
  const text = (await readIfPresent(join(dataDir, file)))?.trim();
  return text === '' ? undefined : text;
}

/** A data directory that this process, and no other, is using. */
export interface DataDir {
  /** Absolute. */
  readonly path: string;
  /** Names this node; made at the first start and kept. */
  readonly nodeId: string;
  /** The operator's key, `hk_` and 32 random bytes; made at the first call and kept in `admin-key`. */
  adminKey(): Promise<string>;
  /** The key that wraps tenants' data keys, 32 bytes as base64; made at the first call and kept in `kek`. Losing it loses every secret. */
  kek(): Promise<string>;
  /** Tells other processes where something is. */
  publish(file: PublishedFile, text: string): void;
  /** Undoes that; at a graceful stop, so that no client follows a dead address. */
  withdraw(file: PublishedFile): Promise<void>;
  /** Lets another Host have the directory. */
  release(): Promise<void>;
}

/**
 * Makes the directory if needed and claims it for this process; `claimed` is for one of the processes of a Host, which
 * claims its place in a directory that the Host has.
 * Throws StartError when another running Host has it, or when it cannot be made or written.
 */
export async function openDataDir(path: string, claimed?: string): Promise<DataDir> {
  const { absolute, attempt } = await prepare(resolve(path), claimed ?? 'lock');
  if ('heldBy' in attempt) {
    throw new StartError(
      claimed === undefined
        ? `the data directory ${absolute} is in use by the Host with pid ${attempt.heldBy}; stop that one or set AGENT_HOST_DATA_DIR to another directory`
        : `${claimed} of the Host on ${absolute} still runs, with pid ${attempt.heldBy}; end it`,
    );
  }
  const { claim } = attempt;
  try {
    const nodeId = await readOrCreateSecret(join(absolute, 'node-id'), () => `node_${randomBytes(8).toString('hex')}`);
    return {
      path: absolute,
      nodeId,
      adminKey: () =>
        readOrCreateSecret(join(absolute, 'admin-key'), () => `hk_${randomBytes(32).toString('base64url')}`),
      kek: () => readKek(join(absolute, 'kek')),
      publish: (file, text) => replaceFile(join(absolute, file), `${text}\n`, 0o600),
      withdraw: (file) => rm(join(absolute, file), { force: true }),
      release: () => claim.release(),
    };
  } catch (error) {
    await claim.release();
    throw error;
  }
}

interface Prepared {
  /** Without symbolic links: the servers' command lines name it, and are known by it even if reached by another name. */
  readonly absolute: string;
  readonly attempt: ClaimAttempt;
}

async function prepare(path: string, name: string): Promise<Prepared> {
  try {
    await mkdir(path, { recursive: true, mode: 0o700 });
    const absolute = await realpath(path);
    // Root's Postgres runs under another account, which must be able to pass through; nothing is listable for it.
    if (process.getuid?.() === 0) await chmod(absolute, 0o711);
    return { absolute, attempt: await tryClaim(absolute, name) };
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new StartError(`the data directory ${path} cannot be used (${reason}); set AGENT_HOST_DATA_DIR to another`);
  }
}

async function readKek(path: string): Promise<string> {
  const text = await readOrCreateSecret(path, () => randomBytes(32).toString('base64'));
  // While the Host's key is changed, one line for each.
  if (
    text
      .trim()
      .split('\n')
      .some((line) => Buffer.from(line, 'base64').length !== 32)
  ) {
    throw new StartError(
      `${path} does not hold 32 bytes as base64; put the right key back, without it no stored secret can be read`,
    );
  }
  return text;
}

import { mkdir, open, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { hasCode } from '../lib/files.ts';
import { processIdentity } from '../lib/process-identity.ts';

/** The right to something, held by this process until it is released or the process ends, however it ends. */
export interface Claim {
  release(): Promise<void>;
}

/** The claim, or the pid of the process that holds it. */
export type ClaimAttempt = { readonly claim: Claim } | { readonly heldBy: number };

/** Rivals that see each other both step back; this many rounds with random pauses end that. A real holder outlasts them. */
const ROUNDS = 20;

/**
 * Claims `<directory>/<name>` for this process. Each claimant makes a file of its own, named by pid and start time, and
 * only then looks for other living claimants: for two to hold one, the later would have had to miss the earlier's file.
 * Any process that sees files of dead processes removes them, which cannot hit a live one because no two processes
 * share a name. So kill -9 leaves nothing that blocks, and a takeover has no window.
 */
export async function tryClaim(directory: string, name: string): Promise<ClaimAttempt> {
  await mkdir(directory, { recursive: true });
  const identity = processIdentity(process.pid) ?? 'unknown';
  const ownName = `${name}.${process.pid}.${identity}`;
  const ownPath = join(directory, ownName);
  let heldBy = process.pid;
  for (let round = 0; round < ROUNDS; round += 1) {
    if (!(await createExclusive(ownPath))) return { heldBy: process.pid };
    const rival = await livingRival(directory, name, ownName);
    if (rival === undefined) return { claim: { release: () => rm(ownPath, { force: true }) } };
    await rm(ownPath, { force: true });
    heldBy = rival;
    await pause(5 + Math.random() * 20);
  }
  return { heldBy };
}

/** Takes a claim's file name apart; `undefined` for a file that is not a claim of this name. */
export function parseClaim(fileName: string, name: string): { pid: number; identity: string } | undefined {
  if (!fileName.startsWith(`${name}.`)) return undefined;
  const [pidText = '', ...identity] = fileName.slice(name.length + 1).split('.');
  return /^[1-9]\d*$/.test(pidText) ? { pid: Number(pidText), identity: identity.join('.') } : undefined;
}

async function livingRival(directory: string, name: string, ownName: string): Promise<number | undefined> {
  let rival: number | undefined;
  for (const fileName of await readdir(directory)) {
    const other = fileName === ownName ? undefined : parseClaim(fileName, name);
    if (other === undefined) continue;
    if (processIdentity(other.pid) === other.identity) rival = other.pid;
    else await rm(join(directory, fileName), { force: true });
  }
  return rival;
}

async function createExclusive(path: string): Promise<boolean> {
  try {
    await (await open(path, 'wx', 0o600)).close();
    return true;
  } catch (error) {
    if (hasCode(error, 'EEXIST')) return false;
    throw error;
  }
}

import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { EMPTY_MANIFEST } from '../../../domain/sandbox/manifest.ts';
import { onPath } from '../confinement.ts';
import { Cgroups } from './cgroups.ts';
import { podCommand } from './command.ts';
import type { PodPrograms } from './command.ts';
import { PodProcess } from './process.ts';
import { isFilterKnown, seccompFilter } from './seccomp.ts';
import { Volumes } from './volumes.ts';

/** What this machine offers to pods. */
export interface Ground {
  readonly programs: PodPrograms;
  readonly filter: Buffer;
  /** Each pod has a user of its own: the Host is root. */
  readonly hasOwnUsers: boolean;
  /** Null: the Host may not make groups of processes with limits. */
  readonly cgroups: Cgroups | null;
}

export interface GroundOptions {
  /** Where programs are looked for. */
  readonly path: string | undefined;
  /** `own`: each pod has a user, which takes a Host that is root. `host`: pods have the Host's, in a user namespace. */
  readonly users: 'own' | 'host' | 'auto';
  readonly cgroups: 'auto' | 'off';
}

const TRIED_MS = 30_000;
const PROGRAMS = ['bwrap', 'bash', 'env', 'flock', 'prlimit', 'du'] as const;
const TRIAL = {
  ...{ script: 'echo works', bridge: null, fence: { hostEpoch: 1, epoch: 1 }, joins: [], isMemoryBounded: true },
  ...{ memoryBytes: 67_108_864, storageBytes: 1_048_576, processes: 64 },
} as const;

/** Finds out by starting a command. A text says why pods cannot run here. */
export async function ground({ path, users, cgroups: wanted }: GroundOptions): Promise<Ground | string> {
  if (process.platform !== 'linux' || !isFilterKnown(process.arch))
    return `pods run on Linux on x64 and arm64, not on ${process.platform} on ${process.arch}`;
  const found = Object.fromEntries(PROGRAMS.map((name) => [name, onPath(name, path)]));
  const missing = PROGRAMS.filter((name) => found[name] === null);
  if (missing.length > 0) return `${missing.map(packaged).join(', ')} not installed`;
  const of = (name: (typeof PROGRAMS)[number]): string => found[name] ?? name;
  const programs: PodPrograms = {
    ...{ bubblewrap: of('bwrap'), bash: of('bash'), env: of('env'), flock: of('flock'), prlimit: of('prlimit') },
    setpriv: onPath('setpriv', path),
  };
  const cgroups = wanted === 'off' ? null : await Cgroups.open();
  const filter = seccompFilter(process.arch, cgroups !== null);
  const isRoot = process.getuid?.() === 0;
  const ways = [
    ...(users !== 'host' && isRoot && programs.setpriv !== null ? [true] : []),
    ...(users === 'own' ? [] : [false]),
  ];
  let words = 'the Host is not root';
  for (const hasOwnUsers of ways) {
    // The limit of processes does not hold for root.
    if (!hasOwnUsers && isRoot && cgroups === null) {
      words = 'the Host is root and may not make cgroups, so that the processes of a pod could not be bounded';
      continue;
    }
    const fault = await tried({ programs, filter, hasOwnUsers });
    if (fault === null) return { programs, filter, hasOwnUsers, cgroups };
    words = fault;
  }
  return `a command could not be confined: ${words}`;
}

function packaged(program: string): string {
  return program === 'bwrap' ? 'bubblewrap' : program;
}

/** Null: a command ran. */
async function tried({ programs, filter, hasOwnUsers }: Omit<Ground, 'cgroups'>): Promise<string | null> {
  const directory = await mkdtemp(join(tmpdir(), 'agent-host-pod-'));
  try {
    const of = { tenant: '', sandboxId: '', createdPosition: 0, generation: 1 };
    const { workspace, lock, uid } = await new Volumes(join(directory, 'volumes'), hasOwnUsers).make(
      of,
      EMPTY_MANIFEST,
      {
        read: async () => await Promise.resolve(new Uint8Array()),
      },
    );
    const command = podCommand({ ...TRIAL, programs, workspace, lock, uid });
    const trial = new PodProcess({ command, filter, uid });
    const timer = setTimeout(() => trial.end('timeout'), TRIED_MS);
    const end = await trial.wait();
    clearTimeout(timer);
    if (end.stdout.trim() === 'works') return null;
    return end.stderr.trim().slice(-300) || 'it did not start in time';
  } catch (error) {
    return error instanceof Error ? error.message : 'it could not be tried';
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

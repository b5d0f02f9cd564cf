import { execFileSync } from 'node:child_process';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { EMPTY_MANIFEST } from '#src/domain/sandbox/manifest.ts';
import type { WorkspaceManifest } from '#src/domain/sandbox/manifest.ts';
import type { SandboxToolCall } from '#src/domain/sandbox/tools.ts';
import { openPods } from '#src/drivers/sandbox/pod/driver.ts';
import type { PodOptions } from '#src/drivers/sandbox/pod/driver.ts';
import type {
  ContentStore,
  PodDriver,
  PodLimits,
  PodNetwork,
  PodVolume,
  SandboxAnswer,
} from '#src/drivers/sandbox/port.ts';
import { PROGRAM } from './program.ts';
import { MemoryContents } from './sandboxes.ts';

/** The program of the bridge that is tested, as built. */
const BRIDGE = join(dirname(PROGRAM), 'sandbox/bridge.mjs');

/** How pods can be run on this machine: with users of their own as root, and with the Host's in a user namespace. */
export function podWays(): readonly Pick<PodOptions, 'users' | 'cgroups'>[] {
  const isRoot = process.getuid?.() === 0;
  const works = (...options: string[]): boolean => {
    try {
      execFileSync('bwrap', [...options, '--unshare-pid', '--unshare-net', '--ro-bind', '/', '/', '/bin/true'], {
        stdio: 'ignore',
      });
      return true;
    } catch {
      return false;
    }
  };
  if (isRoot)
    return works()
      ? [
          { users: 'own', cgroups: 'auto' },
          { users: 'own', cgroups: 'off' },
        ]
      : [];
  return works('--unshare-user') ? [{ users: 'host', cgroups: 'auto' }] : [];
}

export interface TestPods extends AsyncDisposable {
  readonly driver: PodDriver;
  readonly backend: 'bubblewrap' | 'kubernetes';
  readonly directory: string;
}

/** Pods whose volumes go when the test ends. */
export function openTestPods(options: Partial<PodOptions> = {}): TestPods {
  const directory = mkdtempSync(join(tmpdir(), 'agent-host-pods-'));
  const driver = openPods({
    ...{ enabled: true, directory: join(directory, 'volumes'), children: 4, childrenPerTenant: 2, path: undefined },
    ...{ users: 'auto', cgroups: 'auto', bridge: { node: process.execPath, program: BRIDGE } },
    log: () => undefined,
    ...options,
  });
  return {
    driver,
    backend: 'bubblewrap',
    directory,
    [Symbol.asyncDispose]: async () => {
      await driver.stop();
      execFileSync('rm', ['-rf', '--', directory]);
    },
  };
}

const MIB = 1_048_576;
let pods = 0;

/** One pod over a driver. */
export class TestPod {
  readonly volume: PodVolume;
  readonly driver: PodDriver;
  limits: PodLimits = { cpus: 1, memoryBytes: 512 * MIB, storageBytes: 64 * MIB };
  network: PodNetwork | null = null;
  fence = { hostEpoch: 1, epoch: 1 };

  constructor(driver: PodDriver, tenant = 'tn_a') {
    this.driver = driver;
    this.volume = { tenant, sandboxId: `pod-${++pods}`, createdPosition: pods, generation: 1 };
  }

  /** With an empty volume. */
  static async start(driver: PodDriver, tenant?: string): Promise<TestPod> {
    const pod = new TestPod(driver, tenant);
    await pod.provision(EMPTY_MANIFEST, new MemoryContents());
    return pod;
  }

  async provision(manifest: WorkspaceManifest, contents: Pick<ContentStore, 'read'>): Promise<void> {
    const { limits, fence } = this;
    await this.driver.provision(this.volume, { limits, hostEpoch: fence.hostEpoch }, { manifest, contents });
  }

  async call(tool: SandboxToolCall, signal: AbortSignal = new AbortController().signal): Promise<SandboxAnswer> {
    const { volume, limits, fence, network } = this;
    return await this.driver.run({ volume, tool, limits, fence, network, fileBytes: MIB }, signal);
  }

  async bash(command: string, timeoutSeconds = 120, signal?: AbortSignal): Promise<SandboxAnswer> {
    return await this.call({ name: 'bash', input: { command, timeoutSeconds } }, signal);
  }

  /** What a command that must succeed writes. */
  async out(command: string): Promise<string> {
    const answer = await this.bash(command);
    if (answer.outcome !== 'completed' || !('stdout' in answer.result)) throw new Error(JSON.stringify(answer));
    return answer.result.stdout;
  }

  async paths(): Promise<string[] | undefined> {
    return (await this.driver.files.list(this.volume, ''))?.map(({ path }) => path);
  }
}

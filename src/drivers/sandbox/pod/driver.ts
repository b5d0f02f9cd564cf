import { access, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { MANIFEST_ENTRIES_MAX } from '../../../domain/sandbox/manifest.ts';
import { WeightedLru } from '../../../lib/lru.ts';
import { FairTurns, QueueFullError } from '../fair-turns.ts';
import type { BashCall } from '../pod-endings.ts';
import { SandboxUnavailableError, VolumeLostError } from '../port.ts';
import type {
  FirstFiles,
  PodCall,
  PodDriver,
  PodFile,
  PodFiles,
  PodMachine,
  PodStatus,
  PodUpload,
  PodVolume,
  SandboxAnswer,
} from '../port.ts';
import { runPodFileTool } from './file-calls.ts';
import { ground } from './ground.ts';
import type { Ground, GroundOptions } from './ground.ts';
import { runScript } from './script.ts';
import { VolumeFullError } from './volume-files.ts';
import { Volumes } from './volumes.ts';
import type { Volume } from './volumes.ts';

export interface PodOptions extends GroundOptions {
  /** Whether the operator lets pods run. */
  readonly enabled: boolean;
  /** Where the volumes are. */
  readonly directory: string;
  /** Calls at the same time on this node, and of one tenant. */
  readonly children: number;
  readonly childrenPerTenant: number;
  /** For what an operator should know of. */
  readonly log: (message: string) => void;
  /** What leads from a pod to the proxy: Node, and the program that it runs. */
  readonly bridge: { readonly node: string; readonly program: string };
}

const WAITING = 4_096;
const WAITING_PER_TENANT = 1_024;
/** Volumes whose size is remembered. */
const COUNTED = 1_000;
/** For which it is taken as given that no pod can run here, ms: to find out takes processes. */
const REFUSED_MS = 10_000;
const UNKNOWN = 'it could not be found out whether a pod can run';

/** Pods on this machine: bubblewrap for each command, and a directory for each volume. */
export function openPods(options: PodOptions): PodDriver {
  return new Pods(options);
}

class Pods implements PodDriver {
  readonly images: readonly string[] = [];
  readonly noNetwork = null;
  readonly #options: PodOptions;
  readonly #turns: FairTurns;
  readonly #stopping = new AbortController();
  readonly #calls = new Set<Promise<unknown>>();
  readonly #used = new WeightedLru<{ readonly bytes: number }>(COUNTED);
  #ground: Promise<Ground | string> | null = null;
  /** The last answer that no pod can run. */
  #refused: Promise<Ground | string> | null = null;
  #sockets: Promise<string> | null = null;
  /** Volumes without a label that were spoken of. */
  readonly #told = new Set<string>();

  constructor(options: PodOptions) {
    this.#options = options;
    const { children: atOnce, childrenPerTenant: perTenant } = options;
    this.#turns = new FairTurns({
      ...{ atOnce, perTenant, keptMs: () => 0, waiting: WAITING, waitingPerTenant: WAITING_PER_TENANT },
    });
  }

  async status(): Promise<PodStatus> {
    const found = await this.#found().catch(() => UNKNOWN);
    if (typeof found === 'string') return { available: false, backend: null, reason: found };
    return { available: true, backend: 'bubblewrap' };
  }

  async provision(volume: PodVolume, _: PodMachine, { manifest, contents }: FirstFiles): Promise<void> {
    const found = await this.#found();
    // A volume that is made meanwhile would have no user of its own, also once it turns out that pods can run.
    if (typeof found === 'string') throw new SandboxUnavailableError(found);
    const volumes = await this.#volumes();
    if ((await volumes.find(volume)) === null) await volumes.make(volume, manifest, contents);
  }

  /** Nothing of a pod is there between two commands. */
  async settle(): Promise<void> {
    await Promise.resolve();
  }

  async has(volume: PodVolume): Promise<boolean> {
    return (await (await this.#volumes()).find(volume)) !== null;
  }

  async run(call: PodCall, signal: AbortSignal): Promise<SandboxAnswer> {
    signal.throwIfAborted();
    if (this.#stopping.signal.aborted) throw stopped();
    const running = this.#run(call, AbortSignal.any([signal, this.#stopping.signal]));
    const settled = running.catch(() => undefined);
    this.#calls.add(settled);
    try {
      return await running;
    } catch (error) {
      signal.throwIfAborted();
      throw error;
    } finally {
      this.#calls.delete(settled);
    }
  }

  readonly files: PodFiles = {
    list: async (volume, under) => {
      const { files } = await this.#volume(volume);
      const listing = await files.list(under, MANIFEST_ENTRIES_MAX);
      if (listing === null) return null;
      const found: PodFile[] = [];
      for (const { path, size } of listing.files) {
        const sha256 = await files.hash(path);
        if (sha256 !== null) found.push({ path, size, sha256 });
      }
      return found;
    },
    stat: async (volume, path) => {
      const { files } = await this.#volume(volume);
      const entry = await files.entry(path);
      const sha256 = entry?.kind === 'file' ? await files.hash(path) : null;
      return entry?.kind === 'file' && sha256 !== null ? { path, size: entry.size, sha256 } : null;
    },
    open: async (volume, path, range) => await (await this.#volume(volume)).files.stream(path, range),
    write: async (of, { path, bytes, storageBytes }: PodUpload) => {
      const volume = await this.#volume(of);
      if ((await this.#count(volume)) + bytes.byteLength > storageBytes) return 'full';
      const entry = await volume.files.entry(path);
      const mode = entry?.kind === 'file' ? entry.mode : undefined;
      try {
        return (await volume.files.write(path, bytes, mode)) ? 'written' : 'refused';
      } catch (error) {
        if (error instanceof VolumeFullError) return 'full';
        throw error;
      }
    },
    remove: async (volume, path) => await (await this.#volume(volume)).files.remove(path),
  };

  async volumes(): Promise<readonly PodVolume[]> {
    return await (await this.#volumes()).all((directory) => this.#tellOnce(directory));
  }

  async discard(volume: PodVolume): Promise<void> {
    await (await this.#volumes()).remove(volume);
  }

  async stop(): Promise<void> {
    this.#stopping.abort(stopped());
    this.#turns.refuse(stopped());
    await Promise.all(this.#calls);
    const sockets = await this.#sockets?.catch(() => null);
    if (sockets !== null && sockets !== undefined) await rm(sockets, { recursive: true, force: true });
  }

  async #run(call: PodCall, signal: AbortSignal): Promise<SandboxAnswer> {
    const askedMs = performance.now();
    const { tenant } = call.volume;
    try {
      await this.#turns.take(tenant, signal);
    } catch (error) {
      if (error instanceof QueueFullError) return queueFull(performance.now() - askedMs);
      throw error;
    }
    try {
      const queuedMs = Math.round(performance.now() - askedMs);
      const volume = await this.#volume(call.volume);
      const { tool } = call;
      if (tool.name === 'bash') return await this.#bash({ ...call, tool }, volume, { signal, queuedMs });
      const usedBytes = async () => await this.#count(volume);
      return await runPodFileTool({ volume, usedBytes }, { tool, call }, { signal, queuedMs });
    } finally {
      this.#turns.end(tenant);
    }
  }

  async #bash(
    call: BashCall,
    volume: Volume,
    { signal, queuedMs }: { readonly signal: AbortSignal; readonly queuedMs: number },
  ): Promise<SandboxAnswer> {
    const found = await this.#found();
    if (typeof found === 'string') throw new SandboxUnavailableError(found);
    const usedBytes = this.#used.get(volume.workspace)?.bytes ?? (await this.#count(volume));
    const count = async () => await this.#count(volume);
    const sockets = async () => await this.#socketDirectory();
    const { bridge } = this.#options;
    return await runScript({ call, volume, ground: found, usedBytes, count, bridge, sockets, queuedMs }, signal);
  }

  #tellOnce(directory: string): void {
    if (this.#told.has(directory)) return;
    this.#told.add(directory);
    this.#options.log(`the volume ${directory} does not say whose it is: it stays until you remove it`);
  }

  async #count(volume: Volume): Promise<number> {
    const bytes = await (await this.#volumes()).usedBytes(volume);
    this.#used.set(volume.workspace, { bytes }, 1);
    return bytes;
  }

  async #volume(of: PodVolume): Promise<Volume> {
    const volume = await (await this.#volumes()).find(of);
    if (volume === null) throw new VolumeLostError("the pod's volume is not on this machine");
    return volume;
  }

  async #volumes(): Promise<Volumes> {
    const found = await this.#found();
    return new Volumes(this.#options.directory, typeof found !== 'string' && found.hasOwnUsers);
  }

  async #found(): Promise<Ground | string> {
    if (!this.#options.enabled) return 'they are switched off by AGENT_HOST_PODS';
    const finding = (this.#ground ??= ground(this.#options));
    try {
      const found = await finding;
      if (typeof found === 'string') this.#forgetGround(finding);
      return found;
    } catch (cause) {
      if (this.#ground === finding) this.#ground = null;
      throw new SandboxUnavailableError(UNKNOWN, { cause });
    }
  }

  /** What has failed may work later; it is tried again once it was answered for a while. */
  #forgetGround(finding: Promise<Ground | string>): void {
    if (this.#refused === finding) return;
    this.#refused = finding;
    setTimeout(() => {
      this.#ground = null;
    }, REFUSED_MS).unref();
  }

  /** Made again where it could not be made, or is gone: what is old in such a place may be cleaned up. */
  async #socketDirectory(): Promise<string> {
    for (let attempt = 1; ; attempt++) {
      const making = (this.#sockets ??= mkdtemp(join(tmpdir(), 'agent-host-')));
      try {
        const directory = await making;
        await access(directory);
        return directory;
      } catch (cause) {
        if (this.#sockets === making) this.#sockets = null;
        if (attempt === 2) throw new SandboxUnavailableError('there is no place for the sockets of pods', { cause });
      }
    }
  }
}

function queueFull(queued: number): SandboxAnswer {
  return {
    outcome: 'failed',
    code: 'limit_exceeded',
    message: 'too many calls wait for their turn; try again later',
    usage: { durationMs: 0, queuedMs: Math.round(queued), cpuMs: 0, bytesWritten: 0 },
  };
}

function stopped(): SandboxUnavailableError {
  return new SandboxUnavailableError('this node is stopping; another one takes over');
}

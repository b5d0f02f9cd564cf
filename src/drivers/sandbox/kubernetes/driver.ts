import { Readable } from 'node:stream';
import { runPodFileTool } from '../pod/file-calls.ts';
import type { BashCall } from '../pod-endings.ts';
import { SandboxUnavailableError } from '../port.ts';
import type {
  FirstFiles,
  PodCall,
  PodDriver,
  PodFiles,
  PodMachine,
  PodStatus,
  PodUpload,
  PodVolume,
  SandboxAnswer,
  WantedMachine,
} from '../port.ts';
import { proxyVariables } from '../proxy.ts';
import { KubernetesApi, KubernetesError } from './api.ts';
import type { KubernetesAccess } from './api.ts';
import { runCommand } from './command.ts';
import { FencedError, Machines } from './machines.ts';
import { machineFor, OWNER } from './manifests.ts';
import type { PodSettings } from './manifests.ts';
import { partsOf, RemoteFiles } from './remote-files.ts';
import type { PodProxies } from './proxies.ts';
import { PodGoneError, PodShell } from './shell.ts';

export interface KubernetesPodsOptions extends PodSettings {
  readonly access: KubernetesAccess;
  /** For a pod to take commands, from when it is asked for, ms. */
  readonly startMs: number;
  /** What pods whose sandbox has `network.allow` use, and is closed with the driver; null: there is none. */
  readonly proxies: PodProxies | null;
}

/** How often a look at files is begun, when its pod ends in the middle. */
const LOOKS = 5;
/** How long what was found out about the cluster is believed, ms. */
const STATUS_MS = 30_000;

/** Pods of a cluster, as Sandboxes of Agent Sandbox. */
export function openKubernetesPods(options: KubernetesPodsOptions): PodDriver {
  return new KubernetesPods(options);
}

class KubernetesPods implements PodDriver {
  readonly images: readonly string[];
  readonly noNetwork: string | null;
  readonly #owner: string;
  readonly #api: KubernetesApi;
  readonly #machines: Machines;
  readonly #proxies: PodProxies | null;
  readonly #stopping = new AbortController();
  readonly #calls = new Set<Promise<unknown>>();
  #status: { readonly at: number; readonly found: Promise<PodStatus> } | null = null;

  constructor({ access, startMs, proxies, ...settings }: KubernetesPodsOptions) {
    this.images = settings.images;
    this.noNetwork = proxies === null ? 'AGENT_HOST_POD_PROXY_LISTEN is not set' : null;
    this.#proxies = proxies;
    this.#owner = settings.owner;
    this.#api = new KubernetesApi(access);
    this.#machines = new Machines(this.#api, settings, startMs);
  }

  async status(): Promise<PodStatus> {
    const now = performance.now();
    if (this.#status === null || now - this.#status.at > STATUS_MS) this.#status = { at: now, found: this.#find() };
    const found = await this.#status.found;
    // It may be back in a moment.
    if (!found.available) this.#status = null;
    return found;
  }

  async provision(
    volume: PodVolume,
    { image = this.images[0] ?? '', hostEpoch, ...machine }: PodMachine,
    first: FirstFiles,
  ): Promise<void> {
    await this.#doing(async (signal) => {
      if (await this.#machines.has(volume)) return;
      await this.#machines.make(volume, machineFor(machine, image), hostEpoch);
      const files = await this.#files(volume, hostEpoch, signal);
      const { manifest, contents } = first;
      for (const directory of manifest.directories) await files.makeDirectory(directory);
      for (const { path, sha256, mode } of manifest.files) {
        const bytes = await contents.read(sha256);
        // Another request has filled it meanwhile: what is there now may be newer.
        if (await this.#machines.has(volume)) return;
        await files.write(path, bytes, mode);
      }
      await this.#machines.filled(volume);
    });
  }

  async has(volume: PodVolume): Promise<boolean> {
    return await this.#doing(async () => await this.#machines.has(volume));
  }

  async run(call: PodCall, given: AbortSignal): Promise<SandboxAnswer> {
    const { volume, tool, fence } = call;
    const askedMs = performance.now();
    return await this.#doing(async (signal) => {
      await this.#machines.demand(volume);
      const pod = await this.#machines.running(volume, fence.hostEpoch, signal);
      const shell = new PodShell({ api: this.#api, machines: this.#machines, pod });
      const queuedMs = Math.round(performance.now() - askedMs);
      if (tool.name === 'bash') {
        const bash: BashCall = { ...call, tool };
        return await this.#bash(bash, { shell, queuedMs }, signal);
      }
      const files = new RemoteFiles(shell, signal);
      const usedBytes = async () => await files.usedBytes();
      return await runPodFileTool({ volume: { files }, usedBytes }, { tool, call }, { signal, queuedMs });
    }, given).catch((error: unknown) => {
      if (!(error instanceof FencedError)) throw error;
      const usage = { durationMs: 0, queuedMs: 0, cpuMs: 0, bytesWritten: 0 };
      return { outcome: 'failed', code: 'sandbox_lost', message: error.message, usage };
    });
  }

  readonly files: PodFiles = {
    list: async (volume, under) => await this.#onFiles(volume, async (files) => await files.listHashes(under)),
    stat: async (volume, path) => await this.#onFiles(volume, async (files) => await files.stat(path)),
    open: async (volume, path, range) => await this.#open(volume, path, range),
    write: async (volume, { path, bytes, storageBytes }: PodUpload) =>
      await this.#onFiles(volume, async (files) => {
        if ((await files.usedBytes()) + bytes.byteLength > storageBytes) return 'full';
        const entry = await files.entry(path);
        return await files.put(path, bytes, entry?.kind === 'file' ? entry.mode : undefined);
      }),
    remove: async (volume, path) => await this.#onFiles(volume, async (files) => await files.remove(path)),
  };

  async volumes(): Promise<readonly PodVolume[]> {
    return await this.#doing(async () => await this.#machines.all());
  }

  async settle(volume: PodVolume, wanted: WantedMachine): Promise<void> {
    await this.#doing(async () => {
      // A claim that is gone is a volume that is lost: a machine without it is of no use.
      if (!(await this.#machines.has(volume))) return;
      try {
        await this.#machines.settle(volume, wanted);
      } catch (error) {
        if (!(error instanceof FencedError)) throw error;
      }
    });
  }

  async discard(volume: PodVolume): Promise<void> {
    await this.#doing(async () => await this.#machines.remove(volume));
  }

  async stop(): Promise<void> {
    this.#stopping.abort(stopped());
    await Promise.all(this.#calls);
    await this.#proxies?.close();
    await this.#api.close();
  }

  /** The way out is there for as long as the command is. */
  async #bash(
    call: BashCall,
    { shell, queuedMs }: { readonly shell: PodShell; readonly queuedMs: number },
    signal: AbortSignal,
  ): Promise<SandboxAnswer> {
    const { network } = call;
    const admission = network === null ? null : (this.#proxies?.admit(network, shell.pod.addresses) ?? null);
    const variables = admission === null ? {} : proxyVariables(admission.url);
    try {
      return await runCommand({ shell, machines: this.#machines, call, variables, queuedMs }, signal);
    } finally {
      admission?.close();
    }
  }

  async #files(volume: PodVolume, hostEpoch: number | null, signal: AbortSignal): Promise<RemoteFiles> {
    const pod = await this.#machines.running(volume, hostEpoch, signal);
    return new RemoteFiles(new PodShell({ api: this.#api, machines: this.#machines, pod }), signal);
  }

  /** Null: there is no such file. `end` is part of the range. Reading continues in the pod that there then is. */
  async #open(volume: PodVolume, path: string, range?: { readonly start: number; readonly end: number }) {
    let files = await this.#onFiles(volume, async (now) => ((await now.entry(path))?.kind === 'file' ? now : null));
    if (files === null) return null;
    const { start, end } = range ?? { start: 0, end: Number.MAX_SAFE_INTEGER - 1 };
    const read = async (from: number, length: number): Promise<Buffer | null> => {
      try {
        return (await files?.part(path, from, length)) ?? null;
      } catch (error) {
        if (!(error instanceof PodGoneError)) throw error;
        return await this.#onFiles(volume, async (now) => {
          files = now;
          return await now.part(path, from, length);
        });
      }
    };
    return Readable.from(partsOf(read, start, end - start + 1));
  }

  async #onFiles<T>(volume: PodVolume, work: (files: RemoteFiles) => Promise<T>): Promise<T> {
    return await this.#doing(async (signal) => {
      for (let attempt = 1; ; attempt++) {
        await this.#machines.demand(volume);
        try {
          return await work(await this.#files(volume, null, signal));
        } catch (error) {
          // It was stopped or started meanwhile: another has the same files.
          if (!(error instanceof PodGoneError) || attempt === LOOKS) throw error;
        }
      }
    });
  }

  /** Work that ends when the driver stops. @throws SandboxUnavailableError when the API server is away */
  async #doing<T>(work: (signal: AbortSignal) => Promise<T>, given?: AbortSignal): Promise<T> {
    given?.throwIfAborted();
    const { signal: stopping } = this.#stopping;
    if (stopping.aborted) throw stopped();
    const signal = given === undefined ? stopping : AbortSignal.any([given, stopping]);
    const running = work(signal);
    const settled = running.catch(() => undefined);
    this.#calls.add(settled);
    try {
      return await running;
    } catch (error) {
      given?.throwIfAborted();
      if (!(error instanceof KubernetesError)) throw error;
      throw new SandboxUnavailableError(`Kubernetes: ${error.message}`, { cause: error });
    } finally {
      this.#calls.delete(settled);
    }
  }

  async #find(): Promise<PodStatus> {
    try {
      await this.#api.list('sandboxes', { labelSelector: `${OWNER}=${this.#owner}` });
      return { available: true, backend: 'kubernetes' };
    } catch (error) {
      const reason = error instanceof Error ? error.message : 'it could not be found out';
      return { available: false, backend: null, reason: `Sandboxes of the cluster cannot be listed: ${reason}` };
    }
  }
}

function stopped(): SandboxUnavailableError {
  return new SandboxUnavailableError('this node is stopping; another one takes over');
}

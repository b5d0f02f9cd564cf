import { z } from 'zod';
import { backoffMs, delay } from '../../../lib/backoff.ts';
import { SandboxUnavailableError, VolumeLostError } from '../port.ts';
import type { PodVolume, WantedMachine } from '../port.ts';
import type { KubernetesApi } from './api.ts';
import {
  ANNOTATION,
  claimOf,
  CONTAINER,
  EPOCH_VARIABLE,
  machineOf,
  nameOf,
  networkPolicyOf,
  OWNER,
  sandboxOf,
  startPatch,
  volumeOf,
} from './manifests.ts';
import type { MachineOf, PodSettings } from './manifests.ts';
import type { ObjectOf } from './objects.ts';

/** A newer start of the sandbox has the volume: who asks again finds that one. */
export class FencedError extends SandboxUnavailableError {}

/** A pod that takes commands. */
export interface RunningPod {
  readonly name: string;
  readonly uid: string;
  /** How often its container was started again. */
  readonly restarts: number;
  readonly hostEpoch: number;
  /** Where its connections come from. */
  readonly addresses: readonly string[];
}

/** Someone else's change comes between a look and a change so often only if something is wrong. */
const TRIES = 20;
/** How long a suspended pod that was started for a look at its files is left alone, ms. */
const AWAKE_MS = 120_000;

/** How long a pod is waited for before the machine is looked at again, ms: a short race ends soon, a slow image is not asked for often. */
const ROUND = { baseMs: 1_000, capMs: 15_000 };

/** Between two looks at one that is being removed, ms. */
const REMOVAL_MS = 250;

const statuses = z.array(
  z.looseObject({
    restartCount: z.number().default(0),
    lastState: z.looseObject({ terminated: z.looseObject({ reason: z.string().optional() }).optional() }).optional(),
  }),
);

/**
 * Pods as objects: a claim for the volume, which holds all that a pod is made of, and a Sandbox for the machine. Each step is
 * decided on what is there, so that it can be repeated, by any node, and after any crash.
 */
export class Machines {
  readonly #api: KubernetesApi;
  readonly #settings: PodSettings;
  readonly #startMs: number;
  #isFenced: Promise<void> | null = null;

  constructor(api: KubernetesApi, settings: PodSettings, startMs: number) {
    this.#api = api;
    this.#settings = settings;
    this.#startMs = startMs;
  }

  /** Whether the volume is there, with its first files. */
  async has(volume: PodVolume): Promise<boolean> {
    return (await this.#claim(volume))?.metadata.annotations?.[ANNOTATION.filled] !== undefined;
  }

  /** @throws VolumeLostError unless the volume is there */
  async demand(volume: PodVolume): Promise<void> {
    await this.#made(volume);
  }

  /** Makes the volume and starts its pod, for `hostEpoch`. */
  async make(volume: PodVolume, made: MachineOf, hostEpoch: number): Promise<void> {
    await this.keepApart();
    if ((await this.#claim(volume)) === null) {
      const claim = await this.#api.create('persistentvolumeclaims', claimOf(volume, this.#settings, made));
      if (claim === null && (await this.#claim(volume)) === null)
        throw new SandboxUnavailableError('an older volume of the same name is still being removed');
    }
    await this.settle(volume, { desired: 'running', hostEpoch });
  }

  async filled(volume: PodVolume): Promise<void> {
    const body = { metadata: { annotations: { [ANNOTATION.filled]: 'true' } } };
    await this.#api.patch('persistentvolumeclaims', nameOf(volume, this.#settings.owner), { body });
  }

  /**
   * The pod of a volume, started if it is not. @param hostEpoch null: as it is now, for a look at its files
   * @throws FencedError, VolumeLostError, SandboxUnavailableError, the signal's reason
   */
  async running(volume: PodVolume, hostEpoch: number | null, signal: AbortSignal): Promise<RunningPod> {
    const wanted = hostEpoch === null ? null : ({ desired: 'running', hostEpoch } as const);
    const late = AbortSignal.timeout(this.#startMs);
    let why = 'it was not made yet';
    for (let round = 0; ; round++) {
      const epoch = await this.settle(volume, wanted);
      // It may be suspended meanwhile, and then no pod comes, and no change of one: the machine is looked at again.
      const again = AbortSignal.timeout(Math.round(backoffMs(round, ROUND)));
      try {
        return await this.#api.until('pods', nameOf(volume, this.#settings.owner), {
          signal: AbortSignal.any([signal, late, again]),
          check: async (pod) => {
            const fault =
              pod === null ? 'it was not made yet' : await this.#fault(pod, { epoch, isLook: wanted === null });
            why = fault ?? why;
            if (pod === null || fault !== null) return undefined;
            const { name, uid } = pod.metadata;
            const addresses = pod.status.podIPs.map(({ ip }) => ip);
            return { name, uid, hostEpoch: podEpochOf(pod), restarts: restartsOf(pod), addresses };
          },
        });
      } catch (error) {
        signal.throwIfAborted();
        if (late.aborted) throw new SandboxUnavailableError(`a pod does not start: ${why}`, { cause: error });
        if (!again.aborted || error instanceof SandboxUnavailableError) throw error;
      }
    }
  }

  /**
   * Brings the machine to what is wanted of it; null: running, as it is. Returns its epoch.
   * @throws FencedError, VolumeLostError
   */
  async settle(volume: PodVolume, wanted: WantedMachine | null): Promise<number> {
    const name = nameOf(volume, this.#settings.owner);
    for (let attempt = 0; attempt < TRIES; attempt++) {
      const sandbox = await this.#api.get('sandboxes', name);
      if (sandbox === null) {
        if (wanted?.desired === 'suspended') return wanted.hostEpoch;
        const hostEpoch = wanted?.hostEpoch ?? 1;
        const made = await this.#made(volume);
        await this.keepApart();
        await this.#api.create('sandboxes', sandboxOf(volume, this.#settings, { made, hostEpoch }));
        continue;
      }
      const epoch = epochOf(sandbox);
      const isOver = sandbox.metadata.deletionTimestamp !== undefined;
      if (wanted !== null && epoch > wanted.hostEpoch) throw new FencedError('another turn has the sandbox');
      const change = isOver ? null : await this.#change(volume, sandbox, wanted);
      if (change === null && !isOver) return epoch;
      const { resourceVersion } = sandbox.metadata;
      if (change === null) await delay(REMOVAL_MS);
      else {
        const body = { ...change, metadata: { ...change.metadata, resourceVersion } };
        await this.#api.patch('sandboxes', name, { body });
      }
    }
    throw new SandboxUnavailableError('the Sandbox is changed by others all the time, or is not removed');
  }

  /** What has to change of a Sandbox; null: nothing. */
  async #change(volume: PodVolume, sandbox: ObjectOf<'sandboxes'>, wanted: WantedMachine | null) {
    const { operatingMode } = sandbox.spec;
    const epoch = epochOf(sandbox);
    const awakeUntil = sandbox.metadata.annotations?.[ANNOTATION.awakeUntil];
    if (wanted?.desired === 'suspended') {
      const isAwake = awakeUntil !== undefined && Date.parse(awakeUntil) > Date.now();
      if (operatingMode === 'Suspended' || isAwake) return null;
      return { metadata: {}, spec: { operatingMode: 'Suspended' } };
    }
    if (operatingMode === 'Running' && (wanted === null || epoch === wanted.hostEpoch)) return null;
    const made = await this.#made(volume);
    const patch = startPatch(volume, this.#settings, { made, hostEpoch: wanted?.hostEpoch ?? epoch });
    const until = wanted === null ? new Date(Date.now() + AWAKE_MS).toISOString() : null;
    const { annotations } = patch.metadata;
    return { ...patch, metadata: { annotations: { ...annotations, [ANNOTATION.awakeUntil]: until } } };
  }

  /**
   * Why a pod takes no commands; null: it does. One that never will is removed, so that another comes. One of a newer
   * start is left alone: it is another turn's, and has the same files for a look at them.
   */
  async #fault(pod: ObjectOf<'pods'>, wanted: { readonly epoch: number; readonly isLook: boolean }) {
    const { metadata, status } = pod;
    const epoch = podEpochOf(pod);
    if (epoch > wanted.epoch && !wanted.isLook) throw new FencedError('another turn has the sandbox');
    if (metadata.deletionTimestamp !== undefined) return 'an older one is being removed';
    if (epoch < wanted.epoch || status.phase === 'Failed' || status.phase === 'Succeeded') {
      await this.#api.remove('pods', metadata.name, { uid: metadata.uid, graceSeconds: 0 });
      return 'an older one is being removed';
    }
    if (status.conditions.some((one) => one.type === 'Ready' && one.status === 'True')) return null;
    const said = status.conditions.find((one) => one.status !== 'True' && one.message !== undefined);
    return said?.message ?? `its phase is ${status.phase ?? 'unknown'}`;
  }

  /** What has become of a pod: gone, out of memory, or as it was. */
  async fate(pod: RunningPod): Promise<'runs' | 'gone' | 'out_of_memory'> {
    const now = await this.#api.get('pods', pod.name);
    if (now === null || now.metadata.uid !== pod.uid) return 'gone';
    if (restartsOf(now) > pod.restarts) {
      const [first] = statusesOf(now);
      return first?.lastState?.terminated?.reason === 'OOMKilled' ? 'out_of_memory' : 'gone';
    }
    return now.metadata.deletionTimestamp === undefined && now.status.phase === 'Running' ? 'runs' : 'gone';
  }

  /** Ends everything in a pod, at once; another takes its place. */
  async end(pod: RunningPod): Promise<void> {
    await this.#api.remove('pods', pod.name, { uid: pod.uid, graceSeconds: 0 });
  }

  async remove(volume: PodVolume): Promise<void> {
    const name = nameOf(volume, this.#settings.owner);
    await this.#api.remove('sandboxes', name);
    await this.#api.remove('persistentvolumeclaims', name);
  }

  /** All volumes of which anything is there, found by label. */
  async all(): Promise<readonly PodVolume[]> {
    const selection = { labelSelector: `${OWNER}=${this.#settings.owner}` };
    const found = new Map<string, PodVolume>();
    for (const resource of ['persistentvolumeclaims', 'sandboxes'] as const) {
      const { items } = await this.#api.list(resource, selection);
      for (const { metadata } of items) {
        const volume = volumeOf(metadata.annotations);
        if (volume !== null && metadata.deletionTimestamp === undefined) found.set(metadata.name, volume);
      }
    }
    return [...found.values()];
  }

  /** The policy of the network, before the first pod: without it, pods would reach the whole cluster. */
  async keepApart(): Promise<void> {
    this.#isFenced ??= this.#policy();
    try {
      await this.#isFenced;
    } catch (error) {
      this.#isFenced = null;
      throw error;
    }
  }

  async #policy(): Promise<void> {
    const policy = networkPolicyOf(this.#settings);
    if ((await this.#api.create('networkpolicies', policy)) !== null) return;
    const { spec } = policy;
    await this.#api.patch('networkpolicies', policy.metadata.name, { body: { spec } });
  }

  async #claim(volume: PodVolume): Promise<ObjectOf<'persistentvolumeclaims'> | null> {
    const claim = await this.#api.get('persistentvolumeclaims', nameOf(volume, this.#settings.owner));
    return claim?.metadata.deletionTimestamp === undefined ? claim : null;
  }

  async #made(volume: PodVolume): Promise<MachineOf> {
    const made = machineOf((await this.#claim(volume))?.metadata.annotations);
    if (made === null) throw new VolumeLostError("the pod's volume is not there");
    return made;
  }
}

function epochOf({ metadata }: ObjectOf<'sandboxes'>): number {
  return Number.parseInt(metadata.annotations?.[ANNOTATION.epoch] ?? '0', 10);
}

/** The start that a pod was made for. */
function podEpochOf({ spec }: ObjectOf<'pods'>): number {
  const env = spec.containers.find(({ name }) => name === CONTAINER)?.env ?? [];
  return Number.parseInt(env.find(({ name }) => name === EPOCH_VARIABLE)?.value ?? '0', 10);
}

function statusesOf({ status }: ObjectOf<'pods'>) {
  const parsed = statuses.safeParse(status['containerStatuses'] ?? []);
  return parsed.success ? parsed.data : [];
}

function restartsOf(pod: ObjectOf<'pods'>): number {
  return statusesOf(pod)[0]?.restartCount ?? 0;
}

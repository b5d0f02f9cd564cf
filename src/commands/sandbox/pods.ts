import { decideObserved } from '../../domain/sandbox/decide-pod.ts';
import type { Observation } from '../../domain/sandbox/decide-pod.ts';
import { bytesOfQuantity, podBounds } from '../../domain/sandbox/pod.ts';
import type { PodSpec } from '../../domain/sandbox/pod.ts';
import type { OpenSandbox } from '../../domain/sandbox/state.ts';
import { reject } from '../../domain/kernel/rejection.ts';
import type { Rejection } from '../../domain/kernel/rejection.ts';
import { SandboxUnavailableError } from '../../drivers/sandbox/port.ts';
import type { PodVolume } from '../../drivers/sandbox/port.ts';
import type { CommitMeta } from '../repository.ts';
import { sandboxRef } from './deps.ts';
import type { SandboxDeps } from './deps.ts';

/** Why a pod of this spec cannot be had on this Host; null: it can. */
export async function podRefusal(
  { pods, podMaxima }: Pick<SandboxDeps, 'pods' | 'podMaxima'>,
  spec: PodSpec,
): Promise<Rejection | null> {
  const status = await pods.status();
  if (!status.available) return reject('sandbox_unavailable', `This Host runs no pods: ${status.reason}.`);
  const { image, network } = spec;
  if (image !== undefined && !pods.images.includes(image)) {
    const none = 'Pods of this Host have the programs of its machine. Leave image out.';
    const some = `The image of a pod is one of ${pods.images.join(', ')}. Name one of these, or none.`;
    return reject('sandbox_unavailable', pods.images.length === 0 ? none : some);
  }
  if ((network?.allow.length ?? 0) > 0 && pods.noNetwork !== null) {
    const message = `Pods of this Host have no network: ${pods.noNetwork}. Leave network out, or use a virtual sandbox.`;
    return reject('sandbox_unavailable', message);
  }
  const { cpus = 0, memory = '0', storage = '0' } = spec;
  const { cpus: cpusMax, memoryBytes, storageBytes } = podMaxima;
  const isTooMuch = cpus > cpusMax || bytesOfQuantity(memory) > memoryBytes || bytesOfQuantity(storage) > storageBytes;
  if (!isTooMuch) return null;
  const most = `${cpusMax} cpus, ${memoryBytes} bytes of memory and ${storageBytes} of storage`;
  return reject('sandbox_unavailable', `A pod of this Host has ${most} at most. Ask for less.`);
}

/** Which volume a pod has now. */
export function volumeOf(tenant: string, { sandboxId, createdPosition, machine }: OpenSandbox): PodVolume {
  return { tenant, sandboxId, createdPosition, generation: machine?.volumeGeneration ?? 1 };
}

export interface ReadyPod {
  readonly kind: 'done';
  readonly volume: PodVolume;
}

/**
 * Makes the volume of a pod where it was not made yet, and records what was found. A volume that was made and is not
 * there is lost: an empty one in its place would hide that.
 * @throws what the object store throws for the files of its source
 */
export async function readyPod(
  deps: SandboxDeps,
  { tenant, state, meta }: { readonly tenant: string; readonly state: OpenSandbox; readonly meta: CommitMeta },
): Promise<ReadyPod | Rejection> {
  const { machine } = state;
  if (machine === null || machine.desired === 'deleted') return lostVolume('the pod has expired');
  const volume = volumeOf(tenant, state);
  const { hostEpoch, volumeGeneration } = machine;
  const found = async (seen: Pick<Observation, 'observed' | 'reason'>) => {
    // The files of a stopped pod can be read: this does not start it.
    if (machine.desired !== 'running') return;
    const observation = { ...seen, hostEpoch, volumeGeneration };
    await deps.loop.execute(deps.sandboxes, sandboxRef(tenant, state.sandboxId), {
      ...meta,
      decide: (now) => decideObserved(now, observation),
    });
  };
  if (machine.volume !== volumeGeneration) {
    const first = await deps.workspaces.load(tenant, state.files);
    const read = async (sha256: string) => await deps.workspaces.bytes(tenant, first.objectOf(sha256));
    const { image, network } = state.spec as PodSpec;
    const hasNetwork = (network?.allow.length ?? 0) > 0;
    const machineOf = { limits: podBounds(state.spec), image, hasNetwork, hostEpoch };
    await deps.pods.provision(volume, machineOf, { manifest: first.manifest, contents: { read } });
  } else if (!(await deps.pods.has(volume))) {
    await found({ observed: 'lost', reason: 'its volume is not on this machine' });
    return lostVolume('its volume is not on this machine');
  }
  await found({ observed: 'running' });
  return { kind: 'done', volume };
}

function lostVolume(why: string): Rejection {
  return reject('sandbox_lost', `The files of the pod are lost: ${why}. Reset the sandbox to start with none.`);
}

/** What the next call or the next sweep makes up for, when the driver cannot do it now. */
export async function ifReachable(work: () => Promise<unknown>): Promise<void> {
  try {
    await work();
  } catch (error) {
    if (!(error instanceof SandboxUnavailableError)) throw error;
  }
}

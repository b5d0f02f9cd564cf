import { createHash } from 'node:crypto';
import { z } from 'zod';
import type { PodMachine, PodVolume } from '../port.ts';
import { INIT, MOUNTS } from './programs.ts';

export interface PodSettings {
  /** Which Host the objects of the namespace belong to. */
  readonly owner: string;
  /** What pods may be made of; the first when their spec does not say. */
  readonly images: readonly string[];
  readonly runtimeClass: string | undefined;
  readonly storageClass: string | undefined;
}

/** What a pod is made with, as its volume remembers it. */
const machine = z.object({
  image: z.string(),
  cpus: z.number(),
  memoryBytes: z.number(),
  storageBytes: z.number(),
  hasNetwork: z.boolean().default(false),
});
export type MachineOf = z.infer<typeof machine>;

const volume = z.object({
  tenant: z.string(),
  sandboxId: z.string(),
  createdPosition: z.int(),
  generation: z.int(),
});

export const OWNER = 'agent-host/owner';
/** Of pods that reach the proxies of the Host: policies of the network name it (deploy/kubernetes/pods). */
const NETWORK = { 'agent-host/network': 'proxy' } as const;
const MANAGED = 'app.kubernetes.io/managed-by';
export const ANNOTATION = {
  volume: 'agent-host/volume',
  machine: 'agent-host/machine',
  filled: 'agent-host/filled',
  epoch: 'agent-host/host-epoch',
  awakeUntil: 'agent-host/awake-until',
} as const;
export const EPOCH_VARIABLE = 'AGENT_HOST_EPOCH';
export const CONTAINER = 'sandbox';
const UID = 1_000;
/** Of a processor, that a pod is sure to have. */
const CPU_REQUEST = 0.1;
const ENDING_SECONDS = 2;

/** Of everything that belongs to a volume. Hosts of one namespace may hold the same ids, one being a copy of the other. */
export function nameOf({ tenant, sandboxId, createdPosition, generation }: PodVolume, owner: string): string {
  const digest = createHash('sha256').update(`${owner}\0${tenant}\0${sandboxId}`).digest('hex').slice(0, 32);
  return `ah-${digest}-${createdPosition}-${generation}`;
}

/** Null: something else has the labels of a volume. */
export function volumeOf(annotations: Readonly<Record<string, string>> | undefined): PodVolume | null {
  const parsed = volume.safeParse(read(annotations?.[ANNOTATION.volume]));
  return parsed.success ? parsed.data : null;
}

export function machineOf(annotations: Readonly<Record<string, string>> | undefined): MachineOf | null {
  const parsed = machine.safeParse(read(annotations?.[ANNOTATION.machine]));
  return parsed.success ? parsed.data : null;
}

function read(text: string | undefined): unknown {
  try {
    return text === undefined ? null : JSON.parse(text);
  } catch {
    return null;
  }
}

export function machineFor({ limits, hasNetwork = false }: Omit<PodMachine, 'hostEpoch'>, image: string): MachineOf {
  const { cpus, memoryBytes, storageBytes } = limits;
  return { image, cpus, memoryBytes, storageBytes, hasNetwork };
}

function metadata(of: PodVolume, { owner }: PodSettings, annotations: Readonly<Record<string, string>>) {
  const { tenant, sandboxId, createdPosition, generation } = of;
  const named = JSON.stringify({ tenant, sandboxId, createdPosition, generation });
  return {
    name: nameOf(of, owner),
    labels: { [OWNER]: owner, [MANAGED]: 'agent-host' },
    annotations: { [ANNOTATION.volume]: named, ...annotations },
  };
}

/** The volume: what stays when the pod is suspended, and what is lost when it is not there. */
export function claimOf(of: PodVolume, settings: PodSettings, made: MachineOf) {
  const { storageClass } = settings;
  return {
    ...{ apiVersion: 'v1', kind: 'PersistentVolumeClaim' },
    metadata: metadata(of, settings, { [ANNOTATION.machine]: JSON.stringify(made) }),
    spec: {
      accessModes: ['ReadWriteOnce'],
      resources: { requests: { storage: String(made.storageBytes) } },
      ...(storageClass === undefined ? {} : { storageClassName: storageClass }),
    },
  };
}

/** The machine, which the controller of Agent Sandbox keeps in one pod. */
export function sandboxOf(
  of: PodVolume,
  settings: PodSettings,
  { made, hostEpoch }: { readonly made: MachineOf; readonly hostEpoch: number },
) {
  return {
    ...{ apiVersion: 'agents.x-k8s.io/v1beta1', kind: 'Sandbox' },
    metadata: metadata(of, settings, { [ANNOTATION.epoch]: String(hostEpoch) }),
    spec: {
      operatingMode: 'Running',
      service: false,
      podTemplate: {
        metadata: {
          labels: { [OWNER]: settings.owner, [MANAGED]: 'agent-host', ...(made.hasNetwork ? NETWORK : {}) },
        },
        spec: podSpec(of, settings, { made, hostEpoch }),
      },
    },
  };
}

function podSpec(
  of: PodVolume,
  { owner, runtimeClass }: PodSettings,
  { made, hostEpoch }: { readonly made: MachineOf; readonly hostEpoch: number },
) {
  return {
    ...(runtimeClass === undefined ? {} : { runtimeClassName: runtimeClass }),
    // Nothing in the pod may speak to the API server, or learn which services there are.
    ...{ automountServiceAccountToken: false, enableServiceLinks: false, restartPolicy: 'Always' },
    terminationGracePeriodSeconds: ENDING_SECONDS,
    // The proxy resolves names. A look-up in the pod fails at once, instead of waiting for a server that is out of reach.
    ...{ dnsPolicy: 'None', dnsConfig: { nameservers: ['127.0.0.1'] } },
    securityContext: {
      ...{ runAsNonRoot: true, runAsUser: UID, runAsGroup: UID, fsGroup: UID, fsGroupChangePolicy: 'OnRootMismatch' },
      seccompProfile: { type: 'RuntimeDefault' },
    },
    containers: [container(nameOf(of, owner), made, hostEpoch)],
    volumes: [
      { name: 'volume', persistentVolumeClaim: { claimName: nameOf(of, owner) } },
      { name: 'tmp', emptyDir: { sizeLimit: String(Math.max(1_048_576, Math.floor(made.memoryBytes / 2))) } },
    ],
  };
}

function container(name: string, { image, cpus, memoryBytes }: MachineOf, hostEpoch: number) {
  const memory = String(memoryBytes);
  return {
    ...{ name: CONTAINER, image, command: ['bash', '-c', INIT] },
    env: [
      { name: 'AGENT_HOST_SANDBOX', value: name },
      // A pod that was started for an older epoch refuses the commands of a newer one, and the other way round.
      { name: EPOCH_VARIABLE, value: String(hostEpoch) },
      { name: 'AGENT_HOST_WORKSPACE', value: MOUNTS.workspace },
      { name: 'AGENT_HOST_STATE', value: MOUNTS.state },
      { name: 'AGENT_HOST_TMP', value: MOUNTS.tmp },
    ],
    resources: {
      limits: { cpu: String(cpus), memory },
      requests: { cpu: String(Math.min(cpus, CPU_REQUEST)), memory },
    },
    securityContext: {
      ...{ allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: { drop: ['ALL'] } },
    },
    // Parts of the volume: at its root, file systems have directories of their own.
    volumeMounts: [
      { name: 'volume', mountPath: MOUNTS.workspace, subPath: 'workspace' },
      { name: 'volume', mountPath: MOUNTS.state, subPath: 'state' },
      { name: 'tmp', mountPath: MOUNTS.tmp },
    ],
  };
}

/** The changes that start a pod, for an epoch. */
export function startPatch(
  of: PodVolume,
  settings: PodSettings,
  to: { readonly made: MachineOf; readonly hostEpoch: number },
) {
  const { metadata: wanted, spec } = sandboxOf(of, settings, to);
  return { metadata: { annotations: wanted.annotations }, spec };
}

/**
 * No pod of this Host speaks to anyone: neither in nor out. Policies add up: another lets those that may use it out to the
 * proxies of the Host.
 */
export function networkPolicyOf({ owner }: PodSettings) {
  return {
    ...{ apiVersion: 'networking.k8s.io/v1', kind: 'NetworkPolicy' },
    metadata: { name: `agent-host-${owner}`, labels: { [OWNER]: owner, [MANAGED]: 'agent-host' } },
    spec: {
      podSelector: { matchLabels: { [OWNER]: owner } },
      policyTypes: ['Ingress', 'Egress'],
      ingress: [],
      egress: [],
    },
  };
}

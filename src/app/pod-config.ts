import { availableParallelism } from 'node:os';
import ipaddr from 'ipaddr.js';
import { z } from 'zod';
import type { PodMaxima } from '../domain/sandbox/pod.ts';
import { StartError } from '../lib/start-error.ts';
import { addressOf, listen, oneOf, whole } from './variables.ts';
import type { Address } from './variables.ts';

const ACCOUNT = '/var/run/secrets/kubernetes.io/serviceaccount';
/** As Kubernetes lets objects and labels be called. */
const name = z.string().regex(/^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/, "must be lower-case letters, digits and '-'");
const images = z
  .string()
  .transform((text) => text.split(',').map((part) => part.trim()))
  .pipe(z.array(z.string().min(1).max(500)).min(1));

/** Variables of pods; README.md explains each. */
export const podVariables = {
  AGENT_HOST_PODS: oneOf(['auto', 'kubernetes', 'off']).default('auto'),
  AGENT_HOST_PODS_DIR: z.string().min(1).optional(),
  AGENT_HOST_POD_CPUS: whole(1, 1_024).optional(),
  AGENT_HOST_POD_MEMORY_MIB: whole(64, 1_048_576).default(4_096),
  AGENT_HOST_POD_STORAGE_MIB: whole(1, 16_777_216).default(10_240),
  AGENT_HOST_POD_SWEEP_SECONDS: whole(1, 3_600).default(30),
  AGENT_HOST_PODS_OWNER: name.default('agent-host'),
  AGENT_HOST_POD_IMAGES: images.default(['debian:13']),
  AGENT_HOST_POD_RUNTIME_CLASS: name.optional(),
  AGENT_HOST_POD_STORAGE_CLASS: name.optional(),
  AGENT_HOST_POD_START_SECONDS: whole(1, 3_600).default(120),
  AGENT_HOST_POD_PROXY_LISTEN: listen.optional(),
  AGENT_HOST_KUBERNETES_NAMESPACE: name.default('agent-host-pods'),
  AGENT_HOST_KUBERNETES_URL: z.url({ protocol: /^https$/, error: 'must be an https address' }).optional(),
  AGENT_HOST_KUBERNETES_TOKEN_FILE: z.string().min(1).default(`${ACCOUNT}/token`),
  AGENT_HOST_KUBERNETES_CA_FILE: z.string().min(1).optional(),
  KUBERNETES_SERVICE_HOST: z.string().min(1).optional(),
  KUBERNETES_SERVICE_PORT: whole(1, 65_535).default(443),
};

type Variables = z.infer<z.ZodObject<typeof podVariables>>;

/** Pods of a cluster. */
export interface KubernetesConfig {
  readonly server: URL;
  readonly namespace: string;
  readonly tokenFile: string;
  /** Null: the system's certificates. */
  readonly caFile: string | null;
  readonly owner: string;
  readonly images: readonly string[];
  readonly runtimeClass: string | undefined;
  readonly storageClass: string | undefined;
  readonly startMs: number;
  /** Where pods reach the proxy of this node, if it runs turns; null: pods have no network. */
  readonly proxy: Address | null;
}

export interface PodConfig {
  readonly enabled: boolean;
  /** Null: pods are on this machine. */
  readonly kubernetes: KubernetesConfig | null;
  /** Absent: `pods` in the data directory. */
  readonly directory: string | undefined;
  /** What one pod may have at most. */
  readonly maxima: PodMaxima;
  /** Between two rounds of what suspends and removes pods, ms. */
  readonly sweepMs: number;
}

/** @throws StartError */
export function podsOf(env: Variables): PodConfig {
  return {
    enabled: env.AGENT_HOST_PODS !== 'off',
    kubernetes: env.AGENT_HOST_PODS === 'kubernetes' ? kubernetesOf(env) : null,
    directory: env.AGENT_HOST_PODS_DIR,
    maxima: {
      cpus: env.AGENT_HOST_POD_CPUS ?? availableParallelism(),
      memoryBytes: env.AGENT_HOST_POD_MEMORY_MIB * 1_048_576,
      storageBytes: env.AGENT_HOST_POD_STORAGE_MIB * 1_048_576,
    },
    sweepMs: env.AGENT_HOST_POD_SWEEP_SECONDS * 1000,
  };
}

function kubernetesOf(env: Variables): KubernetesConfig {
  const { KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: port, AGENT_HOST_KUBERNETES_URL: url } = env;
  if (url === undefined && host === undefined) {
    const message = 'AGENT_HOST_PODS is kubernetes, and this is no pod of a cluster; set AGENT_HOST_KUBERNETES_URL';
    throw new StartError(message);
  }
  const authority = host?.includes(':') === true ? `[${host}]` : host;
  return {
    server: new URL(url ?? `https://${authority}:${port}`),
    namespace: env.AGENT_HOST_KUBERNETES_NAMESPACE,
    tokenFile: env.AGENT_HOST_KUBERNETES_TOKEN_FILE,
    // A server that is named may have a certificate that everyone trusts; that of the cluster has none.
    caFile: env.AGENT_HOST_KUBERNETES_CA_FILE ?? (url === undefined ? `${ACCOUNT}/ca.crt` : null),
    owner: env.AGENT_HOST_PODS_OWNER,
    images: env.AGENT_HOST_POD_IMAGES,
    runtimeClass: env.AGENT_HOST_POD_RUNTIME_CLASS,
    storageClass: env.AGENT_HOST_POD_STORAGE_CLASS,
    startMs: env.AGENT_HOST_POD_START_SECONDS * 1000,
    proxy: env.AGENT_HOST_POD_PROXY_LISTEN === undefined ? null : proxyOf(env.AGENT_HOST_POD_PROXY_LISTEN),
  };
}

/** Pods have no names: the address is what they are told. */
function proxyOf(text: string): Address {
  const address = addressOf(text);
  if (ipaddr.isValid(address.host) && ipaddr.parse(address.host).range() !== 'unspecified') return address;
  throw new StartError('AGENT_HOST_POD_PROXY_LISTEN must be the IP address at which pods reach this node, and a port');
}

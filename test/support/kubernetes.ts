import { openKubernetesPods } from '#src/drivers/sandbox/kubernetes/driver.ts';
import { KubernetesApi } from '#src/drivers/sandbox/kubernetes/api.ts';
import type { PodProxies } from '#src/drivers/sandbox/kubernetes/proxies.ts';
import type { PodDriver } from '#src/drivers/sandbox/port.ts';
import { KubernetesTestServer, NAMESPACE, TOKEN } from './kubernetes-api.ts';
import type { ClusterOptions } from './kubernetes-cluster.ts';
import type { TestPods } from './pods.ts';

/** The Host's client of a server. */
export function apiOf({ url, ca }: KubernetesTestServer, token = TOKEN): KubernetesApi {
  const server = new URL(url);
  return new KubernetesApi({ server, namespace: NAMESPACE, token: async () => await Promise.resolve(token), ca });
}

/** The Host's pods in the cluster of a server. */
export function podsOf(
  { url, ca }: KubernetesTestServer,
  { owner = 'test', startMs = 60_000, proxies = null as PodProxies | null } = {},
): PodDriver {
  const token = async () => await Promise.resolve(TOKEN);
  const access = { server: new URL(url), namespace: NAMESPACE, token, ca };
  const images = ['debian:13', 'node:26'];
  const classes = { runtimeClass: 'gvisor', storageClass: 'fast' };
  return openKubernetesPods({ access, startMs, owner, images, ...classes, proxies });
}

export interface ClusterPods extends TestPods {
  readonly server: KubernetesTestServer;
}

/** Pods in a cluster of their own. */
export async function openClusterPods(options: ClusterOptions): Promise<ClusterPods> {
  const server = await KubernetesTestServer.open(options);
  const driver = podsOf(server);
  return {
    ...{ server, driver, backend: 'kubernetes', directory: server.cluster.directory },
    [Symbol.asyncDispose]: async () => {
      await driver.stop();
      await server[Symbol.asyncDispose]();
    },
  };
}

const INIT = "trap 'exit 0' TERM; exec 3<> <(:); while :; do read -r -t 3600 -u 3; done";

/** A Sandbox that does nothing. */
export function someSandbox(name: string, labels: Readonly<Record<string, string>> = {}) {
  const volumeMounts = [{ name: 'tmp', mountPath: '/tmp' }];
  const env = [{ name: 'TMPDIR', value: '/tmp' }];
  const container = { name: 'sandbox', image: 'any', command: ['bash', '-c', INIT], env, volumeMounts };
  return {
    ...{ apiVersion: 'agents.x-k8s.io/v1beta1', kind: 'Sandbox', metadata: { name, labels } },
    spec: {
      operatingMode: 'Running',
      podTemplate: { metadata: {}, spec: { containers: [container], volumes: [{ name: 'tmp', emptyDir: {} }] } },
    },
  };
}

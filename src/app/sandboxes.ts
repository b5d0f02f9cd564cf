import { existsSync, readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { ChildProgram } from '../drivers/sandbox/confinement.ts';
import { PodProxies } from '../drivers/sandbox/kubernetes/proxies.ts';
import { openPods } from '../drivers/sandbox/pod/driver.ts';
import type { PodDriver, SandboxDriver } from '../drivers/sandbox/port.ts';
import { openVirtualSandboxes } from '../drivers/sandbox/virtual.ts';
import { installed } from '../lib/installation.ts';
import type { Logger } from '../lib/logger.ts';
import { StartError } from '../lib/start-error.ts';
import type { SandboxConfig } from './config.ts';
import { listening } from './listening.ts';
import type { KubernetesConfig } from './pod-config.ts';
import type { Address } from './variables.ts';

export interface SandboxesOptions {
  readonly config: SandboxConfig;
  /** Where system programs are looked up; absent: in the usual places. */
  readonly path: string | undefined;
  readonly logger: Logger;
}

/** Sandboxes without a machine, of this node. Nothing is started before the first command. */
export function openSandboxes({ config, path, logger }: SandboxesOptions): SandboxDriver {
  const { children, childrenPerTenant, childrenIdle, memoryMiB, bubblewrap } = config;
  const shares = { children, childrenPerTenant, childrenIdle };
  return openVirtualSandboxes({
    ...shares,
    memoryMiB,
    bubblewrap,
    program: childProgram(),
    path,
    log: (message) => logger.warn(message),
  });
}

export interface PodsOptions {
  readonly config: SandboxConfig;
  /** Whether this process runs commands of pods. */
  readonly isEngine: boolean;
  /** Of the processes of this Host, from 1. */
  readonly process: number;
  readonly dataDir: string;
  readonly path: string | undefined;
  readonly logger: Logger;
}

/**
 * Pods of this node or of a cluster, which may not be able to run any. Nothing is tried before it is asked for, but that
 * the proxy of a cluster's pods listens. @throws StartError
 */
export async function openPodDriver(options: PodsOptions): Promise<PodDriver> {
  const { config, dataDir, path, logger } = options;
  const { children, childrenPerTenant, pods } = config;
  if (pods.kubernetes !== null) return await openClusterPods(pods.kubernetes, options);
  const built = fileURLToPath(new URL('sandbox/bridge.mjs', import.meta.url));
  const program = existsSync(built) ? built : fileURLToPath(installed('src/drivers/sandbox/bridge/main.ts'));
  return openPods({
    ...{ enabled: pods.enabled, directory: pods.directory ?? join(dataDir, 'pods'), children, childrenPerTenant, path },
    ...{ users: 'auto', cgroups: 'auto', bridge: { node: process.execPath, program } },
    log: (message) => logger.warn(message),
  });
}

async function openClusterPods(
  { server, namespace, tokenFile, caFile, proxy, ...settings }: KubernetesConfig,
  options: PodsOptions,
): Promise<PodDriver> {
  const token = async () => (await readFile(tokenFile, 'utf8')).trim();
  const ca = caFile === null ? undefined : certificates(caFile);
  const proxies = proxy === null ? null : await openProxies(proxy, options);
  const { openKubernetesPods } = await import('../drivers/sandbox/kubernetes/driver.ts');
  return openKubernetesPods({ ...settings, access: { server, namespace, token, ca }, proxies });
}

/** Each process has its own commands, and so a port of its own: the first that is named, the others those after it. */
async function openProxies(
  { host, port }: Address,
  { isEngine, process: number }: Pick<PodsOptions, 'isEngine' | 'process'>,
): Promise<PodProxies> {
  const proxies = new PodProxies();
  const own = port === 0 ? 0 : port + number - 1;
  if (isEngine)
    await listening(own, 'AGENT_HOST_POD_PROXY_LISTEN', async () => await proxies.listen({ host, port: own }));
  return proxies;
}

function certificates(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (cause) {
    const message = `the certificates of Kubernetes cannot be read from ${path}; name them in AGENT_HOST_KUBERNETES_CA_FILE`;
    throw new StartError(message, { cause });
  }
}

/** What a child runs: in a build the file beside this one, else the sources. */
function childProgram(): ChildProgram {
  const built = fileURLToPath(new URL('sandbox/child.mjs', import.meta.url));
  if (existsSync(built)) return { node: process.execPath, file: built, readable: [dirname(built)] };
  const readable = ['src', 'node_modules', 'package.json'].map((path) => fileURLToPath(installed(path)));
  return { node: process.execPath, file: fileURLToPath(installed('src/drivers/sandbox/child/main.ts')), readable };
}

import { existsSync, readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { ChildProgram } from '../drivers/sandbox/confinement.ts';
import { openKubernetesPods } from '../drivers/sandbox/kubernetes/driver.ts';
import { openPods } from '../drivers/sandbox/pod/driver.ts';
import type { PodDriver, SandboxDriver } from '../drivers/sandbox/port.ts';
import { openVirtualSandboxes } from '../drivers/sandbox/virtual.ts';
import { installed } from '../lib/installation.ts';
import type { Logger } from '../lib/logger.ts';
import { StartError } from '../lib/start-error.ts';
import type { SandboxConfig } from './config.ts';
import type { KubernetesConfig } from './pod-config.ts';

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
  readonly dataDir: string;
  readonly path: string | undefined;
  readonly logger: Logger;
}

/** Pods of this node or of a cluster, which may not be able to run any. Nothing is tried before it is asked for. */
export function openPodDriver({ config, dataDir, path, logger }: PodsOptions): PodDriver {
  const { children, childrenPerTenant, pods } = config;
  if (pods.kubernetes !== null) return openClusterPods(pods.kubernetes);
  const built = fileURLToPath(new URL('sandbox/bridge.mjs', import.meta.url));
  const program = existsSync(built) ? built : fileURLToPath(installed('src/drivers/sandbox/bridge/main.ts'));
  return openPods({
    ...{ enabled: pods.enabled, directory: pods.directory ?? join(dataDir, 'pods'), children, childrenPerTenant, path },
    ...{ users: 'auto', cgroups: 'auto', bridge: { node: process.execPath, program } },
    log: (message) => logger.warn(message),
  });
}

function openClusterPods({ server, namespace, tokenFile, caFile, ...settings }: KubernetesConfig): PodDriver {
  const token = async () => (await readFile(tokenFile, 'utf8')).trim();
  const ca = caFile === null ? undefined : certificates(caFile);
  return openKubernetesPods({ ...settings, access: { server, namespace, token, ca } });
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

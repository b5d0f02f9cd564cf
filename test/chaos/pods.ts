import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { KubernetesTestServer, NAMESPACE, TOKEN } from '../support/kubernetes-api.ts';
import { podWays } from '../support/pods.ts';

/** Where the pods of a run are: on this machine, or in a cluster whose API server can be killed. */
export class Pods implements AsyncDisposable {
  /** Null: they are of this machine. */
  readonly cluster: KubernetesTestServer | null;
  readonly #directory: string;

  private constructor(cluster: KubernetesTestServer | null, directory: string) {
    [this.cluster, this.#directory] = [cluster, directory];
  }

  /** @param wanted where bubblewrap may be used; elsewhere they are in a cluster, whose containers need nothing */
  static async start(wanted: 'machine' | 'cluster'): Promise<Pods> {
    const cluster = wanted === 'cluster' || podWays().length === 0 ? await KubernetesTestServer.open() : null;
    const pods = new Pods(cluster, await mkdtemp(join(tmpdir(), 'agent-host-chaos-')));
    if (cluster !== null) {
      await writeFile(pods.#file('token'), TOKEN);
      await writeFile(pods.#file('ca'), cluster.ca);
    }
    return pods;
  }

  /** Of each Host. */
  get environment(): Readonly<Record<string, string>> {
    const sweep = { AGENT_HOST_POD_SWEEP_SECONDS: '2' };
    if (this.cluster === null) return { ...sweep, AGENT_HOST_PODS_DIR: this.#file('volumes') };
    return {
      ...{ ...sweep, AGENT_HOST_PODS: 'kubernetes', AGENT_HOST_KUBERNETES_URL: this.cluster.url },
      ...{ AGENT_HOST_KUBERNETES_NAMESPACE: NAMESPACE, AGENT_HOST_KUBERNETES_TOKEN_FILE: this.#file('token') },
      AGENT_HOST_KUBERNETES_CA_FILE: this.#file('ca'),
    };
  }

  /** What there is of pods: volumes, and what runs on them or is to. */
  async left(): Promise<readonly string[]> {
    const { cluster } = this;
    if (cluster === null) return await readdir(this.#file('volumes')).catch(() => []);
    return ['sandboxes', 'pods', 'persistentvolumeclaims'].flatMap((resource) =>
      cluster.store.all(resource).map(({ metadata }) => `${resource}/${metadata.name}`),
    );
  }

  /** Whether an argument of a process is a file of a pod of this machine. */
  isOf(commandLine: string): boolean {
    return commandLine.includes(this.#file('volumes'));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.cluster?.[Symbol.asyncDispose]();
    await rm(this.#directory, { recursive: true, force: true });
  }

  #file(name: string): string {
    return join(this.#directory, name);
  }
}

import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { hasBubblewrap, startConfined, startPlain } from './kubernetes-container.ts';
import type { Container } from './kubernetes-container.ts';
import { reachable, wire } from './kubernetes-network.ts';
import type { Peer, Policy } from './kubernetes-network.ts';
import type { KubernetesStore, StoredObject } from './kubernetes-store.ts';

export interface ClusterOptions {
  /** What containers are made of. */
  readonly way: 'bubblewrap' | 'plain';
}

interface PodSpec {
  readonly containers: readonly {
    readonly name: string;
    readonly image: string;
    readonly command: readonly string[];
    readonly env?: readonly { readonly name: string; readonly value?: string }[];
    readonly volumeMounts?: readonly { readonly name: string; readonly mountPath: string; readonly subPath?: string }[];
  }[];
  readonly volumes?: readonly {
    readonly name: string;
    readonly persistentVolumeClaim?: { readonly claimName: string };
  }[];
}

/** How containers can be made on this machine. */
export function clusterWay(): ClusterOptions['way'] {
  return hasBubblewrap() ? 'bubblewrap' : 'plain';
}

/**
 * A controller of Agent Sandbox, a kubelet and a provisioner of volumes: they bring the pods of this machine to what the
 * objects say, and the statuses of objects to what the pods do.
 */
export class KubernetesCluster {
  readonly directory = mkdtempSync(join(tmpdir(), 'agent-host-cluster-'));
  readonly #store: KubernetesStore;
  readonly #way: ClusterOptions['way'];
  /** By the unique id of the pod. */
  readonly #containers = new Map<string, Container>();
  readonly #off: () => void;
  /** How often a pod's container has ended, and why the last time. */
  readonly #ends = new Map<string, { readonly count: number; readonly reason: string }>();
  /** What pods may be let out to. */
  readonly peers: Peer[] = [];
  #addresses = 0;
  /** Images that cannot be had: their pods never start. */
  readonly missingImages = new Set<string>();
  #work: Promise<void> = Promise.resolve();
  #failure: unknown = null;
  #isStopped = false;

  constructor(store: KubernetesStore, { way = clusterWay() }: Partial<ClusterOptions>) {
    this.#store = store;
    this.#way = way;
    store.held.add('pods').add('persistentvolumeclaims');
    this.#off = store.onChange(() => this.#look());
  }

  get way(): ClusterOptions['way'] {
    return this.#way;
  }

  container(pod: StoredObject): Container | undefined {
    return this.#containers.get(pod.metadata.uid);
  }

  /** A node goes away with the pod on it; the controller makes another. */
  async vanish(name: string): Promise<void> {
    const pod = this.#store.demand('pods', name);
    await this.container(pod)?.kill();
    this.#containers.delete(pod.metadata.uid);
    if (this.#store.get('pods', name) !== undefined) this.#store.release('pods', name);
  }

  /** A kubelet ends a pod because its node has too little memory: it stays, and is not started again. */
  async evict(name: string): Promise<void> {
    const pod = this.#store.demand('pods', name);
    this.#store.setStatus('pods', name, { phase: 'Failed', reason: 'Evicted', conditions: [] });
    await this.container(pod)?.kill();
  }

  /** The kernel ends a container that has too much memory; it is started again in its pod. */
  async outOfMemory(name: string): Promise<void> {
    const pod = this.#store.demand('pods', name);
    const { count } = this.#ends.get(pod.metadata.uid) ?? { count: 0 };
    this.#ends.set(pod.metadata.uid, { count, reason: 'OOMKilled' });
    await this.container(pod)?.kill();
  }

  /** Settles when nothing is left to be done. */
  async settled(): Promise<void> {
    for (let seen = this.#work; ; seen = this.#work) {
      await seen;
      if (seen === this.#work) return;
    }
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#off();
    await this.#work;
    for (const container of this.#containers.values()) await container.kill();
    execFileSync('chmod', ['-R', 'u+rwX', '--', this.directory]);
    execFileSync('rm', ['-rf', '--', this.directory]);
    if (this.#failure !== null) throw new Error('the cluster has failed', { cause: this.#failure });
  }

  #look(): void {
    this.#work = this.#work.then(async () => {
      if (this.#isStopped) return;
      try {
        await this.#reconcile();
      } catch (error) {
        // The others are cared for as before; the test fails at its end.
        this.#failure ??= error;
      }
    });
  }

  async #reconcile(): Promise<void> {
    const store = this.#store;
    for (const sandbox of store.all('sandboxes')) this.#direct(sandbox);
    for (const pod of store.all('pods')) await this.#run(pod);
    for (const { metadata } of store.all('persistentvolumeclaims')) this.#provide(metadata);
    for (const sandbox of store.all('sandboxes')) this.#report(sandbox);
  }

  #direct({ metadata: { name, uid }, spec }: StoredObject): void {
    const store = this.#store;
    const pod = store.get('pods', name);
    if (spec['operatingMode'] === 'Suspended') {
      if (pod !== undefined && pod.metadata.deletionTimestamp === undefined) store.remove('pods', name);
      return;
    }
    if (pod !== undefined) return;
    const template = spec['podTemplate'] as { spec: Record<string, unknown>; metadata?: { labels?: object } };
    const labels = { ...template.metadata?.labels } as Record<string, string>;
    const metadata = { name, labels, ownerReferences: [{ uid }] } as unknown as StoredObject['metadata'];
    store.create('pods', { kind: 'Pod', metadata, spec: template.spec, status: { phase: 'Pending' } }, 'sandboxes');
  }

  async #run(listed: StoredObject): Promise<void> {
    const pod = this.#store.get('pods', listed.metadata.name);
    // It has changed since it was listed: there is another round.
    if (pod === undefined || pod.metadata.uid !== listed.metadata.uid) return;
    const { name, uid, deletionTimestamp, ownerReferences } = pod.metadata;
    const isOwned = this.#store.all('sandboxes').some(({ metadata }) => metadata.uid === ownerReferences?.[0]?.uid);
    if (deletionTimestamp !== undefined || !isOwned) {
      await this.container(pod)?.kill();
      this.#containers.delete(uid);
      if (this.#store.get('pods', name)?.metadata.uid === uid) this.#store.release('pods', name);
      return;
    }
    if (this.#containers.has(uid) || pod.status?.['phase'] === 'Failed') return;
    const container = await this.#start(pod);
    if (container === null) return;
    this.#containers.set(uid, container);
    const address = this.#address(pod);
    const unwire = await this.#wired(pod, container, address);
    void container.ended.then(async () => {
      await unwire();
      // A kubelet starts what has ended again, in the same pod.
      if (this.#containers.get(uid) === container) this.#containers.delete(uid);
      const { count, reason } = this.#ends.get(uid) ?? { count: 0, reason: 'Error' };
      this.#ends.set(uid, { count: count + 1, reason });
      this.#look();
    });
    const conditions = [{ type: 'Ready', status: 'True' }];
    const { count: restartCount, reason } = this.#ends.get(uid) ?? { count: 0, reason: '' };
    const lastState = restartCount === 0 ? {} : { terminated: { reason } };
    const containerStatuses = [{ name: 'sandbox', restartCount, lastState }];
    const podIPs = [{ ip: address }];
    this.#store.setStatus('pods', name, { phase: 'Running', podIPs, conditions, containerStatuses });
  }

  /** Where its connections come from: it keeps it when its container is started again. */
  #address({ status }: StoredObject): string {
    const [kept] = (status?.['podIPs'] ?? []) as readonly { readonly ip: string }[];
    if (kept !== undefined) return kept.ip;
    this.#addresses += 1;
    return `127.1.${this.#addresses >> 8}.${this.#addresses & 255}`;
  }

  /** As a network plugin does it that enforces policies, where its containers have networks of their own. */
  async #wired(pod: StoredObject, { network }: Container, address: string): Promise<() => Promise<void>> {
    const policies = this.#store.all('networkpolicies').map(({ spec }) => spec as unknown as Policy);
    const { namespace, labels = {} } = pod.metadata;
    const peers = reachable({ namespace, labels, policies }, this.peers);
    if (network === null || peers.length === 0) return async () => await Promise.resolve();
    return await wire(pod, peers, { enter: network, directory: this.directory, address });
  }

  async #start({ metadata, spec }: StoredObject): Promise<Container | null> {
    const { containers, volumes = [] } = spec as unknown as PodSpec;
    const [first] = containers;
    if (first === undefined || this.missingImages.has(first.image)) return null;
    const mounts = new Map<string, string>();
    for (const { name, mountPath, subPath = '.' } of first.volumeMounts ?? []) {
      const claim = volumes.find((volume) => volume.name === name)?.persistentVolumeClaim?.claimName;
      const isThere = claim === undefined || this.#store.get('persistentvolumeclaims', claim) !== undefined;
      // It waits for its volume.
      if (!isThere) return null;
      const directory =
        claim === undefined ? join(this.directory, `pod-${metadata.uid}`, name) : join(this.#volume(claim), subPath);
      mkdirSync(directory, { recursive: true });
      mounts.set(mountPath, directory);
    }
    const env = Object.fromEntries((first.env ?? []).map(({ name, value }) => [name, value ?? '']));
    const what = { command: first.command, env, mounts };
    return this.#way === 'plain' ? startPlain(what) : await startConfined(what);
  }

  #volume(claim: string): string {
    const uid = this.#store.get('persistentvolumeclaims', claim)?.metadata.uid ?? '';
    return join(this.directory, `volume-${uid}`);
  }

  /** A claim that is removed stays as long as a pod uses it. */
  #provide({ name, deletionTimestamp }: StoredObject['metadata']): void {
    this.#store.setStatus('persistentvolumeclaims', name, { phase: 'Bound' });
    if (deletionTimestamp === undefined) return;
    const isUsed = this.#store.all('pods').some(({ spec }) => {
      const { volumes = [] } = spec as unknown as PodSpec;
      return volumes.some(({ persistentVolumeClaim }) => persistentVolumeClaim?.claimName === name);
    });
    if (isUsed) return;
    const directory = this.#volume(name);
    this.#store.release('persistentvolumeclaims', name);
    mkdirSync(directory, { recursive: true });
    execFileSync('chmod', ['-R', 'u+rwX', '--', directory]);
    execFileSync('rm', ['-rf', '--', directory]);
  }

  #report({ metadata: { name }, spec }: StoredObject): void {
    const pod = this.#store.get('pods', name);
    const isSuspended = spec['operatingMode'] === 'Suspended';
    const phase = pod?.status?.['phase'];
    const isReady = phase === 'Running' && pod?.metadata.deletionTimestamp === undefined && !isSuspended;
    const reason = isSuspended
      ? 'SandboxSuspended'
      : isReady
        ? 'DependenciesReady'
        : `Dependencies${phase === 'Failed' ? 'Failed' : 'NotReady'}`;
    const suspended = { type: 'Suspended', status: pod === undefined ? 'True' : 'False', reason: 'PodTerminated' };
    this.#store.setStatus('sandboxes', name, {
      conditions: [{ type: 'Ready', status: isReady ? 'True' : 'False', reason }, ...(isSuspended ? [suspended] : [])],
    });
  }
}

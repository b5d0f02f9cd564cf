import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import type { Server } from 'node:net';
import { join } from 'node:path';
import type { StoredObject } from './kubernetes-store.ts';

type Labels = Readonly<Record<string, string>>;

interface Selector {
  readonly matchLabels?: Labels;
}

interface Rule {
  readonly to?: readonly Party[];
  readonly from?: readonly Party[];
  readonly ports?: readonly { readonly port: number; readonly endPort?: number }[];
}

interface Party {
  readonly namespaceSelector?: Selector;
  readonly podSelector?: Selector;
}

/** As deploy/ and the Host write them: by labels and numbers of ports. */
export interface Policy {
  readonly podSelector: Selector;
  readonly policyTypes: readonly string[];
  readonly ingress?: readonly Rule[];
  readonly egress?: readonly Rule[];
}

/** A pod of another namespace that listens on this machine. */
export interface Peer {
  readonly namespace: string;
  readonly labels: Labels;
  /** Where it listens on loopback, and the port that it has in the manifests. */
  readonly port: number;
  readonly declared: number;
  /** Of its own namespace. */
  readonly policies: readonly Policy[];
}

interface End {
  readonly namespace: string;
  readonly labels: Labels;
  readonly policies: readonly Policy[];
}

/** What is in the pod's network: it listens where a peer does, and hands bytes on to the plugin. */
const FORWARD = `
const net = require('node:net');
const [directory, ...ports] = process.argv.slice(1);
let left = ports.length;
for (const port of ports) {
  const server = net.createServer({ allowHalfOpen: true }, (from) => {
    const to = net.connect({ path: directory + '/' + port, allowHalfOpen: true });
    for (const [one, other] of [[from, to], [to, from]]) { one.pipe(other); one.on('error', () => other.destroy()); }
  });
  server.listen(Number(port), '127.0.0.1', () => --left || process.stdout.write('ready'));
}
`;

/** Peers that the policies of both ends let a pod reach. */
export function reachable(pod: End, peers: readonly Peer[]): readonly Peer[] {
  return peers.filter((peer) => lets(pod, peer, 'egress', peer.declared) && lets(peer, pod, 'ingress', peer.declared));
}

function lets(own: End, other: End, way: 'egress' | 'ingress', port: number): boolean {
  const type = way === 'egress' ? 'Egress' : 'Ingress';
  const selecting = own.policies.filter(
    ({ podSelector, policyTypes }) => policyTypes.includes(type) && selects(podSelector, own.labels),
  );
  const rules = selecting.flatMap((policy) => policy[way] ?? []);
  const isLet = ({ to, from, ports }: Rule): boolean =>
    ((way === 'egress' ? to : from) ?? []).some(
      ({ namespaceSelector, podSelector }) =>
        selects(namespaceSelector, { 'kubernetes.io/metadata.name': other.namespace }) &&
        selects(podSelector, other.labels),
    ) && (ports ?? []).some(({ port: first, endPort = first }) => first <= port && port <= endPort);
  return selecting.length === 0 || rules.some(isLet);
}

function selects(selector: Selector | undefined, labels: Labels): boolean {
  return Object.entries(selector?.matchLabels ?? {}).every(([name, value]) => labels[name] === value);
}

/** The network of a pod whose namespace has none: the way to these peers, from an address of its own. */
export async function wire(
  pod: StoredObject,
  peers: readonly Peer[],
  { enter, directory, address }: { readonly enter: readonly string[]; directory: string; address: string },
): Promise<() => Promise<void>> {
  const sockets = join(directory, `net-${pod.metadata.uid.slice(0, 8)}`);
  mkdirSync(sockets);
  const open = new Set<{ destroy: () => unknown }>();
  const servers: Server[] = [];
  for (const { port } of peers) {
    const server = createServer({ allowHalfOpen: true }, (from) => {
      const to = connect({ host: '127.0.0.1', port, localAddress: address, allowHalfOpen: true });
      for (const [one, other] of [
        [from, to],
        [to, from],
      ] as const) {
        open.add(one);
        one.pipe(other);
        one.on('error', () => other.destroy());
        one.on('close', () => open.delete(one));
      }
    });
    servers.push(server);
    server.listen(join(sockets, String(port)));
    await once(server, 'listening');
  }
  const ports = peers.map(({ port }) => String(port));
  const child = spawn('nsenter', [...enter, process.execPath, '-e', FORWARD, sockets, ...ports], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  await Promise.race([once(child.stdout, 'data'), once(child, 'exit')]);
  return async () => {
    child.kill('SIGKILL');
    for (const one of open) one.destroy();
    await Promise.all(servers.map(async (server) => await new Promise((resolve) => server.close(resolve))));
  };
}

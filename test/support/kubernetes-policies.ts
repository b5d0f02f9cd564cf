import { parseAllDocuments } from 'yaml';
import { read } from '../tidy/tree.ts';
import { NAMESPACE } from './kubernetes-api.ts';
import type { KubernetesTestServer } from './kubernetes-api.ts';
import type { Policy } from './kubernetes-network.ts';

/** The port of AGENT_HOST_POD_PROXY_LISTEN in deploy/. */
const DECLARED = 7_080;

interface Document {
  readonly kind: string;
  readonly metadata: { readonly name: string };
  readonly spec: Policy & Record<string, unknown>;
}

/** Policies of a file of deploy/, where the namespace of pods is that of the test server. */
function policiesOf(file: string): readonly Document[] {
  return parseAllDocuments(read(`deploy/kubernetes/${file}`).replaceAll('agent-host-pods', NAMESPACE))
    .map((document) => document.toJS() as Document)
    .filter(({ kind }) => kind === 'NetworkPolicy');
}

/** Applies the policies of deploy/ for pods. */
export function applyPolicies({ store }: KubernetesTestServer): void {
  for (const { kind, metadata, spec } of policiesOf('pods/cluster/network.yaml'))
    store.create('networkpolicies', { kind, metadata: { ...metadata } as never, spec }, NAMESPACE);
}

/** An engine of a Host whose proxy listens on this port of loopback, behind the policies of its own namespace. */
export function engineAt({ cluster }: KubernetesTestServer, port: number): void {
  const policies = ['base/network.yaml', 'pods/host/network.yaml'].flatMap(policiesOf).map(({ spec }) => spec);
  const labels = { app: 'agent-host', role: 'engine' };
  cluster.peers.push({ namespace: 'agent-host', labels, port, declared: DECLARED, policies });
}

import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { VARIABLES } from '#src/app/config.ts';
import { PROCESSES_MAX } from '#src/app/processes/plan.ts';
import { ROLES } from '#src/app/roles.ts';
import { STOP_MS } from '#src/app/until-stopped.ts';
import { SECRET_VARIABLES } from '#src/app/secret-files.ts';
import { machineFor, sandboxOf } from '#src/drivers/sandbox/kubernetes/manifests.ts';
import {
  at,
  compose,
  composeHosts,
  containersOf,
  documents,
  dockerfile,
  environmentOf,
  files,
  hosts,
  isHost,
  jobs,
  labelsOf,
  list,
  literals,
  madeSecrets,
  names,
  ofKind,
  packageJson,
  podOf,
  services,
  workloads,
  yamlFiles,
} from './deployed.ts';
import type { Json } from './deployed.ts';
import { committable, read, sources } from './tree.ts';

/**
 * What is in deploy/ names things of the program and of itself. There is no Docker engine and no cluster where this runs:
 * these tests read the files, docs/operations/several-nodes.md says what was tried by hand.
 */
describe('the environment', () => {
  const known = [...VARIABLES, ...SECRET_VARIABLES.map((name) => `${name}_FILE`)];
  const inKubernetes = [...hosts, ...jobs].flatMap(environmentOf);

  test('every variable is one that the Host reads', () => {
    const inImage = [...dockerfile.matchAll(/\b((?:AGENT_HOST|S3)_\w+)=/g)].map(([, name]) => name ?? '');
    const inCompose = Object.values(services)
      .filter(({ image }) => isHost(image))
      .flatMap(({ environment }) => names(environment));
    expect(composeHosts).toHaveLength(3);
    expect(hosts).toHaveLength(3);
    expect([...inImage, ...inCompose, ...inKubernetes].filter((name) => !known.includes(name))).toEqual([]);
  });

  test('whatever an installation of several nodes needs, and a cautious operator wants, is set for each of them', () => {
    const needed = ['AGENT_HOST_KEK_FILE', 'NATS_URL_FILE', 'NATS_CA_FILE', 'DATABASE_URL_FILE', 'S3_BUCKET'];
    const wanted = ['AGENT_HOST_EGRESS', 'AGENT_HOST_ACCESS_LOG', 'AGENT_HOST_TRUSTED_PROXIES'];
    const needs = [...needed, ...wanted, 'AGENT_HOST_ROLES', 'AGENT_HOST_LOG_SHARDS', 'AGENT_HOST_LOG_REPLICAS'];
    for (const set of [...hosts.map(environmentOf), ...composeHosts.map(({ environment }) => names(environment))]) {
      expect(needs.filter((name) => !set.includes(name))).toEqual([]);
    }
  });

  test('every role runs, on two nodes at least', () => {
    const inCompose = composeHosts.map((service) => [
      at(service, 'environment', 'AGENT_HOST_ROLES'),
      at(service, 'deploy', 'replicas'),
    ]);
    const inCluster = hosts.map((workload) => {
      const roles = containersOf(workload)
        .flatMap(({ env }) => list(env))
        .find(({ name }) => name === 'AGENT_HOST_ROLES');
      const scaler = ofKind('HorizontalPodAutoscaler').find(
        (one) => at(one, 'spec', 'scaleTargetRef', 'name') === at(workload, 'metadata', 'name'),
      );
      return [roles?.['value'], at(workload, 'spec', 'replicas') ?? at(scaler, 'spec', 'minReplicas')];
    });
    for (const nodes of [inCompose, inCluster]) {
      expect(
        nodes
          .map(([roles]) => String(roles).split(','))
          .flat()
          .toSorted(),
      ).toEqual([...ROLES].toSorted());
      expect(nodes.every(([, replicas]) => Number(replicas) >= 2)).toBe(true);
    }
  });
});

function isSelected(selector: unknown, labels: Json): boolean {
  const equal = Object.entries(Object(at(selector, 'matchLabels')) as Json);
  return (
    equal.every(([key, value]) => labels[key] === value) &&
    list(at(selector, 'matchExpressions')).every(({ key, operator, values }) => {
      const isIn = (values as unknown[]).includes(labels[String(key)]);
      return operator === 'In' ? isIn : !isIn;
    })
  );
}

describe('what is named', () => {
  test('exists: resources, files of generators, secrets that the script makes', () => {
    const missing: string[] = [];
    for (const file of yamlFiles.filter((name) => name.endsWith('kustomization.yaml'))) {
      const [kustomization] = documents(file);
      const folder = path.posix.dirname(file);
      const there = (name: string) =>
        files.some(
          (one) => one === path.posix.join(folder, name) || one.startsWith(`${path.posix.join(folder, name)}/`),
        );
      const named = (at(kustomization, 'resources') as string[]).concat(
        list(at(kustomization, 'configMapGenerator')).flatMap(
          (generator) => (at(generator, 'files') as string[] | undefined) ?? [],
        ),
      );
      missing.push(...named.filter((name) => !there(name)));
      const secrets = list(at(kustomization, 'secretGenerator')).flatMap(({ files: of }) => of as string[]);
      missing.push(...secrets.filter((name) => !madeSecrets.includes(path.posix.basename(name))));
    }
    for (const secret of Object.values(Object(at(compose, 'secrets')) as Json)) {
      const name = path.posix.basename(String(at(secret, 'file')));
      if (!madeSecrets.includes(name)) missing.push(name);
    }
    for (const { volumes } of Object.values(services)) {
      const mounted = ((volumes as string[] | undefined) ?? []).map((volume) => volume.split(':')[0] ?? '');
      const gone = (name: string) =>
        name.startsWith('./')
          ? !files.includes(path.posix.join('deploy', name))
          : !names(at(compose, 'volumes')).includes(name);
      missing.push(...mounted.filter(gone));
    }
    expect(madeSecrets.length).toBeGreaterThan(5);
    expect(missing).toEqual([]);
  });

  test('selectors match what they are for, and ports are those of a container', () => {
    const matches = (selector: unknown) =>
      workloads.filter((workload) =>
        Object.entries(Object(selector) as Json).every(([key, value]) => labelsOf(workload)[key] === value),
      );
    for (const workload of workloads) {
      expect(matches(at(workload, 'spec', 'selector', 'matchLabels'))).toEqual([workload]);
    }
    const budgets = ofKind('PodDisruptionBudget').map((budget) =>
      matches(at(budget, 'spec', 'selector', 'matchLabels')),
    );
    expect(budgets.flat().length, 'each workload has a disruption budget').toBe(workloads.length);
    for (const service of ofKind('Service')) {
      const [target, ...others] = matches(at(service, 'spec', 'selector'));
      expect(others).toEqual([]);
      const own = containersOf(target ?? {}).flatMap(({ ports }) => list(ports));
      for (const { port, targetPort } of list(at(service, 'spec', 'ports'))) {
        expect(
          own.some(({ name, containerPort }) => [name, containerPort].includes((targetPort ?? port) as string)),
        ).toBe(true);
      }
    }
    // Those of pods of sandboxes are held against what the Host makes, below.
    const own = ofKind('NetworkPolicy').filter((policy) => at(policy, 'metadata', 'namespace') === undefined);
    expect(own.length).toBeGreaterThan(5);
    for (const policy of own) {
      const selector = at(policy, 'spec', 'podSelector');
      expect([...workloads, ...jobs].filter((workload) => isSelected(selector, labelsOf(workload)))).not.toEqual([]);
    }
  });

  test('pods of sandboxes are let out to the proxies of engines: labels, ports and namespaces are those of both ends', () => {
    const [component] = documents('deploy/kubernetes/pods/host/kustomization.yaml');
    const patched = list(at(component, 'patches')).flatMap(({ patch }) => list(parse(String(patch))));
    const variables = patched.map(({ value }) => [at(value, 'name'), at(value, 'value')]);
    const [, listens] = variables.find(([name]) => name === 'AGENT_HOST_POD_PROXY_LISTEN') ?? [];
    expect(VARIABLES).toContain('AGENT_HOST_POD_PROXY_LISTEN');
    const port = Number(/^\$\(POD_IP\):(\d+)$/.exec(String(listens))?.[1]);
    const ports = [{ port, endPort: port + PROCESSES_MAX - 1 }];
    const [pods, hostSide] = ofKind('NetworkPolicy')
      .filter((policy) => at(policy, 'metadata', 'name') === 'pods-to-proxy')
      .toSorted((one) => (at(one, 'metadata', 'namespace') === undefined ? 1 : -1));
    const engine = { matchLabels: { app: 'agent-host', role: 'engine' } };
    const namespaceOf = (name: unknown) => ({ matchLabels: { 'kubernetes.io/metadata.name': name } });
    const [, hostNamespace] = documents('deploy/kubernetes/pods/cluster/rbac.yaml').map((object) =>
      at(object, 'subjects', 0, 'namespace'),
    );
    const podSelector = { matchLabels: { 'agent-host/network': 'proxy' } };
    expect(at(pods, 'spec')).toEqual({
      ...{ podSelector, policyTypes: ['Egress'] },
      egress: [{ to: [{ namespaceSelector: namespaceOf(hostNamespace), podSelector: engine }], ports }],
    });
    const podNamespace = at(pods, 'metadata', 'namespace');
    expect(at(component, 'configMapGenerator', 0, 'literals')).toContain(
      `AGENT_HOST_KUBERNETES_NAMESPACE=${String(podNamespace)}`,
    );
    expect(at(hostSide, 'spec')).toEqual({
      ...{ podSelector: engine, policyTypes: ['Ingress'] },
      ingress: [{ from: [{ namespaceSelector: namespaceOf(podNamespace), podSelector }], ports }],
    });
    // What the Host gives a pod.
    const machine = (hasNetwork: boolean) => ({
      made: machineFor({ limits: { cpus: 1, memoryBytes: 1, storageBytes: 1 }, hasNetwork }, 'debian:13'),
      hostEpoch: 1,
    });
    const volume = { tenant: 't', sandboxId: 's', createdPosition: 1, generation: 1 };
    const settings = { owner: 'o', images: [], runtimeClass: undefined, storageClass: undefined };
    const labels = (hasNetwork: boolean) =>
      sandboxOf(volume, settings, machine(hasNetwork)).spec.podTemplate.metadata.labels;
    expect(isSelected(podSelector, labels(true))).toBe(true);
    expect(isSelected(podSelector, labels(false))).toBe(false);
  });

  test('probes ask for what is served, where it is served', () => {
    const routes = sources('src/http/routes').flatMap((file) =>
      [...read(file).matchAll(/app\.get\(\s*'([^']+)'/g)].map(([, route]) => route),
    );
    const asked: unknown[] = [
      ...[...read('deploy/haproxy.cfg').matchAll(/meth GET uri (\S+)/g)].map(([, route]) => route),
      /127\.0\.0\.1:7070(\/\w+)/.exec(dockerfile)?.[1],
    ];
    for (const container of hosts.flatMap(containersOf)) {
      for (const probe of ['startupProbe', 'readinessProbe', 'livenessProbe']) {
        asked.push(at(container, probe, 'httpGet', 'path'));
        expect(at(container, probe, 'httpGet')).toEqual(
          // Readiness is that of the node alone, on the private port (app/metrics/server.ts).
          probe === 'readinessProbe' ? { path: '/ready', port: 'metrics' } : { path: '/health', port: 'http' },
        );
      }
      const ports = list(container['ports']).map(({ containerPort }) => String(containerPort));
      expect(/^EXPOSE (.*)$/m.exec(dockerfile)?.[1]?.split(' ')).toEqual(ports);
      for (const port of ports) expect(dockerfile).toMatch(new RegExp(`LISTEN=0\\.0\\.0\\.0:${port}\\b`));
    }
    expect(asked.length).toBe(12);
    expect(asked.filter((route) => !routes.includes(String(route)))).toEqual([]);
  });
});

describe('images', () => {
  test('are pinned by version', () => {
    const used = [
      ...Object.values(services).map(({ image }) => image),
      ...[...workloads, ...jobs].flatMap(containersOf).map(({ image }) => image),
    ];
    const based = [/^ARG NODE=(\S+)$/m.exec(dockerfile)?.[1]];
    expect([...dockerfile.matchAll(/^FROM (\S+)/gm)].map(([, image]) => image)).toEqual(['${NODE}', '${NODE}']);
    for (const image of [...used, ...based]) {
      expect(image).toMatch(/:v?\d+\.\d+(\.\d+)?(-\w+)?$/);
    }
    expect(new Set(used.filter(isHost))).toEqual(new Set([`agent-host:${packageJson.version}`]));
    expect(based).toEqual([`node:${packageJson.devDependencies['node']}-slim`]);
    pinned(new Set([...used, ...based].filter((image) => !isHost(image))));
  });

  /**
   * Digests are no part of this repository, which could not keep them true: a script asks the registries for them, and an
   * installation without its answer is not applied.
   */
  function pinned(foreign: ReadonlySet<unknown>): void {
    const script = read('deploy/pin-images.sh');
    expect(new Set([...script.matchAll(/^[A-Z]+=(\S+:\S+)$/gm)].map(([, image]) => image))).toEqual(foreign);
    expect(script).toContain(`HOST_TAG=${packageJson.version}\n`);
    for (const name of names(services)) expect(script).toMatch(new RegExp(`\\b${name}\\b`));
    expect(at(documents('deploy/kubernetes/example/kustomization.yaml')[0], 'components')).toEqual(['images']);
    expect(script).toContain('kubernetes/example/images/kustomization.yaml');
    expect(files).not.toContain('deploy/kubernetes/example/images/kustomization.yaml');
  }

  test('the one of the Host copies what is there, runs as non-root, and gets its signals', () => {
    const copied = [...dockerfile.matchAll(/^COPY (?!--from)(.*) \S+$/gm)].flatMap(
      ([, sourcesOf]) => sourcesOf?.split(' ') ?? [],
    );
    const tree = committable();
    const kept = read('deploy/Dockerfile.dockerignore')
      .split('\n')
      .filter((line) => line.startsWith('!'));
    expect(copied.length).toBeGreaterThan(4);
    for (const name of copied) {
      expect(
        tree.some((file) => file === name || file.startsWith(`${name}/`)),
        name,
      ).toBe(true);
      expect(kept).toContain(`!${name}`);
    }
    expect(dockerfile).toMatch(/^USER [1-9]\d*:/m);
    expect(dockerfile).toMatch(/^ENTRYPOINT \["node", "\/app\/dist\/main\.mjs"\]$/m);
  });
});

test('a stop is given longer than the Host takes at most', () => {
  const drain = (seconds: unknown) => Number(seconds) * 1_000;
  for (const service of composeHosts) {
    const grace = Number.parseInt(String(service['stop_grace_period']), 10) * 1_000;
    expect(grace).toBeGreaterThan(STOP_MS + drain(at(service, 'environment', 'AGENT_HOST_DRAIN_SECONDS')));
  }
  const inCluster = literals.find((literal) => literal.startsWith('AGENT_HOST_DRAIN_SECONDS='))?.split('=')[1];
  for (const workload of hosts) {
    const grace = Number(at(workload, 'spec', 'template', 'spec', 'terminationGracePeriodSeconds')) * 1_000;
    expect(grace).toBeGreaterThan(STOP_MS + drain(inCluster));
  }
});

test('containers of the cluster cannot write their root, nor become more than they are', () => {
  for (const workload of [...workloads, ...jobs]) {
    expect(at(podOf(workload), 'spec')).toMatchObject({
      automountServiceAccountToken: false,
      securityContext: { runAsNonRoot: true, seccompProfile: { type: 'RuntimeDefault' } },
    });
    for (const { securityContext } of containersOf(workload)) {
      expect(securityContext).toMatchObject({
        readOnlyRootFilesystem: true,
        allowPrivilegeEscalation: false,
        capabilities: { drop: ['ALL'] },
      });
    }
  }
});

test('every alert links to a heading that is there', () => {
  const links = [...read('deploy/prometheus/alerts.yml').matchAll(/runbook_url: (\S+)#(\S+)/g)];
  const slug = (heading: string) =>
    heading
      .toLowerCase()
      .replaceAll(/[^\w -]/g, '')
      .replaceAll(' ', '-');
  const isThere = (file: string, anchor: string) =>
    [...read(file).matchAll(/^#+ (.*)$/gm)].some(([, heading]) => slug(heading ?? '') === anchor);
  expect(links.length).toBeGreaterThan(5);
  expect(links.filter(([, file, anchor]) => !isThere(file ?? '', anchor ?? '')).map(([link]) => link)).toEqual([]);
});

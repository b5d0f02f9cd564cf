import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { parseAllDocuments } from 'yaml';
import { ROLES, VARIABLES } from '#src/app/config.ts';
import { STOP_MS } from '#src/app/run.ts';
import { SECRET_VARIABLES } from '#src/app/secret-files.ts';
import { committable, read, sources } from './tree.ts';

/**
 * What is in deploy/ names things of the program and of itself. There is no Docker engine and no cluster where this runs:
 * these tests read the files, docs/operations.md says what was tried by hand.
 */
type Json = Record<string, unknown>;

const files = committable().filter((file) => file.startsWith('deploy/'));
const yamlFiles = files.filter((file) => /\.ya?ml$/.test(file));
const documents = (file: string): Json[] =>
  parseAllDocuments(read(file), { merge: true }).map((document) => {
    expect(document.errors, file).toEqual([]);
    return document.toJS() as Json;
  });
const at = (value: unknown, ...keys: (string | number)[]): unknown =>
  keys.reduce<unknown>(
    (inner, key) => (inner === null || inner === undefined ? inner : Reflect.get(Object(inner), key)),
    value,
  );
const list = (value: unknown): Json[] => (Array.isArray(value) ? (value as Json[]) : []);
const names = (value: unknown): string[] => Object.keys(Object(value) as Json);

const compose = documents('deploy/compose.yaml')[0] ?? {};
const services = Object(at(compose, 'services')) as Record<string, Json>;
const objects = yamlFiles.filter((file) => file.startsWith('deploy/kubernetes/')).flatMap(documents);
const ofKind = (...kinds: string[]): Json[] => objects.filter(({ kind }) => kinds.includes(String(kind)));
const workloads = ofKind('Deployment', 'StatefulSet');
const containersOf = (workload: Json): Json[] => list(at(workload, 'spec', 'template', 'spec', 'containers'));
const labelsOf = (workload: Json): Json => Object(at(workload, 'spec', 'template', 'metadata', 'labels')) as Json;
const isHost = (image: unknown): boolean => String(image).startsWith('agent-host:');
const hosts = workloads.filter((workload) => containersOf(workload).some(({ image }) => isHost(image)));
const literals = ofKind('Kustomization')
  .flatMap((kustomization) => list(at(kustomization, 'configMapGenerator')))
  .flatMap((generator) => (at(generator, 'literals') as string[] | undefined) ?? []);
const composeHosts = Object.values(services).filter(({ image }) => isHost(image));
const dockerfile = read('deploy/Dockerfile');
const packageJson = JSON.parse(read('package.json')) as { version: string; devDependencies: Record<string, string> };
const madeSecrets = [...read('deploy/make-secrets.sh').matchAll(/\| put ([\w.-]+)$/gm)].map(([, name]) => name);

describe('the environment', () => {
  const known = [...VARIABLES, ...SECRET_VARIABLES.map((name) => `${name}_FILE`)];
  const inKubernetes = [...literals.map((literal) => literal.split('=')[0] ?? ''), 'AGENT_HOST_ROLES'];

  test('every variable is one that the Host reads', () => {
    const inImage = [...dockerfile.matchAll(/\b((?:AGENT_HOST|S3)_\w+)=/g)].map(([, name]) => name ?? '');
    const inCompose = composeHosts.flatMap(({ environment }) => names(environment));
    expect(composeHosts).toHaveLength(3);
    expect([...inImage, ...inCompose, ...inKubernetes].filter((name) => !known.includes(name))).toEqual([]);
  });

  test('whatever an installation of several nodes needs is set for each of them', () => {
    const needed = [
      'AGENT_HOST_KEK_FILE',
      'AGENT_HOST_ADMIN_KEY_FILE',
      'NATS_URL_FILE',
      'DATABASE_URL_FILE',
      'S3_BUCKET',
    ];
    const needs = [...needed, 'AGENT_HOST_ROLES', 'AGENT_HOST_LOG_SHARDS', 'AGENT_HOST_LOG_REPLICAS'];
    for (const set of [inKubernetes, ...composeHosts.map(({ environment }) => names(environment))]) {
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
      return [roles?.['value'], at(workload, 'spec', 'replicas')];
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
    for (const policy of ofKind('NetworkPolicy')) {
      const labels = at(policy, 'spec', 'podSelector', 'matchLabels') ?? {};
      expect(matches(labels)).not.toEqual([]);
    }
  });

  test('probes ask for what is served, where it is served', () => {
    const routes = sources('src/http/routes').flatMap((file) =>
      [...read(file).matchAll(/app\.get\(\s*'([^']+)'/g)].map(([, route]) => route),
    );
    const asked: unknown[] = [
      /meth GET uri (\S+)/.exec(read('deploy/haproxy.cfg'))?.[1],
      /127\.0\.0\.1:7070(\/\w+)/.exec(dockerfile)?.[1],
    ];
    for (const container of hosts.flatMap(containersOf)) {
      for (const probe of ['startupProbe', 'readinessProbe', 'livenessProbe']) {
        asked.push(at(container, probe, 'httpGet', 'path'));
        expect(at(container, probe, 'httpGet', 'port')).toBe('http');
      }
      const ports = list(container['ports']).map(({ containerPort }) => String(containerPort));
      expect(/^EXPOSE (.*)$/m.exec(dockerfile)?.[1]?.split(' ')).toEqual(ports);
      for (const port of ports) expect(dockerfile).toMatch(new RegExp(`LISTEN=0\\.0\\.0\\.0:${port}\\b`));
    }
    expect(asked.length).toBe(11);
    expect(asked.filter((route) => !routes.includes(String(route)))).toEqual([]);
  });
});

describe('images', () => {
  test('are pinned by version', () => {
    const used = [
      ...Object.values(services).map(({ image }) => image),
      ...workloads.flatMap(containersOf).map(({ image }) => image),
    ];
    const based = [...dockerfile.matchAll(/^FROM (\S+)/gm)].map(([, image]) => image);
    for (const image of [...used, ...based]) {
      expect(image).toMatch(/:v?\d+\.\d+(\.\d+)?(-\w+)?$/);
    }
    expect(new Set(used.filter(isHost))).toEqual(new Set([`agent-host:${packageJson.version}`]));
    expect(based).toEqual([
      `node:${packageJson.devDependencies['node']}-slim`,
      `node:${packageJson.devDependencies['node']}-slim`,
    ]);
  });

  test('the one of the Host copies what is there, runs as nobody in particular, and gets its signals', () => {
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
  for (const workload of workloads) {
    expect(at(workload, 'spec', 'template', 'spec', 'securityContext', 'runAsNonRoot')).toBe(true);
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

import { expect } from 'vitest';
import { parseAllDocuments } from 'yaml';
import { committable, read } from './tree.ts';

/** The files of deploy/, read once for the tests that hold them against the program. */
export type Json = Record<string, unknown>;

export const files = committable().filter((file) => file.startsWith('deploy/'));
export const yamlFiles = files.filter((file) => /\.ya?ml$/.test(file));
export const documents = (file: string): Json[] =>
  parseAllDocuments(read(file), { merge: true }).map((document) => {
    expect(document.errors, file).toEqual([]);
    return document.toJS() as Json;
  });
export const at = (value: unknown, ...keys: (string | number)[]): unknown =>
  keys.reduce<unknown>(
    (inner, key) => (inner === null || inner === undefined ? inner : Reflect.get(Object(inner), key)),
    value,
  );
export const list = (value: unknown): Json[] => (Array.isArray(value) ? (value as Json[]) : []);
export const names = (value: unknown): string[] => Object.keys(Object(value) as Json);

export const compose = documents('deploy/compose.yaml')[0] ?? {};
export const services = Object(at(compose, 'services')) as Record<string, Json>;
export const objects = yamlFiles.filter((file) => file.startsWith('deploy/kubernetes/')).flatMap(documents);
export const ofKind = (...kinds: string[]): Json[] => objects.filter(({ kind }) => kinds.includes(String(kind)));
export const workloads = ofKind('Deployment', 'StatefulSet');
export const jobs = ofKind('Job', 'CronJob');
/** The template of a workload's pods, or of a job's. */
export const podOf = (workload: Json): unknown =>
  workload['kind'] === 'CronJob'
    ? at(workload, 'spec', 'jobTemplate', 'spec', 'template')
    : at(workload, 'spec', 'template');
export const containersOf = (workload: Json): Json[] => list(at(podOf(workload), 'spec', 'containers'));
export const labelsOf = (workload: Json): Json => Object(at(podOf(workload), 'metadata', 'labels')) as Json;
export const isHost = (image: unknown): boolean => String(image).startsWith('agent-host:');
export const hosts = workloads.filter((workload) => containersOf(workload).some(({ image }) => isHost(image)));
export const literals = ofKind('Kustomization')
  .flatMap((kustomization) => list(at(kustomization, 'configMapGenerator')))
  .flatMap((generator) => (at(generator, 'literals') as string[] | undefined) ?? []);
export const composeHosts = Object.values(services).filter(
  ({ image, environment }) => isHost(image) && at(environment, 'AGENT_HOST_ROLES') !== undefined,
);
/** Variables that the containers of a workload have. */
export const environmentOf = (workload: Json): string[] =>
  containersOf(workload).flatMap(({ env, envFrom }) => [
    ...list(env).map(({ name }) => String(name)),
    ...(list(envFrom).length > 0 ? literals.map((literal) => literal.split('=')[0] ?? '') : []),
  ]);
export const dockerfile = read('deploy/Dockerfile');
export const packageJson = JSON.parse(read('package.json')) as {
  version: string;
  devDependencies: Record<string, string>;
};
const secretsScript = read('deploy/make-secrets.sh');
/** Users of NATS that the script makes. */
export const natsUsers: readonly string[] = /^users='([^']+)'$/m.exec(secretsScript)?.[1]?.split(' ') ?? [];
const scripted = [...secretsScript.matchAll(/\| put "?([\w.$-]+)"?$/gm)].flatMap(([, name = '']) =>
  name.endsWith('-$user') ? natsUsers.map((user) => name.replace('$user', user)) : [name],
);
const certified = [...secretsScript.matchAll(/^certificate (\S+) /gm)].flatMap(([, name]) => [
  `${name}.crt`,
  `${name}.key`,
]);
/** Files that it leaves. */
export const madeSecrets: readonly string[] = [...scripted, ...certified, 'ca.crt', 'database-url'];

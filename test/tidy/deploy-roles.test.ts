import * as operator from '@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1';
import * as apps from 'kubernetes-models/apps/v1';
import * as autoscaling from 'kubernetes-models/autoscaling/v2';
import * as batch from 'kubernetes-models/batch/v1';
import * as networking from 'kubernetes-models/networking.k8s.io/v1';
import * as policy from 'kubernetes-models/policy/v1';
import * as rbac from 'kubernetes-models/rbac.authorization.k8s.io/v1';
import * as core from 'kubernetes-models/v1';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { readConfig } from '#src/app/config.ts';
import { ROLES } from '#src/app/roles.ts';
import type { Role } from '#src/app/roles.ts';
import { Metrics } from '#src/app/metrics/metrics.ts';
import { poolSize } from '#src/app/read-store.ts';
import { AGGREGATE_KINDS } from '#src/streams/subjects.ts';
import {
  at,
  compose,
  containersOf,
  documents,
  hosts,
  jobs,
  labelsOf,
  list,
  literals,
  madeSecrets,
  natsUsers,
  objects,
  ofKind,
  podOf,
  services,
  workloads,
} from './deployed.ts';
import type { Json } from './deployed.ts';
import { read, sources } from './tree.ts';

/** What each role is given, what clients can reach, and whether a cluster takes the manifests. */

const permissions = read('deploy/kubernetes/base/nats-permissions.conf').replaceAll(/^\s*#.*$/gm, '');
const natsConf = read('deploy/kubernetes/base/nats.conf');

const byText = (one: string, other: string): number => (one < other ? -1 : 1);

/** Files of the secrets that a role's code reads, by the name that it finds them under. */
function secretsOf(name: string): string[] {
  const ofAll = ['ca.crt', 'database-url', 'kek', 'nats-url', 's3-access-key', 's3-secret-key'];
  // Links to artifacts are signed by the admin key, and so is who calls admin routes: an engine does neither.
  if (name === 'api' || name === 'projector') return ['admin-key', ...ofAll];
  if (name === 'engine') return ofAll;
  if (name === 'backup') return ['ca.crt', 'nats-url', 's3-access-key', 's3-secret-key'];
  if (name === 'migrate') return ['ca.crt', 'database-url'];
  throw new Error(`${name} is nobody that is given secrets`);
}

describe('secrets', () => {
  test('each role mounts those that it uses, and its own user of NATS', () => {
    for (const workload of [...hosts, ...jobs]) {
      const name = String(labelsOf(workload)['role']);
      const items = list(at(podOf(workload), 'spec', 'volumes')).flatMap((volume) =>
        list(at(volume, 'secret', 'items')),
      );
      expect(items.map(({ path }) => String(path)).toSorted(byText), name).toEqual(secretsOf(name));
      for (const { key, path } of items) {
        expect(madeSecrets).toContain(key);
        expect(key).toBe(path === 'nats-url' ? `nats-url-${name}` : path);
      }
      const whole = list(at(podOf(workload), 'spec', 'volumes')).filter(
        (volume) => at(volume, 'secret') !== undefined && at(volume, 'secret', 'items') === undefined,
      );
      expect(whole).toEqual([]);
    }
    for (const name of ['migrate', 'api', 'projector', 'engine']) {
      const given = ((services[name]?.['secrets'] ?? []) as unknown[]).map((secret) =>
        typeof secret === 'string' ? [secret, secret] : [at(secret, 'source'), at(secret, 'target')],
      );
      expect(given.map(([, target]) => String(target)).toSorted(byText), name).toEqual(secretsOf(name));
      for (const [source, target] of given) expect(source).toBe(target === 'nats-url' ? `nats-url-${name}` : target);
    }
  });

  test('each file that a variable names is one that is mounted, and no variable of a secret is left without', () => {
    for (const workload of [...hosts, ...jobs]) {
      const set = containersOf(workload).flatMap(({ env, envFrom }) => [
        ...list(env).map(({ name, value }) => [String(name), String(value)] as const),
        ...(list(envFrom).length > 0 ? literals.map((literal) => literal.split('=') as [string, string]) : []),
      ]);
      const mounted = secretsOf(String(labelsOf(workload)['role'])).map((file) => `/run/secrets/${file}`);
      const named = set.filter(([name]) => name.endsWith('_FILE')).map(([, path]) => path);
      // The authority of Postgres is named in its address.
      const needed = mounted.filter((file) => !file.endsWith('ca.crt'));
      expect(
        needed.filter((file) => !named.includes(file)),
        String(labelsOf(workload)['role']),
      ).toEqual([]);
    }
    expect(Object.keys(Object(at(compose, 'secrets')) as Json).filter((name) => !madeSecrets.includes(name))).toEqual(
      [],
    );
  });
});

describe('users of NATS', () => {
  const blocks = new Map(
    permissions
      .split(/^PERMISSIONS_/m)
      .slice(1)
      .map((block) => {
        const allowed = [...(/publish: \{ allow: \[([^\]]*)\]/.exec(block)?.[1]?.matchAll(/"([^"]+)"/g) ?? [])].map(
          ([, subject = '']) => subject,
        );
        return [block.slice(0, block.indexOf(':')).toLowerCase(), allowed] as const;
      }),
  );
  const covers = (pattern: string, subject: string): boolean => {
    const [tokens, wanted] = [pattern.split('.'), subject.split('.')];
    return (
      tokens.every((token, n) => token === '>' || token === wanted[n] || (token === '*' && wanted[n] !== undefined)) &&
      (tokens.at(-1) === '>' ? wanted.length >= tokens.length : wanted.length === tokens.length)
    );
  };
  const may = (user: string, subject: string): boolean =>
    (blocks.get(user) ?? []).some((pattern) => covers(pattern, subject));

  test('are those of the script and of the server, each with permissions', () => {
    const served = [
      ...natsConf.matchAll(/user: "(\w+)", password: \$PASSWORD_(\w+), permissions: \$PERMISSIONS_(\w+)/g),
    ];
    expect(served.map(([, user]) => user)).toEqual(natsUsers);
    for (const [, user = '', ...others] of served)
      expect(others.map((other) => other.toLowerCase())).toEqual([user, user]);
    expect([...blocks.keys()].toSorted()).toEqual(natsUsers.toSorted());
  });

  test('nobody publishes what servers republish, and who does not write commits cannot', () => {
    const republishing = natsUsers.filter((user) => may(user, 'live.0.t.session.s'));
    // Whose own permissions deny it.
    expect(republishing).toEqual(['operator']);
    expect(permissions).toMatch(/PERMISSIONS_OPERATOR[\s\S]*deny: \["live\.>"\]/);
    for (const kind of AGGREGATE_KINDS) {
      const writers = natsUsers.filter((user) => may(user, `evt.0.t.${kind}.i`));
      expect(writers).toContain('api');
      expect(writers).not.toContain('reads');
      expect(writers).not.toContain('backup');
    }
    // A deleted session is purged by the engine of its shard.
    const shards = Number(literals.find((literal) => literal.startsWith('AGENT_HOST_LOG_SHARDS='))?.split('=')[1]);
    const purged = (blocks.get('engine') ?? []).filter((subject) => subject.includes('.PURGE.EVT_'));
    expect(purged).toEqual(Array.from({ length: shards }, (_, shard) => `$JS.API.STREAM.PURGE.EVT_${shard}`));
    // Single messages go only with a tenant.
    const deleting = natsUsers.filter((user) => may(user, '$JS.API.STREAM.MSG.DELETE.EVT_0'));
    expect(deleting.toSorted()).toEqual(['operator', 'projector']);
    expect(at(services['api'], 'environment', 'AGENT_HOST_LOG_SHARDS')).toBe(String(shards));
  });

  test('every subject that the code publishes to is somebody’s', () => {
    const code = sources('src/streams/jetstream').map(read).join('\n');
    const buckets = [...(/BUCKET_NAMES = \[([^\]]+)\]/.exec(code)?.[1] ?? '').matchAll(/'(\w+)'/g)].map(
      ([, name]) => name,
    );
    expect(buckets).toHaveLength(4);
    const topics = sources('src').flatMap((file) =>
      [...read(file).matchAll(/signals\s*\.send\([`'](\w+)\./g)].map(([, topic]) => topic),
    );
    expect(topics).toContain('progress');
    const signals = topics.map((topic) => `signal.${topic}.x`);
    const published = [...buckets.map((name) => `$KV.${name}.k`), 'work.0.t.session.s', ...signals];
    for (const subject of published) {
      expect(
        natsUsers.filter((user) => user !== 'operator' && may(user, subject)),
        subject,
      ).not.toEqual([]);
    }
  });
});

describe('what clients reach', () => {
  const routes = new Set(
    sources('src/http').flatMap((file) =>
      [...read(file).matchAll(/'(\/(?:v1\/[\w/:-]+|health|ready|openapi\.json|docs))'/g)].map(
        ([, route = '']) => route,
      ),
    ),
  );
  const forOperators = (route: string): boolean => /^\/(v1\/admin\/|ready$|health$)/.test(route);
  const [ingress] = ofKind('Ingress');
  const paths = list(at(ingress, 'spec', 'rules')).flatMap((rule) => list(at(rule, 'http', 'paths')));
  const isPublic = (route: string): boolean =>
    paths.some(
      ({ path, pathType }) => route === path || (pathType === 'Prefix' && route.startsWith(`${String(path)}/`)),
    );

  test('is all that is theirs, and neither admin routes nor readiness nor metrics', () => {
    expect(routes.size).toBeGreaterThan(40);
    for (const route of routes) expect(isPublic(route), route).toBe(!forOperators(route));
    for (const { backend } of paths) expect(at(backend, 'service', 'name')).toBe('api');
    const haproxy = read('deploy/haproxy.cfg');
    const begins = /acl public path_beg (.*)$/m.exec(haproxy)?.[1]?.split(' ') ?? [];
    for (const route of routes) {
      const passed = begins.some((path) => route.startsWith(path)) || ['/openapi.json', '/docs'].includes(route);
      expect(passed, route).toBe(!forOperators(route));
    }
    expect(haproxy).not.toContain('7071');
    const ports = services['balancer']?.['ports'] as string[];
    expect(ports.every((port) => port.startsWith('127.0.0.1:'))).toBe(true);
  });

  test('waits longer than an idle stream is silent, and for operators than a deletion takes', () => {
    const keepaliveSeconds = Number(/KEEPALIVE_MS = (\d+)_000/.exec(read('src/app/event-streams.ts'))?.[1]);
    const haproxy = read('deploy/haproxy.cfg');
    const seconds = (text: string, pattern: RegExp): number => Number(pattern.exec(text)?.[1]);
    expect(seconds(haproxy, /^defaults[\s\S]*?timeout server (\d+)s/m)).toBeGreaterThan(keepaliveSeconds);
    expect(seconds(haproxy, /^backend admin[\s\S]*?timeout server (\d+)s/m)).toBeGreaterThan(600);
    const annotations = Object(at(ingress, 'metadata', 'annotations')) as Json;
    expect(Number(annotations['nginx.ingress.kubernetes.io/proxy-read-timeout'])).toBeGreaterThan(keepaliveSeconds);
  });
});

describe('connections to Postgres', () => {
  const sizeOf = (roles: string, shards = '8'): number =>
    poolSize(readConfig({ AGENT_HOST_ROLES: roles }), Number(shards));
  const operators = 3;

  test('fit, also while nodes are replaced, and the pages say how many there are', () => {
    const nodes: readonly (readonly Role[])[] = [['commands', 'reads'], ['projector'], ['engine']];
    expect(nodes.flat().toSorted()).toEqual([...ROLES].toSorted());
    const together = nodes.reduce((sum, roles) => sum + sizeOf(roles.join()), 0);
    // Two of each role, and a third one of each while they are replaced.
    const [usual, replacing] = [2 * together, 3 * together];
    expect(replacing + operators).toBeLessThan(300);
    expect(read('deploy/compose.yaml')).toContain('max_connections=300');
    expect(read('deploy/compose.yaml')).toContain(`${usual} connections, ${replacing} while`);
    expect(read('docs/operations/several-nodes.md')).toContain(`is ${usual}, and ${replacing} while`);
    const [four, eight] = [sizeOf('projector', '4'), sizeOf('projector', '8')];
    const scale = read('docs/scale.md');
    expect(eight - four).toBe(4 + 1);
    expect(scale).toContain(`nodes(projector) × (${four - 4 - 1} + shards + ⌈shards ÷ 4⌉)`);
    expect(scale).toContain(`two of each ${usual}; with 64 shards a projector alone has ${sizeOf('projector', '64')}`);
  });

  test('of a cluster are as many as the pages say where autoscalers go as far as they may', () => {
    const most = hosts.reduce((sum, workload) => {
      const name = at(workload, 'metadata', 'name');
      const scaler = ofKind('HorizontalPodAutoscaler').find(
        (one) => at(one, 'spec', 'scaleTargetRef', 'name') === name,
      );
      const replicas = Number(at(scaler, 'spec', 'maxReplicas') ?? at(workload, 'spec', 'replicas'));
      const surge = Number(at(workload, 'spec', 'strategy', 'rollingUpdate', 'maxSurge'));
      const roles = containersOf(workload)
        .flatMap(({ env }) => list(env))
        .find(({ name: variable }) => variable === 'AGENT_HOST_ROLES');
      return sum + (replicas + surge) * sizeOf(String(roles?.['value']));
    }, operators);
    expect(read('docs/operations/several-nodes.md')).toContain(`are ${most} at most`);
    expect(read('deploy/kubernetes/base/autoscaling.yaml')).toContain(`${most} connections`);
  });
});

test('the rules of the Prometheus operator are those of Prometheus', () => {
  const [rule] = documents('deploy/kubernetes/monitoring/prometheus-rule.yaml');
  expect(at(rule, 'spec')).toEqual(parse(read('deploy/prometheus/alerts.yml')));
});

test('autoscalers go by metrics that there are, of workloads that leave their number to them', () => {
  const metrics = new Set(new Metrics().registry.getMetricsAsArray().map(({ name }) => name));
  const scalers = ofKind('HorizontalPodAutoscaler');
  expect(scalers).toHaveLength(2);
  const adapter = read('deploy/kubernetes/adapter-values.yaml');
  for (const scaler of scalers) {
    const pods = list(at(scaler, 'spec', 'metrics')).flatMap((metric) => {
      const name = at(metric, 'pods', 'metric', 'name');
      return typeof name === 'string' ? [name] : [];
    });
    expect(pods).toHaveLength(1);
    for (const name of pods) {
      expect(metrics.has(name), name).toBe(true);
      expect(adapter).toContain(name.replace('agent_host_', ''));
    }
    const target = workloads.find(
      (workload) => at(workload, 'metadata', 'name') === at(scaler, 'spec', 'scaleTargetRef', 'name'),
    );
    expect(target?.['kind']).toBe('Deployment');
    expect(at(target, 'spec', 'replicas')).toBeUndefined();
  }
});

describe('schemas', () => {
  const models = [apps, autoscaling, batch, networking, policy, rbac, core, operator].flatMap((group) =>
    Object.values(group),
  ) as (new () => unknown)[];
  const modelOf = ({ apiVersion, kind }: Json): { validate: () => void } | undefined =>
    models.find((model) => Reflect.get(model, 'apiVersion') === apiVersion && Reflect.get(model, 'kind') === kind)
      ?.prototype as { validate: () => void } | undefined;

  /** What a cluster's strict check says: wrong types, missing and unknown members. */
  function faultsOf(object: Json): string[] {
    const model = modelOf(object);
    if (model === undefined) return [`no schema of ${String(object['apiVersion'])} ${String(object['kind'])}`];
    const { watched, unread } = watching(object);
    try {
      Reflect.apply(model.validate, watched, []);
    } catch (error) {
      return [String(error)];
    }
    return unread();
  }

  test('every object is one that the published schemas take, without a member that they do not know', () => {
    const applied = objects.filter(
      ({ kind, apiVersion }) => apiVersion !== undefined && !String(kind).match(/^(Kustomization|Component)$/),
    );
    expect(applied.length).toBeGreaterThan(25);
    expect(
      applied.flatMap((object) =>
        faultsOf(object).map(
          (fault) => `${String(object['kind'])} ${String(at(object, 'metadata', 'name'))}: ${fault}`,
        ),
      ),
    ).toEqual([]);
  });

  test('a wrong type, a missing and an unknown member are found', () => {
    const [deployment] = ofKind('Deployment');
    const changed = (change: (spec: Record<string, unknown>) => void): Json => {
      const copy = structuredClone(deployment ?? {});
      change(Object(at(copy, 'spec')) as Json);
      return copy;
    };
    expect(faultsOf(deployment ?? {})).toEqual([]);
    expect(faultsOf(changed((spec) => (spec['replicas'] = 'two')))).not.toEqual([]);
    expect(faultsOf(changed((spec) => delete spec['selector']))).not.toEqual([]);
    expect(faultsOf(changed((spec) => (spec['replica'] = 2)))).toEqual(['/spec/replica']);
  });
});

/** The validators look at every member that their schema knows; members that they never look at are unknown. */
function watching(object: Json): { watched: unknown; unread: () => string[] } {
  const looks: (() => string[])[] = [];
  const watch = (value: object, path: string): object => {
    const seen = new Set<string | symbol>();
    const inner = new Map<string | symbol, unknown>();
    if (!Array.isArray(value))
      looks.push(() =>
        Object.keys(value)
          .filter((key) => !seen.has(key))
          .map((key) => `${path}/${key}`),
      );
    return new Proxy(value, {
      get: (target, key) => {
        seen.add(key);
        const member: unknown = Reflect.get(target, key);
        if (typeof member !== 'object' || member === null) return member;
        if (!inner.has(key)) inner.set(key, watch(member, `${path}/${String(key)}`));
        return inner.get(key);
      },
    });
  };
  return { watched: watch(object, ''), unread: () => looks.flatMap((look) => look()) };
}

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { parseAllDocuments } from 'yaml';
import { EMPTY_MANIFEST } from '#src/domain/sandbox/manifest.ts';
import { nameOf } from '#src/drivers/sandbox/kubernetes/manifests.ts';
import { SandboxUnavailableError } from '#src/drivers/sandbox/port.ts';
import { podSuite } from '../conformance/pod.ts';
import { hasBubblewrap } from '../support/kubernetes-container.ts';
import { Refusal } from '../support/kubernetes-store.ts';
import type { StoredObject } from '../support/kubernetes-store.ts';
import { openClusterPods, podsOf } from '../support/kubernetes.ts';
import type { ClusterPods } from '../support/kubernetes.ts';
import { TestPod } from '../support/pods.ts';
import { MemoryContents } from '../support/sandboxes.ts';
import { until } from '../support/wait-until.ts';
import { read } from '../tidy/tree.ts';

const ways = hasBubblewrap() ? (['bubblewrap'] as const) : (['plain'] as const);
const LONG_MS = 60_000;
const NO_FILES = { manifest: EMPTY_MANIFEST, contents: new MemoryContents() };
/** Words that are in one program of the driver each. */
const RUN = 'flock -w 0.5 9';
const OUTPUT = 'calls/$1/$2';

describe.each(ways)('pods of a cluster whose containers are %s', (way) => {
  podSuite(async () => await openClusterPods({ way }));
});

describe.each(ways)('a cluster whose containers are %s', (way) => {
  let pods: ClusterPods;
  beforeAll(async () => {
    pods = await openClusterPods({ way });
  });
  afterAll(async () => await pods[Symbol.asyncDispose]());

  const started = async () => await TestPod.start(pods.driver);
  const object = (resource: string, one: TestPod): StoredObject | undefined =>
    pods.server.store.get(resource, nameOf(one.volume, 'test'));
  /** A command that has begun, and goes on until there is a file `go`. */
  async function begun(one: TestPod) {
    const answer = one.bash('echo begun >> begun; until [ -e go ]; do sleep 0.05; done; echo went', 600);
    await until('it has begun', async () => (await one.paths())?.includes('begun'), LONG_MS);
    return { answer };
  }
  const go = async (one: TestPod) => await one.call({ name: 'write', input: { path: 'go', content: '' } });
  /** What was delayed begins beside another command, which does not hear of it. */
  async function delivered(one: TestPod) {
    const { answer } = await begun(one);
    await pods.server.execs.deliver();
    await go(one);
    expect(await answer).toMatchObject({ outcome: 'completed', result: { stdout: 'went\n' } });
  }

  test('commands that end at once are heard of at once, and not at their deadline', async () => {
    const one = await started();
    for (let n = 0; n < 25; n++) expect(await one.bash('true')).toMatchObject({ outcome: 'completed' });
  });

  describe('a connection that is cut', () => {
    test.each(['open', 'begun', 'ended', 3] as const)('at %s does not begin a command twice', async (at) => {
      const one = await started();
      pods.server.execs.faults.push({ word: RUN, at });
      expect(await one.out('echo x >> count; cat count')).toBe('x\n');
      expect(pods.server.execs.faults).toEqual([]);
    });

    test('and whose command begins late: what has ended is not begun again, nor is another ended for it', async () => {
      const one = await started();
      pods.server.execs.faults.push({ word: RUN, at: 'delayed' });
      expect(await one.out('echo x >> count; cat count')).toBe('x\n');
      await delivered(one);
      expect(await one.out('cat count')).toBe('x\n');
    });

    test('and whose command was given up meanwhile: it does not begin late either', async () => {
      const [one, { faults }, controller] = [await started(), pods.server.execs, new AbortController()];
      for (const at of ['delayed', ...Array<'open'>(50).fill('open')] as const) faults.push({ word: RUN, at });
      const forsaken = one.bash('echo late > late', 600, controller.signal);
      await until('its connection was cut', () => faults.length < 50, LONG_MS);
      controller.abort(new Error('not wanted'));
      await expect(forsaken).rejects.toThrow('not wanted');
      faults.length = 0;
      await delivered(one);
      expect(await one.paths()).not.toContain('late');
    });

    test('again and again, or without a word, loses no output', async () => {
      const one = await started();
      const { faults } = pods.server.execs;
      for (const at of ['begun', 40_000] as const) faults.push({ word: RUN, at });
      for (const at of ['open', 'ended', 7] as const) faults.push({ word: OUTPUT, at });
      expect(await one.bash(`echo x >> count; printf '€%.0s' $(seq 25000)`)).toMatchObject({
        result: { stdout: '€'.repeat(25_000), exitCode: 0 },
      });
      expect(faults).toEqual([]);
      expect(await one.out('cat count')).toBe('x\n');
    });

    test('so often that its output cannot be had: it is lost, and not begun again', async () => {
      const one = await started();
      const cut = Array.from({ length: 8 }, () => ({ word: OUTPUT, at: 'open' as const }));
      pods.server.execs.faults.push(...cut);
      const answer = await one.bash(`echo x >> count; printf 'x%.0s' $(seq 100000)`);
      expect(answer).toMatchObject({ outcome: 'killed', code: 'sandbox_lost' });
      pods.server.execs.faults.length = 0;
      expect(await one.out('cat count')).toBe('x\n');
    });

    test('while the API server is away does not end a command', async () => {
      const one = await started();
      const { answer } = await begun(one);
      pods.server.refuse('GET', '/', new Refusal(503, 'ServiceUnavailable'), 4);
      pods.server.execs.cut();
      await until('it is back', () => pods.server.faults.every(({ times }) => times === 0), LONG_MS);
      await go(one);
      expect(await answer).toMatchObject({ outcome: 'completed', result: { stdout: 'went\n' } });
      expect(await one.out('cat begun')).toBe('begun\n');
    });

    test('does not keep a command that is given up from being ended', async () => {
      const one = await started();
      const controller = new AbortController();
      const answer = one.bash('echo begun > begun; while true; do date +%s%N > beat; done', 600, controller.signal);
      await until('it has begun', async () => (await one.paths())?.includes('beat'), LONG_MS);
      pods.server.execs.faults.push({ word: 'end aborted', at: 'open' });
      controller.abort(new Error('not wanted'));
      await expect(answer).rejects.toThrow('not wanted');
      const beat = await one.out('cat beat');
      expect(await one.out('sleep 0.3; cat beat')).toBe(beat);
    });
  });

  test('a command that writes its own report has figures that can be summed', async () => {
    const one = await started();
    const many = '9'.repeat(40);
    const report = `${many} - 0 ${many}m0.0s 0m0.0s ${many}`;
    const forge = `for d in /agent-host/calls/*; do echo '${report}' > "$d/result"; done; kill -KILL $PPID; sleep 60`;
    const { usage } = await one.bash(forge, 30);
    for (const figure of [usage.cpuMs, usage.bytesWritten]) expect(Number.isSafeInteger(figure * 1_000)).toBe(true);
  });

  describe('a pod that is gone', () => {
    test('in the middle of a command: the command is lost, the volume is not', async () => {
      const one = await started();
      const { answer } = await begun(one);
      await pods.server.cluster.vanish(nameOf(one.volume, 'test'));
      expect(await answer).toMatchObject({ outcome: 'killed', code: 'sandbox_lost' });
      expect(await one.out('cat begun')).toBe('begun\n');
    });

    test('in the middle of a command, for its memory: is told apart', async () => {
      const one = await started();
      const { answer } = await begun(one);
      await pods.server.cluster.outOfMemory(nameOf(one.volume, 'test'));
      expect(await answer).toMatchObject({ outcome: 'killed', code: 'out_of_memory' });
      expect(await one.out('cat begun')).toBe('begun\n');
    });

    test('because its node had no room: another takes its place', async () => {
      const one = await started();
      const before = object('pods', one)?.metadata.uid;
      await pods.server.cluster.evict(nameOf(one.volume, 'test'));
      expect(await one.out('echo fine')).toBe('fine\n');
      expect(object('pods', one)?.metadata.uid).not.toBe(before);
    });
  });

  test('a pod starts over conflicts, refusals and watches that are cut or too old', async () => {
    const one = await started();
    await pods.driver.settle(one.volume, { desired: 'suspended', hostEpoch: 2 });
    const { server } = pods;
    server.refuse('PATCH', '/sandboxes/', new Refusal(409, 'Conflict'), 2);
    server.refuse('PATCH', '/sandboxes/', new Refusal(429, 'TooManyRequests', { headers: { 'retry-after': '0' } }));
    server.refuse('GET', 'watch=true', new Refusal(410, 'Expired'));
    one.fence = { hostEpoch: 3, epoch: 1 };
    expect(await one.out('echo up')).toBe('up\n');
    expect(server.faults.filter(({ method, times }) => method === 'PATCH' && times > 0)).toEqual([]);
    server.faults.length = 0;
  });

  test('a stopped pod is suspended with its volume, and read without being started for good', async () => {
    const one = await started();
    await one.out('echo kept > f');
    const stop = async (hostEpoch: number) => await pods.driver.settle(one.volume, { desired: 'suspended', hostEpoch });
    await stop(2);
    await until('the pod is gone', () => object('pods', one) === undefined, LONG_MS);
    expect(object('sandboxes', one)?.spec).toMatchObject({ operatingMode: 'Suspended' });
    expect(await pods.driver.has(one.volume)).toBe(true);
    expect(await pods.driver.files.stat(one.volume, 'f')).toMatchObject({ size: 5 });
    await stop(2);
    expect(object('sandboxes', one)?.spec).toMatchObject({ operatingMode: 'Running' });
    one.fence = { hostEpoch: 3, epoch: 1 };
    expect(await one.out('cat f')).toBe('kept\n');
    // That of an older start comes too late.
    await stop(2);
    expect(object('sandboxes', one)?.spec).toMatchObject({ operatingMode: 'Running' });
    await stop(4);
    await until('the pod is gone', () => object('pods', one) === undefined, LONG_MS);
  });

  test.each(['vanished', 'late'] as const)('a look at files goes on when its pod ends meanwhile: %s', async (at) => {
    const one = await started();
    await one.out('echo kept > f');
    pods.server.execs.faults.push({ word: 'sha256sum <', at });
    expect(await pods.driver.files.stat(one.volume, 'f')).toMatchObject({ size: 5 });
    expect(pods.server.execs.faults).toEqual([]);
  });

  test('a pod of an older start is removed, and a command of one refused', async () => {
    const one = await started();
    const { answer } = await begun(one);
    const before = object('pods', one)?.metadata.uid;
    const newer = new TestPod(pods.driver);
    Object.assign(newer, { volume: one.volume, fence: { hostEpoch: 2, epoch: 1 } });
    expect(await newer.out('cat begun')).toBe('begun\n');
    expect(await answer).toMatchObject({ outcome: 'killed', code: 'sandbox_lost' });
    expect(object('pods', one)?.metadata.uid).not.toBe(before);
    expect(await one.bash('true')).toMatchObject({ outcome: 'failed', code: 'sandbox_lost' });
  });

  test.each(['vanished', 'late'] as const)('what is read of a file goes on when its pod ends: %s', async (at) => {
    const one = await started();
    await one.out('echo kept > f');
    pods.server.execs.faults.push({ word: 'left=$((', at });
    const bytes = await pods.driver.files.open(one.volume, 'f');
    expect(await bytes?.toArray()).toEqual([Buffer.from('kept\n')]);
    expect(pods.server.execs.faults).toEqual([]);
  });

  test('a look at files that waits for a pod starts it again when it is suspended meanwhile', async () => {
    const one = await started();
    await one.out('echo kept > f');
    const { cluster, store } = pods.server;
    const name = nameOf(one.volume, 'test');
    const [container] = store.demand('pods', name).spec['containers'] as [{ readonly image: string }];
    const pod = () => object('pods', one)?.metadata.uid;
    const first = pod();
    cluster.missingImages.add(container.image);
    await cluster.vanish(name);
    await until('another pod waits for its image', () => pod() !== undefined && pod() !== first, LONG_MS);
    const listed = `GET /api/v1/namespaces/sandboxes/pods?`;
    const looks = () => pods.server.requests.filter((request) => request.startsWith(listed)).length;
    const before = looks();
    const look = pods.driver.files.stat(one.volume, 'f');
    await until('it waits', () => looks() > before, LONG_MS);
    await pods.driver.settle(one.volume, { desired: 'suspended', hostEpoch: 2 });
    cluster.missingImages.clear();
    expect(await look).toMatchObject({ size: 5 });
  });

  test('a look at files that waits for a pod lets that of a newer start be', async () => {
    const one = await started();
    await one.out('echo kept > f');
    const { missingImages } = pods.server.cluster;
    const { spec } = pods.server.store.demand('pods', nameOf(one.volume, 'test'));
    const [container] = spec['containers'] as [{ readonly image: string }];
    await pods.driver.settle(one.volume, { desired: 'suspended', hostEpoch: 2 });
    await until('the pod is gone', () => object('pods', one) === undefined, LONG_MS);
    missingImages.add(container.image);
    const look = pods.driver.files.stat(one.volume, 'f');
    await until('it waits', () => object('pods', one) !== undefined, LONG_MS);
    const older = object('pods', one)?.metadata.uid;
    one.fence = { hostEpoch: 3, epoch: 1 };
    const answer = one.out('cat f');
    const uid = () => object('pods', one)?.metadata.uid ?? older;
    await until('another pod is there', () => uid() !== older, LONG_MS);
    const newer = uid();
    missingImages.clear();
    // The kubelet looks again when anything changes.
    await started();
    expect(await answer).toBe('kept\n');
    expect(await look).toMatchObject({ size: 5 });
    expect(uid()).toBe(newer);
  });

  test('a volume that is provisioned for a newer start meanwhile is unavailable to the older', async () => {
    const one = new TestPod(pods.driver);
    pods.server.cluster.missingImages.add('node:26');
    const provision = async (hostEpoch: number) =>
      await pods.driver.provision(one.volume, { limits: one.limits, hostEpoch, image: 'node:26' }, NO_FILES);
    const older = provision(1).then(
      () => null,
      (error: unknown) => error,
    );
    await until('it waits', () => object('pods', one) !== undefined, LONG_MS);
    const newer = provision(2);
    expect(await older).toBeInstanceOf(SandboxUnavailableError);
    pods.server.cluster.missingImages.clear();
    await started();
    await newer;
    expect(await pods.driver.has(one.volume)).toBe(true);
  });

  test('what is made says what it may', async () => {
    const one = await started();
    const owner = { 'agent-host/owner': 'test' };
    const [claim, sandbox] = [object('persistentvolumeclaims', one), object('sandboxes', one)];
    expect(claim).toMatchObject({
      metadata: { labels: owner },
      spec: { storageClassName: 'fast', resources: { requests: { storage: String(one.limits.storageBytes) } } },
    });
    expect(sandbox?.metadata).toMatchObject({ labels: owner, annotations: { 'agent-host/host-epoch': '1' } });
    const memory = String(one.limits.memoryBytes);
    expect(sandbox?.spec).toMatchObject({
      ...{ operatingMode: 'Running', service: false },
      podTemplate: {
        metadata: { labels: owner },
        spec: {
          ...{ runtimeClassName: 'gvisor', automountServiceAccountToken: false },
          securityContext: { runAsNonRoot: true, seccompProfile: { type: 'RuntimeDefault' } },
          containers: [
            {
              ...{ image: 'debian:13', resources: { limits: { cpu: '1', memory } } },
              securityContext: {
                ...{ allowPrivilegeEscalation: false, readOnlyRootFilesystem: true },
                capabilities: { drop: ['ALL'] },
              },
            },
          ],
        },
      },
    });
    expect(pods.server.store.get('networkpolicies', 'agent-host-test')?.spec).toEqual({
      ...{ podSelector: { matchLabels: owner }, policyTypes: ['Ingress', 'Egress'], ingress: [], egress: [] },
    });
  });

  test('what is left of a volume is found by its label, and is of this Host alone', async () => {
    const one = await started();
    pods.server.store.remove('persistentvolumeclaims', nameOf(one.volume, 'test'));
    expect(await pods.driver.has(one.volume)).toBe(false);
    expect(await pods.driver.volumes()).toContainEqual(one.volume);
    const other = podsOf(pods.server, { owner: 'other' });
    expect(await other.volumes()).toEqual([]);
    await other.stop();
    await pods.driver.discard(one.volume);
    expect(await pods.driver.volumes()).not.toContainEqual(one.volume);
    await until('its pod is gone', () => object('pods', one) === undefined, LONG_MS);
    await until('its claim is gone', () => object('persistentvolumeclaims', one) === undefined, LONG_MS);
  });

  test('a pod that cannot start is unavailable, and starts when it can', async () => {
    const impatient = podsOf(pods.server, { startMs: 500 });
    const one = new TestPod(impatient);
    pods.server.cluster.missingImages.add('node:26');
    const provision = async (driver = impatient) =>
      await driver.provision(one.volume, { limits: one.limits, hostEpoch: 1, image: 'node:26' }, NO_FILES);
    await expect(provision()).rejects.toBeInstanceOf(SandboxUnavailableError);
    expect(await impatient.has(one.volume)).toBe(false);
    await impatient.stop();
    pods.server.cluster.missingImages.clear();
    await pods.server.cluster.vanish(nameOf(one.volume, 'test'));
    await provision(pods.driver);
    expect(await pods.driver.has(one.volume)).toBe(true);
    await pods.driver.discard(one.volume);
  });

  test('an API server that refuses says why there are no pods', async () => {
    pods.server.refuse('GET', '/sandboxes', new Refusal(403, 'Forbidden', { message: 'may not list sandboxes' }));
    const refused = podsOf(pods.server);
    expect(await refused.status()).toMatchObject({ available: false, reason: expect.stringContaining('may not list') });
    await refused.stop();
  });
});

/** A request as the authorizer of a cluster sees it. */
function verbOf(line: string): string {
  const [, method = '', resource = '', name, subresource, query = ''] =
    /^(\w+) \/.*\/namespaces\/\w+\/(\w+)(?:\/([^/?]+))?(?:\/(\w+))?(?:\?(.*))?$/.exec(line) ?? [];
  const many = query.includes('watch=true') ? 'watch' : 'list';
  const verbs: Readonly<Record<string, string>> = { GET: name === undefined ? many : 'get', POST: 'create' };
  return `${verbs[method] ?? method.toLowerCase()} ${resource}${subresource === undefined ? '' : `/${subresource}`}`;
}

test('the Role of deploy/ has the verbs that are used, and no others', async () => {
  await using pods = await openClusterPods({ way: 'plain' });
  const { driver, server } = pods;
  const one = await TestPod.start(driver);
  server.execs.faults.push({ word: RUN, at: 'begun' });
  await one.out('true');
  const other = podsOf(server);
  await other.provision(new TestPod(other).volume, { limits: one.limits, hostEpoch: 1 }, NO_FILES);
  await other.stop();
  one.fence = { hostEpoch: 2, epoch: 1 };
  await one.out('true');
  await driver.status();
  await driver.settle(one.volume, { desired: 'suspended', hostEpoch: 3 });
  await until('the pod is gone', () => server.store.get('pods', nameOf(one.volume, 'test')) === undefined, LONG_MS);
  expect(await driver.files.list(one.volume, '')).toEqual([]);
  expect(await driver.volumes()).toHaveLength(2);
  await driver.discard(one.volume);
  const [role] = parseAllDocuments(read('deploy/kubernetes/pods/cluster/rbac.yaml')).map(
    (document) => document.toJS() as { rules: { resources: string[]; verbs: string[] }[] },
  );
  const given = role?.rules.flatMap(({ resources, verbs }) =>
    resources.flatMap((resource) => verbs.map((verb) => `${verb} ${resource}`)),
  );
  // A server may want the first for what others take as `get`; a pod that is there at once is not watched.
  const used = new Set([...server.requests.map(verbOf), 'create pods/exec', 'watch pods']);
  expect([...used].toSorted()).toEqual(given?.toSorted());
});

import { execFile } from 'node:child_process';
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough, Readable } from 'node:stream';
import { promisify } from 'node:util';
import { CustomObjectsApi, Exec, KubeConfig, Watch } from '@kubernetes/client-node';
import type { V1Status } from '@kubernetes/client-node';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { KubernetesApi } from '#src/drivers/sandbox/kubernetes/api.ts';
import { exec } from '#src/drivers/sandbox/kubernetes/exec.ts';
import { KubernetesTestServer, NAMESPACE } from '../support/kubernetes-api.ts';
import { Refusal } from '../support/kubernetes-store.ts';
import { apiOf, someSandbox } from '../support/kubernetes.ts';
import { until } from '../support/wait-until.ts';

const run = promisify(execFile);
const never = new AbortController().signal;
const FORTY = 'head -c 3 >&2; head -c 37; exit 3';
const IN = Buffer.from('err0123456789012345678901234567890123456');

let server: KubernetesTestServer;
let api: KubernetesApi;
beforeAll(async () => {
  server = await KubernetesTestServer.open();
  api = apiOf(server);
});
afterAll(async () => {
  await api.close();
  await server[Symbol.asyncDispose]();
});

let made = 0;
/** A pod that runs. */
async function running(): Promise<string> {
  const name = `one-${++made}`;
  await api.create('sandboxes', someSandbox(name));
  const check = async (pod: { readonly status: { readonly phase?: string | undefined } } | null) =>
    await Promise.resolve(pod?.status.phase === 'Running' ? name : undefined);
  return await api.until('pods', name, { check, signal: AbortSignal.timeout(60_000) });
}

describe('the API server for tests, with the clients of others', () => {
  const group = { group: 'agents.x-k8s.io', version: 'v1beta1', namespace: NAMESPACE, plural: 'sandboxes' };
  const config = () => {
    const kube = new KubeConfig();
    kube.loadFromString(server.kubeconfig);
    return kube;
  };

  test('the official client makes, watches, changes and removes objects', async () => {
    const kube = config();
    const objects = kube.makeApiClient(CustomObjectsApi);
    const seen: string[] = [];
    const watch = await new Watch(kube).watch(
      `/apis/agents.x-k8s.io/v1beta1/namespaces/${NAMESPACE}/sandboxes`,
      { fieldSelector: 'metadata.name=theirs' },
      (type, object: { spec: { operatingMode: string } }) => seen.push(`${type} ${object.spec.operatingMode}`),
      () => undefined,
    );
    await until('a watch is open', () => server.watching > 0);
    await objects.createNamespacedCustomObject({ ...group, body: someSandbox('theirs') });
    const again = objects.createNamespacedCustomObject({ ...group, body: someSandbox('theirs') });
    await expect(again).rejects.toMatchObject({ code: 409 });
    await until('the pod runs', () => server.store.get('pods', 'theirs')?.status?.['phase'] === 'Running');
    await server.cluster.settled();
    const found = (await objects.getNamespacedCustomObject({ ...group, name: 'theirs' })) as { spec: object };
    await objects.replaceNamespacedCustomObject({
      ...{ ...group, name: 'theirs' },
      body: { ...found, spec: { ...found.spec, operatingMode: 'Suspended' } },
    });
    const stale = objects.replaceNamespacedCustomObject({ ...group, name: 'theirs', body: found });
    await expect(stale).rejects.toMatchObject({ code: 409 });
    await until('the pod is gone', () => server.store.get('pods', 'theirs') === undefined);
    await objects.deleteNamespacedCustomObject({ ...group, name: 'theirs' });
    await until('the removal is seen', () => seen.includes('DELETED Suspended'));
    expect(seen.at(0)).toBe('ADDED Running');
    expect(seen).toContain('MODIFIED Suspended');
    watch.abort();
  });

  test('the official client runs programs', async () => {
    const name = await running();
    const [out, err] = [new PassThrough(), new PassThrough()];
    const command = ['bash', '-c', FORTY];
    const status = await new Promise<V1Status>((resolve, reject) => {
      new Exec(config())
        .exec(NAMESPACE, name, 'sandbox', command, out, err, Readable.from([IN]), false, resolve)
        .catch(reject);
    });
    expect(status).toMatchObject({ status: 'Failure', details: { causes: [{ reason: 'ExitCode', message: '3' }] } });
    expect([String(out.read()), String(err.read())]).toEqual([IN.subarray(3).toString(), 'err']);
  });

  test('kubectl finds the resources, and runs programs', async (context) => {
    const file = join(mkdtempSync(join(tmpdir(), 'agent-host-kubectl-')), 'config');
    writeFileSync(file, server.kubeconfig);
    const kubectl = async (...args: readonly string[]) =>
      await run('kubectl', [`--kubeconfig=${file}`, `--cache-dir=${file}.cache`, ...args], { timeout: 60_000 });
    const version = await kubectl('version', '--client').catch(() => null);
    context.skip(version === null, 'kubectl is not installed');
    const name = await running();
    const { stdout } = await kubectl('get', 'sandboxes.agents.x-k8s.io', name, '-o', 'jsonpath={.spec.operatingMode}');
    expect(stdout).toBe('Running');
    const failed = kubectl('exec', name, '-c', 'sandbox', '--', 'bash', '-c', 'echo out; exit 4');
    await expect(failed).rejects.toMatchObject({ code: 4, stdout: 'out\n' });
    await kubectl('delete', 'sandbox', name, '--wait=false');
    await until('the pod is gone', () => server.store.get('pods', name) === undefined);
  });
});

describe('objects', () => {
  test('are made once, changed by the first, and removed', async () => {
    expect(await api.get('sandboxes', 'none')).toBeNull();
    await api.create('sandboxes', someSandbox('mine'));
    expect(await api.create('sandboxes', someSandbox('mine'))).toBeNull();
    await server.cluster.settled();
    const one = await api.get('sandboxes', 'mine');
    const resourceVersion = one?.metadata.resourceVersion ?? '';
    const body = { metadata: { resourceVersion }, spec: { operatingMode: 'Suspended' } };
    expect(await api.patch('sandboxes', 'mine', { body })).toMatchObject({ spec: { operatingMode: 'Suspended' } });
    expect(await api.patch('sandboxes', 'mine', { body })).toBeNull();
    expect(await api.remove('sandboxes', 'mine', { uid: 'of-another' })).toBe(false);
    expect(await api.remove('sandboxes', 'mine', { uid: one?.metadata.uid ?? '' })).toBe(true);
    expect(await api.remove('sandboxes', 'mine')).toBe(false);
    expect(await api.patch('sandboxes', 'mine', { body })).toBeNull();
  });

  test('are listed by label over all pages, from the start again when the server has forgotten the first', async () => {
    for (let n = 0; n < 260; n++) {
      const metadata = { name: `policy-${n}`, labels: { kind: n % 26 === 0 ? 'rare' : 'common' } };
      server.store.create('networkpolicies', { metadata } as object, NAMESPACE);
    }
    server.refuse('GET', 'continue=', new Refusal(410, 'Expired'));
    expect((await api.list('networkpolicies', {})).items).toHaveLength(260);
    expect((await api.list('networkpolicies', { labelSelector: 'kind=rare' })).items).toHaveLength(10);
  });

  test('are awaited over watches that are cut or too old', async () => {
    const name = await running();
    const seen: string[] = [];
    const wanted = api.until('sandboxes', name, {
      check: async (sandbox) => {
        const mode = sandbox?.metadata.annotations?.['step'] ?? 'none';
        seen.push(mode);
        return await Promise.resolve(mode === 'last' ? sandbox?.metadata.name : undefined);
      },
      signal: AbortSignal.timeout(60_000),
    });
    const annotate = (step: string) => server.store.patch('sandboxes', name, { metadata: { annotations: { step } } });
    await until('a watch is open', () => server.watching > 0);
    annotate('first');
    await until('the first change is seen', () => seen.includes('first') && server.watching > 0);
    server.cutWatches();
    await until('the watch is cut', () => server.watching === 0);
    await until('a watch is open', () => server.watching > 0);
    server.refuse('GET', 'watch=true', new Refusal(410, 'Expired'));
    server.refuse('GET', 'watch=true', new Refusal(429, 'TooManyRequests', { headers: { 'retry-after': '0' } }));
    annotate('second');
    await until('both refusals were met', () => server.faults.every(({ times }) => times === 0));
    annotate('last');
    expect(await wanted).toBe(name);
  });

  test('a change between list and watch is not missed, and a forgotten version is listed again', async () => {
    const name = await running();
    const answers = [
      () => server.store.patch('sandboxes', name, { metadata: { annotations: { a: '1' } } }),
      () => server.store.forget(),
    ];
    let looks = 0;
    const check = async () => {
      looks += 1;
      answers.shift()?.();
      return await Promise.resolve(looks === 3 ? looks : undefined);
    };
    expect(await api.until('sandboxes', name, { check, signal: AbortSignal.timeout(60_000) })).toBe(3);
  });

  test('waiting ends when it is given up', async () => {
    const controller = new AbortController();
    const check = async () => await Promise.resolve(undefined);
    const waiting = api.until('sandboxes', 'none', { check, signal: controller.signal });
    controller.abort(new Error('not wanted'));
    await expect(waiting).rejects.toThrow('not wanted');
  });
});

describe('a server that has too much to do, or is gone', () => {
  const counted = (text: string): number => server.requests.filter((line) => line.includes(text)).length;

  test('is asked again when it says so, also for what may not be done twice', async () => {
    const busy = new Refusal(429, 'TooManyRequests', { headers: { 'retry-after': '0' } });
    server.refuse('POST', '/sandboxes', busy, 2);
    expect(await api.create('sandboxes', someSandbox('busy'))).not.toBeNull();
    server.refuse('GET', '/sandboxes/busy', new Refusal(500, 'InternalError'), 2);
    const before = counted('/sandboxes/busy');
    expect(await api.get('sandboxes', 'busy')).not.toBeNull();
    expect(counted('/sandboxes/busy') - before).toBe(3);
  });

  test('is not asked twice for what may have been done', async () => {
    server.refuse('POST', '/sandboxes', new Refusal(500, 'InternalError', { message: 'etcd is slow' }));
    const before = counted('POST');
    await expect(api.create('sandboxes', someSandbox('maybe'))).rejects.toMatchObject({
      ...{ status: 500, message: 'etcd is slow' },
    });
    expect(counted('POST') - before).toBe(1);
  });

  test('is given up after some tries, and its refusals are told', async () => {
    server.refuse('GET', '/sandboxes/gone', new Refusal(500, 'InternalError'), 99);
    await expect(api.get('sandboxes', 'gone')).rejects.toMatchObject({ status: 500 });
    server.faults.length = 0;
    const stranger = apiOf(server, 'another-token');
    await expect(stranger.get('sandboxes', 'one')).rejects.toMatchObject({ status: 401 });
    await stranger.close();
  });
});

describe('programs', () => {
  const command = ['bash', '-c', FORTY];

  test.each([['v5.channel.k8s.io'], ['v4.channel.k8s.io']])('run over %s', async (protocol) => {
    const pod = await running();
    server.execs.protocols = [protocol];
    const end = await exec(api, { pod, container: 'sandbox', command, stdin: IN }, never);
    server.execs.protocols = ['v5.channel.k8s.io', 'v4.channel.k8s.io'];
    expect(end).toMatchObject({ opened: true, exitCode: 3, stdout: IN.subarray(3), stderr: Buffer.from('err') });
    expect(server.execs.agreed.at(-1)).toBe(protocol);
    expect(await exec(api, { pod, container: 'sandbox', command: ['true'] }, never)).toMatchObject({ exitCode: 0 });
  });

  test('take much input, and give much output', async () => {
    const pod = await running();
    const stdin = Buffer.alloc(3_000_000, 'x');
    const end = await exec(
      api,
      { pod, container: 'sandbox', command: ['head', '-c', String(stdin.length)], stdin },
      never,
    );
    expect(end.stdout.equals(stdin)).toBe(true);
  });

  test('have no exit code when the connection is cut, and are not ended by it', async () => {
    const pod = await running();
    const start = async (at: 'open' | 'ended' | number) => {
      server.execs.faults.push({ word: 'echo over', at });
      return await exec(api, { pod, container: 'sandbox', command: ['bash', '-c', 'echo over'] }, never);
    };
    expect(await start('open')).toMatchObject({ opened: false, exitCode: null });
    expect(await start('ended')).toMatchObject({ opened: true, exitCode: null });
    // The server says that all is well.
    expect(await start(2)).toMatchObject({ exitCode: 0, stdout: Buffer.from('ov') });
    const controller = new AbortController();
    const given = exec(
      api,
      { pod, container: 'sandbox', command: ['bash', '-c', 'read x; echo y > "$TMPDIR/y"'], stdin: Buffer.from('x') },
      controller.signal,
    );
    await until('the program has begun', () => server.execs.open > 0);
    controller.abort();
    expect(await given).toMatchObject({ exitCode: null });
    expect(await exec(api, { pod: 'none', container: 'sandbox', command }, never)).toMatchObject({ opened: false });
  });
});

import { access, glob, mkdir, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { ArtifactClient } from '../support/artifacts.ts';
import { AdminClient } from '../support/client.ts';
import { startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { until } from '../support/wait-until.ts';

const SETTLED_MS = 120_000;
/** Nobody waits long for what has died, and what only stands still for some seconds is not taken for dead. */
const QUICK = { AGENT_HOST_OPERATION_SECONDS: '6', AGENT_HOST_STRAY_SECONDS: '6' };

async function client(host: Host): Promise<ArtifactClient> {
  const tenant = await new AdminClient(host).createTenant();
  await tenant.saveAgent();
  await tenant.openSession('room');
  return new ArtifactClient(tenant);
}

async function objectsOf(host: Host, files: ArtifactClient): Promise<string[]> {
  const found: string[] = [];
  for await (const path of glob(`${files.tenant.tenantId}/*/*`, { cwd: join(host.dataDir, 'objects') }))
    found.push(path);
  for await (const path of glob('.unfinished/*', { cwd: join(host.dataDir, 'objects') })) found.push(path);
  return found;
}

/** After the crash the Host is there again, with nothing armed. */
async function restarted(host: Host, files: ArtifactClient): Promise<ArtifactClient> {
  await host.kill();
  await host.restart({ AGENT_HOST_FAULT_POINTS: '' });
  return new ArtifactClient(files.tenant.at(host));
}

test.each([
  ['artifact.reserved', 0],
  ['artifact.bytes-stored', 0],
  ['artifact.recorded', 1],
  ['artifact.session-told', 1],
])('killed at %s, an upload is there as a whole or not at all (%i)', async (point, there) => {
  await using host = await startHost({ env: { ...QUICK, AGENT_HOST_FAULT_POINTS: `${point}=kill@2` } });
  const before = await client(host);
  const bytes = Buffer.alloc(1_500_000, 7);
  const total = 2 * bytes.length;
  await before.limit({ totalBytes: total });
  const { artifact: kept } = await before.upload({ name: 'kept', sessionId: 'room' }, bytes);
  await expect(before.send({ name: 'cut', sessionId: 'room' }, [bytes])).rejects.toThrow(/hang up|ECONNRESET|EPIPE/);
  const files = await restarted(host, before);

  // What was reserved comes back without anybody asking: the rest of the total can be had, to its last byte.
  const names = ['kept', ...(there === 1 ? ['cut'] : [])];
  await until(
    'the account has settled',
    async () =>
      (await files.use()).usedBytes === names.length * bytes.length &&
      (await objectsOf(host, files)).length === names.length,
    SETTLED_MS,
  );
  // The read model catches up after the start, as it can.
  await until('the list has them', async () => (await files.list()).length === names.length, SETTLED_MS);
  expect((await files.list()).map(({ name }) => name)).toEqual(names);
  await until('the session has been told', async () => (await files.told('room')).length === names.length, SETTLED_MS);
  expect(await files.told('room')).toEqual(names.map((name) => `artifact.created ${name} 1`));
  for (const { artifactId } of await files.list()) {
    expect((await files.content(artifactId)).bytes.equals(bytes)).toBe(true);
  }
  if (there === 0) {
    await until(
      'the reserved bytes can be had again',
      async () => (await files.send({ name: 'again', sessionId: 'room' }, bytes)).status === 201,
      SETTLED_MS,
    );
  }
  expect((await files.use()).usedBytes).toBe(total);
  expect((await files.get(kept.artifactId)).latestVersion).toBe(1);
});

test.each(['artifact.removal-begun', 'artifact.removed', 'artifact.bytes-removed'])(
  'killed at %s, a deletion is finished after the next start',
  async (point) => {
    await using host = await startHost({ env: { ...QUICK, AGENT_HOST_FAULT_POINTS: `${point}=kill` } });
    const before = await client(host);
    const { artifact: kept } = await before.upload({ name: 'kept', sessionId: 'room' }, Buffer.from('same bytes'));
    const { artifact } = await before.upload({ name: 'gone', sessionId: 'room' }, Buffer.from('same bytes'));
    await expect(before.remove(artifact.artifactId)).rejects.toThrow(/hang up|ECONNRESET|EPIPE/);
    const files = await restarted(host, before);
    await until('it is gone', async () => (await files.list()).length === 1, SETTLED_MS);
    await until(
      'its bytes are gone and given back',
      async () => (await files.use()).usedBytes === 10 && (await objectsOf(host, files)).length === 1,
      SETTLED_MS,
    );
    const wanted = ['artifact.created kept 1', 'artifact.created gone 1', 'artifact.deleted gone'];
    await until('the session has been told', async () => (await files.told('room')).length === 3, SETTLED_MS);
    expect(await files.told('room')).toEqual(wanted);
    expect((await files.content(kept.artifactId)).text).toBe('same bytes');
    expect((await files.remove(artifact.artifactId)).status).toBe(404);
  },
);

test('killed while the artifacts of a deleted session are removed, those that are left go after the next start', async () => {
  await using host = await startHost({ env: { ...QUICK, AGENT_HOST_FAULT_POINTS: 'artifact.removal-begun=kill' } });
  const before = await client(host);
  const { artifact: kept } = await before.upload({ name: 'of no session' }, Buffer.from('bytes'));
  for (let n = 0; n < 20; n += 1) await before.upload({ name: `n${n}`, sessionId: 'room' }, Buffer.from('bytes'));
  const deletion = before.tenant.request({ method: 'DELETE', path: '/v1/sessions/room' });
  await expect(deletion).rejects.toThrow(/hang up|ECONNRESET|EPIPE/);
  const files = await restarted(host, before);
  await until(
    'they are gone with their bytes',
    async () => (await files.list()).length === 1 && (await objectsOf(host, files)).length === 1,
    SETTLED_MS,
  );
  await until('the bytes are given back', async () => (await files.use()).usedBytes === 5, SETTLED_MS);
  expect((await files.content(kept.artifactId)).text).toBe('bytes');
});

test('bytes that no version names go when they are old; those that one names, and young ones, stay', async () => {
  await using host = await startHost({ env: { AGENT_HOST_STRAY_SECONDS: '3600' } });
  const before = await client(host);
  const { artifact } = await before.upload({ name: 'kept' }, Buffer.from('bytes'));
  const root = join(host.dataDir, 'objects');
  const old = new Date(Date.now() - 7_200_000);
  const tenant = join(root, before.tenant.tenantId);
  const stray = async (owner: string, name: string, age: Date): Promise<string> => {
    await mkdir(join(tenant, owner), { recursive: true });
    const path = join(tenant, owner, name);
    await writeFile(path, 'stray');
    await utimes(path, age, age);
    return path;
  };
  const gone = [
    await stray(artifact.artifactId, 'up_stray', old),
    await stray('af_nobody', 'up_stray', old),
    join(root, '.unfinished', 'tn_x.half'),
  ];
  await writeFile(gone[2] ?? '', 'half');
  await utimes(gone[2] ?? '', old, old);
  // However long the Host takes to start again.
  const later = new Date(Date.now() + 7_200_000);
  const [young, foreign] = [await stray('af_nobody', 'up_young', later), await stray('sb_1', 'a-sandbox', old)];
  for await (const path of glob(`${artifact.artifactId}/up_*`, { cwd: tenant })) {
    await utimes(join(tenant, path), old, old);
  }
  // A sweep comes with the fourth part of the time; it is asked for with a shorter one.
  await host.restart({ AGENT_HOST_STRAY_SECONDS: '30' });
  const isThere = async (path: string): Promise<boolean> =>
    await access(path).then(
      () => true,
      () => false,
    );
  await until('the strays are gone', async () => !(await Promise.all(gone.map(isThere))).includes(true), SETTLED_MS);
  expect(await Promise.all([young, foreign].map(isThere))).toEqual([true, true]);
  const files = new ArtifactClient(before.tenant.at(host));
  expect((await files.content(artifact.artifactId)).text).toBe('bytes');
});

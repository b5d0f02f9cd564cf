import { execFile, execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { chmodSync, copyFileSync, mkdirSync, mkdtempSync, statSync, writeFileSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { build } from 'rolldown';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { EMPTY_MANIFEST } from '#src/domain/sandbox/manifest.ts';
import { Cgroups } from '#src/drivers/sandbox/pod/cgroups.ts';
import { Volumes } from '#src/drivers/sandbox/pod/volumes.ts';
import type { PodVolume } from '#src/drivers/sandbox/port.ts';
import { openTestPods, podWays, TestPod } from '../support/pods.ts';
import { MemoryContents } from '../support/sandboxes.ts';

const run = promisify(execFile);
const isRoot = process.getuid?.() === 0;
const OTHER_USER = 65_534;
/** To make the program of its own, and for its commands, on a busy machine. */
const USER_MS = 180_000;
let directory: string;
beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'agent-host-volumes-'));
});
afterAll(() => execFileSync('rm', ['-rf', '--', directory]));

const volumeOf = (sandboxId: string, generation = 1): PodVolume => ({
  ...{ tenant: 'tn_a', sandboxId, createdPosition: 1, generation },
});

/** Ids of two sandboxes whose volumes would get the same user, by the hash that it begins with. */
function colliding(): [string, string] {
  const seen = new Map<number, string>();
  for (let i = 0; ; i++) {
    const digest = createHash('sha256').update(`tn_a\0sb-${i}`).digest();
    const user = digest.readUInt32BE(16) % 200_000_000;
    const other = seen.get(user);
    if (other !== undefined) return [other, `sb-${i}`];
    seen.set(user, `sb-${i}`);
  }
}

describe.runIf(isRoot)('volumes of a Host that is root', () => {
  test('have a user each, which the generations of one sandbox share', async () => {
    const volumes = new Volumes(join(directory, 'users'), true);
    const make = async (of: PodVolume) => await volumes.make(of, EMPTY_MANIFEST, new MemoryContents());
    const [one, other] = colliding();
    const made = [await make(volumeOf(one)), await make(volumeOf(other)), await make(volumeOf(other, 2))];
    const [first, second, third] = made.map(({ uid }) => uid);
    expect(first).not.toBe(second);
    expect(third).toBe(second);
    for (const { workspace, uid } of made) expect(statSync(workspace).uid).toBe(uid);
    expect((await volumes.find(volumeOf(other, 2)))?.uid).toBe(third);
  });
});

describe.runIf(podWays().length > 0 && isRoot)('volumes that pods work on', () => {
  test('of another user become their own', async () => {
    await using pods = openTestPods();
    const one = await TestPod.start(pods.driver);
    await one.out('mkdir d; echo kept > d/f; ln -s /etc link');
    const [name = ''] = await readdir(join(pods.directory, 'volumes'));
    const workspace = join(pods.directory, 'volumes', name, 'workspace');
    execFileSync('chown', ['-hR', '4242:4242', workspace]);
    expect(await one.out('cat d/f; echo more >> d/f; echo new > new; cat d/f')).toBe('kept\nkept\nmore\n');
    expect(statSync('/etc').uid).toBe(0);
  });

  test('are looked after where the label of one is damaged, and that is said once', async () => {
    const words: string[] = [];
    await using pods = openTestPods({ log: (message) => words.push(message) });
    const one = await TestPod.start(pods.driver);
    const parent = join(pods.directory, 'volumes');
    const [own = ''] = await readdir(parent);
    for (const [name, text] of Object.entries({ empty: '', cut: '{"tenant":"tn', other: '{"v":2}' })) {
      mkdirSync(join(parent, name, 'workspace'), { recursive: true });
      writeFileSync(join(parent, name, 'volume.json'), text);
    }
    mkdirSync(join(parent, 'lost+found'));
    expect(await pods.driver.volumes()).toEqual([one.volume]);
    expect(await pods.driver.volumes()).toEqual([one.volume]);
    expect(words.toSorted()).toEqual(
      ['cut', 'empty', 'other'].map((name) => expect.stringContaining(join(parent, name))),
    );
    expect(await readdir(parent)).toEqual(['cut', 'empty', 'lost+found', 'other', own].toSorted());
  });
});

/** Whether a user without rights may make namespaces here. */
function mayConfine(): boolean {
  const user = ['--reuid', String(OTHER_USER), '--regid', String(OTHER_USER), '--clear-groups', '--'];
  try {
    execFileSync('setpriv', [...user, 'bwrap', '--unshare-all', '--ro-bind', '/', '/', 'true'], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}

test.runIf(isRoot && mayConfine())(
  'a Host that is not root copes with files that its pods have locked',
  async () => {
    const [home, node] = [join(directory, 'home'), join(directory, 'node')];
    mkdirSync(home);
    chmodSync(directory, 0o755);
    execFileSync('chown', [String(OTHER_USER), home]);
    copyFileSync(process.execPath, node);
    const input = new URL('../support/pods-of-user.ts', import.meta.url).pathname;
    await build({
      ...{ input, platform: 'node', logLevel: 'silent', treeshake: false },
      output: { file: join(directory, 'main.mjs'), format: 'esm', codeSplitting: false },
    });
    const user = ['--reuid', String(OTHER_USER), '--regid', String(OTHER_USER), '--clear-groups', '--'];
    const { stdout } = await run('setpriv', [...user, node, join(directory, 'main.mjs'), home], { cwd: '/', env: {} });
    expect(JSON.parse(stdout)).toMatchObject({
      status: { available: true },
      made: 'completed',
      isFull: 'full',
      paths: ['d/e/f', 'd/e/large', 'gone/g', 'ro/r', 'secret'],
      secret: { outcome: 'completed', result: { content: 's\n' } },
      found: { outcome: 'completed', result: { matches: [{ path: 'd/e/f' }] } },
      put: { outcome: 'completed' },
      kept: { outcome: 'completed' },
      removed: [true, true],
      after: { outcome: 'completed', result: { stdout: 'b\nnd\nro\nsecret\n' } },
      volumes: 1,
      left: [],
    });
  },
  USER_MS,
);

test('groups of a Host that had the number of this process are removed, and stand in no way', async (context) => {
  const cgroups = await Cgroups.open();
  if (cgroups === null) return context.skip('this machine lets no process make groups');
  const group = await cgroups.create({ memoryBytes: 16_777_216, processes: 16, cpus: 1 });
  const own = group.joins.map((file) => dirname(file));
  const left = own.map((path) => path.replace(/-[0-9a-z]+-\d+-\d+$/, '-dead0000-1-1'));
  for (const path of left) mkdirSync(path);
  expect(left).not.toEqual(own);
  const again = await Cgroups.open();
  await group.remove();
  expect(again).not.toBeNull();
  for (const path of [...left, ...own]) expect(() => statSync(path), path).toThrow('ENOENT');
});

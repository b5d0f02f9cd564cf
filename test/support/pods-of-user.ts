import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { EMPTY_MANIFEST } from '#src/domain/sandbox/manifest.ts';
import type { SandboxToolCall } from '#src/domain/sandbox/tools.ts';
import { openPods } from '#src/drivers/sandbox/pod/driver.ts';
import type { PodVolume } from '#src/drivers/sandbox/port.ts';

/**
 * What a Host that is not root sees of files whose rights its pods have taken away, as JSON. It runs as a process of another
 * user, without the rest of the tests.
 */
const [directory = ''] = process.argv.slice(2);
await mkdir(join(directory, 'volumes'), { recursive: true });
const driver = openPods({
  ...{ enabled: true, directory: join(directory, 'volumes'), children: 2, childrenPerTenant: 2, path: '/usr/bin:/bin' },
  ...{ users: 'host', cgroups: 'off', bridge: { node: '', program: '' }, log: () => undefined },
});
const volume: PodVolume = { tenant: 'tn_a', sandboxId: 'locked', createdPosition: 1, generation: 1 };
const limits = { cpus: 1, memoryBytes: 536_870_912, storageBytes: 67_108_864 };

async function call(tool: SandboxToolCall) {
  const about = { limits, fence: { hostEpoch: 1, epoch: 1 }, network: null, fileBytes: 1_048_576 };
  return await driver.run({ volume, tool, ...about }, new AbortController().signal);
}

async function paths() {
  return (await driver.files.list(volume, ''))?.map(({ path }) => path);
}

async function seen() {
  const status = await driver.status();
  if (!status.available) return { status };
  const contents = { read: async () => await Promise.resolve(new Uint8Array()) };
  await driver.provision(volume, { limits, hostEpoch: 1 }, { manifest: EMPTY_MANIFEST, contents });
  const command =
    'mkdir -p d/e ro gone; echo a > d/e/f; echo s > secret; echo r > ro/r; echo g > gone/g; head -c 3000000 /dev/zero > d/e/large; chmod 000 secret d/e d gone/g gone; chmod 555 ro; chmod 000 .';
  const made = await call({ name: 'bash', input: { command } });
  return {
    status,
    made: made.outcome,
    isFull: await driver.files.write(volume, { path: 'more', bytes: Buffer.alloc(9), storageBytes: 2_000_000 }),
    paths: await paths(),
    secret: await call({ name: 'read', input: { path: 'secret' } }),
    found: await call({ name: 'grep', input: { pattern: '^a$' } }),
    put: await call({ name: 'write', input: { path: 'ro/new', content: 'n' } }),
    kept: await call({ name: 'edit', input: { path: 'd/e/f', oldText: 'a', newText: 'b' } }),
    removed: [await driver.files.remove(volume, 'gone'), await driver.files.remove(volume, 'ro/r')],
    after: await call({ name: 'bash', input: { command: 'cat d/e/f ro/new; ls; chmod -R 000 d ro .' } }),
    volumes: (await driver.volumes()).length,
    discarded: await driver.discard(volume),
    left: await driver.volumes(),
  };
}

process.stdout.write(JSON.stringify(await seen()));
await driver.stop();

import { randomBytes } from 'node:crypto';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { readConfig } from '#src/app/config.ts';
import { copyMissing } from '#src/archive/backup/objects.ts';
import type { ObjectIndex } from '#src/archive/backup/objects.ts';
import { backup } from '#src/cli/backup.ts';
import { restore } from '#src/cli/restore.ts';
import { directoryObjects } from '#src/drivers/objects/directory.ts';
import { newId } from '#src/lib/ids.ts';
import { chunks } from '../conformance/objects.ts';
import { appendAll, newCommits, newRef } from '../support/commits.ts';
import { TEST_HOST_KEY } from '../support/host-keys.ts';
import { openLog } from '../support/jetstream.ts';
import { TestNats } from '../support/nats.ts';
import { overriding } from '../support/overriding.ts';

const OBJECT_BYTES = 10_000;

/** An installation with some objects, and where its backups go. */
async function installation() {
  const place = await mkdtemp(join(tmpdir(), 'agent-host-backup-'));
  const nats = await TestNats.start();
  const log = await openLog(nats.url);
  await appendAll(log.store, newRef(), newCommits(2));
  const tenant = newId('tn');
  const objects = await directoryObjects(join(place, 'objects'));
  for (const name of ['one', 'two', 'three'])
    await objects.put({ tenant, owner: 'owner', name }, chunks(randomBytes(OBJECT_BYTES)));
  const to = join(place, 'backup');
  const config = readConfig({ NATS_URL: nats.url, AGENT_HOST_DATA_DIR: place });
  return {
    to,
    objects: join(place, 'objects'),
    /** Of an object, below the directory of the objects. */
    pathOf: (name: string) => join(tenant, 'owner', name),
    backUp: async () => await backup(config, [to]),
    /** Into an empty place. Returns the directory of its objects. */
    restored: async () => {
      await using empty = await TestNats.start();
      const dataDir = await mkdtemp(join(place, 'restored-'));
      const kek = join(place, 'kek');
      await writeFile(kek, TEST_HOST_KEY.export().toString('base64'));
      const target = { NATS_URL: empty.url, AGENT_HOST_DATA_DIR: dataDir, AGENT_HOST_KEK_FILE: kek };
      await restore(readConfig(target), [to]);
      return join(dataDir, 'objects');
    },
    original: async (name: string) => await readFile(join(place, 'objects', tenant, 'owner', name)),
    [Symbol.asyncDispose]: async () => {
      await log[Symbol.asyncDispose]();
      await nats[Symbol.asyncDispose]();
      await rm(place, { recursive: true, force: true, maxRetries: 5 });
    },
  };
}

/** Turns one bit of a file over, as a disk that wears out does. */
async function damage(path: string): Promise<void> {
  const bytes = await readFile(path);
  bytes[OBJECT_BYTES / 2] = (bytes[OBJECT_BYTES / 2] ?? 0) ^ 1;
  await writeFile(path, bytes);
}

test('a file of an object that was damaged in a backup is whole after the next one, and can be restored', async () => {
  await using found = await installation();
  await found.backUp();
  await damage(join(found.to, 'objects', found.pathOf('two')));
  await expect(found.restored()).rejects.toThrow(/damaged: .*two has another SHA-256 .* take another backup/);
  await found.backUp();
  const objects = await found.restored();
  for (const name of ['one', 'two', 'three'])
    expect(await readFile(join(objects, found.pathOf(name)))).toEqual(await found.original(name));
});

test('so it is where the list of a backup’s objects was damaged, too', async () => {
  await using found = await installation();
  await found.backUp();
  const list = (await readdir(found.to)).find((name) => name.startsWith('objects-')) ?? '';
  await rm(join(found.to, list));
  await damage(join(found.to, 'objects', found.pathOf('three')));
  await expect(found.restored()).rejects.toThrow(/damaged: .*objects-.* cannot be read/);
  await found.backUp();
  const objects = await found.restored();
  expect(await readFile(join(objects, found.pathOf('three')))).toEqual(await found.original('three'));
});

test('an object of a backup that can no longer be read is copied again', async () => {
  await using found = await installation();
  await found.backUp();
  const to = await directoryObjects(join(found.to, 'objects'));
  const worn = overriding(to, { open: async () => await Promise.reject(new Error('EIO: i/o error, read')) });
  const from = await directoryObjects(found.objects);
  const known: ObjectIndex = new Map();
  await copyMissing({ from, to, known: new Map() }, known);
  const put: string[] = [];
  const counting = overriding(worn, {
    put: async (address, source) => {
      put.push(address.name);
      return await to.put(address, source);
    },
  });
  const index: ObjectIndex = new Map();
  await copyMissing({ from, to: counting, known }, index);
  expect(put.toSorted()).toEqual(['one', 'three', 'two']);
  expect(index).toEqual(known);
});

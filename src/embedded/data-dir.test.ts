import { mkdir, mkdtemp, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { StartError } from '../lib/start-error.ts';
import { openDataDir, readPublished } from './data-dir.ts';

let path = '';
beforeEach(async () => {
  path = join(await mkdtemp(join(tmpdir(), 'agent-host-data-')), 'deep', 'data');
});
afterEach(() => rm(join(path, '..', '..'), { recursive: true, force: true }));

test('keeps the node id, the admin key and the key-encryption key', async () => {
  const first = await openDataDir(path);
  const before = [first.nodeId, await first.adminKey(), await first.kek()];
  await first.release();
  const second = await openDataDir(path);
  expect([second.nodeId, await second.adminKey(), await second.kek()]).toEqual(before);
  expect(before[1]).toMatch(/^hk_[A-Za-z0-9_-]{43}$/);
  expect(Buffer.from(before[2] ?? '', 'base64')).toHaveLength(32);
  for (const name of ['admin-key', 'kek']) expect((await stat(join(path, name))).mode & 0o777).toBe(0o600);
  await second.release();
});

test('publishes addresses for its own account only, and withdraws them', async () => {
  const dataDir = await openDataDir(path);
  dataDir.publish('listen', 'http://127.0.0.1:1');
  dataDir.publish('listen', 'http://127.0.0.1:2');
  expect(await readPublished(path, 'listen')).toBe('http://127.0.0.1:2');
  expect((await stat(join(path, 'listen'))).mode & 0o777).toBe(0o600);
  await mkdir(join(path, 'nats-url'));
  expect(() => dataDir.publish('nats-url', 'in the way is a directory')).toThrow(/EISDIR/);
  expect((await readdir(path)).filter((name) => name.includes('.tmp'))).toEqual([]);
  await dataDir.withdraw('listen');
  await dataDir.withdraw('listen');
  expect(await readPublished(path, 'listen')).toBeUndefined();
  await writeFile(join(path, 'listen'), '');
  expect(await readPublished(path, 'listen')).toBeUndefined();
  await dataDir.release();
});

test('says what is wrong with a key or a directory that cannot be used', async () => {
  const dataDir = await openDataDir(path);
  await writeFile(join(path, 'admin-key'), '\n');
  await expect(dataDir.adminKey()).rejects.toThrow(StartError);
  await writeFile(join(path, 'kek'), 'c2hvcnQ=');
  await expect(dataDir.kek()).rejects.toThrow(/32 bytes/);
  await dataDir.release();
  await expect(openDataDir(join(path, 'kek'))).rejects.toThrow(/cannot be used .* set AGENT_HOST_DATA_DIR/);
});

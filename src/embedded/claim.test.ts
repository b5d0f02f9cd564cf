import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { parseClaim, tryClaim } from './claim.ts';
import { parseStat, processIdentity } from '../lib/process-identity.ts';

let directory = '';
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'agent-host-claim-'));
});
afterEach(() => rm(directory, { recursive: true, force: true }));

test('is had once, and again after its release', async () => {
  const first = await tryClaim(directory, 'lock');
  expect(await tryClaim(directory, 'lock')).toEqual({ heldBy: process.pid });
  if ('claim' in first) await first.claim.release();
  expect(await tryClaim(directory, 'lock')).toHaveProperty('claim');
});

test('a dead process, and a living one with a reused pid, hold nothing', async () => {
  await writeFile(join(directory, 'lock.4194999.boot-1'), '');
  await writeFile(join(directory, `lock.${process.ppid}.boot-1`), '');
  expect(await tryClaim(directory, 'lock')).toHaveProperty('claim');
  expect(await readdir(directory)).toHaveLength(1);
});

test('a living process holds it, by whatever name it is waited for', async () => {
  await writeFile(join(directory, `lock.${process.ppid}.${processIdentity(process.ppid) ?? ''}`), '');
  expect(await tryClaim(directory, 'lock')).toEqual({ heldBy: process.ppid });
  expect(await tryClaim(directory, 'other')).toHaveProperty('claim');
  expect(await readdir(directory)).toHaveLength(2);
});

test('reads the name of a claim', () => {
  expect(parseClaim('lock.12.boot-3', 'lock')).toEqual({ pid: 12, identity: 'boot-3' });
  for (const name of ['lock', 'lock.', 'lock.x.y', 'locker.1.2', 'lock.0.1'])
    expect(parseClaim(name, 'lock')).toBeUndefined();
});

test('reads state and start of a process whose name has parentheses', () => {
  const fields = Array.from({ length: 30 }, (_, index) => String(index));
  expect(parseStat(`7 (a) b (c)) Z ${fields.join(' ')}`)).toEqual({ state: 'Z', startTicks: '18' });
});

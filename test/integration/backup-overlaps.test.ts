import { execFile } from 'node:child_process';
import { constants } from 'node:fs';
import { access, mkdir, mkdtemp, open, rm } from 'node:fs/promises';
import type { FileHandle } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { readConfig } from '#src/app/config.ts';
import { backup } from '#src/cli/backup.ts';
import { hasCode } from '#src/lib/files.ts';
import { newId } from '#src/lib/ids.ts';
import { StartError } from '#src/lib/start-error.ts';
import { closeNats, connectNats } from '#src/streams/jetstream/connection.ts';
import { ShardSplit } from '#src/streams/jetstream/shard-split.ts';
import { bucketOf, streamOf } from '#src/streams/subjects.ts';
import { appendAll, newCommits, newRef } from '../support/commits.ts';
import { openLog } from '../support/jetstream.ts';
import { TestNats } from '../support/nats.ts';
import { until } from '../support/wait-until.ts';

const AGGREGATES = 20;
const COMMITS = 2;

/** An object whose bytes come when the test writes them: a backup that copies it is between its two looks at the log. */
async function slowObject(root: string): Promise<string> {
  const owner = join(root, newId('tn'), 'owner');
  await mkdir(owner, { recursive: true });
  const path = join(owner, 'slow');
  await promisify(execFile)('mkfifo', [path]);
  return path;
}

/** The pipe, once the backup reads from it. */
async function readFrom(path: string): Promise<FileHandle> {
  return await until('the backup copies the objects', async () => {
    try {
      return await open(path, constants.O_WRONLY | constants.O_NONBLOCK);
    } catch (error) {
      if (hasCode(error, 'ENXIO')) return undefined;
      throw error;
    }
  });
}

/** Moves a log of one stream to two, as the operator's command does. */
async function split(url: string, expected: readonly number[]): Promise<void> {
  const connections = await connectNats(url, 'test');
  try {
    const moving = await ShardSplit.open(connections.consumers);
    const begun = await moving.begin(1, 2);
    await moving.copy(begun, () => undefined);
    await moving.separate(await moving.decide(begun, expected));
    await moving.end();
  } finally {
    await closeNats(connections);
  }
}

test('a backup during which the log is moved to more shards does not say that it is whole', async () => {
  await using nats = await TestNats.start();
  await using log = await openLog(nats.url);
  const refs = Array.from({ length: AGGREGATES }, () => newRef());
  const counts = [0, 0];
  for (const ref of refs) {
    await appendAll(log.store, ref, newCommits(COMMITS));
    const shard = streamOf(bucketOf(ref), 2);
    counts[shard] = (counts[shard] ?? 0) + COMMITS;
  }
  expect(Math.min(...counts), 'some histories move').toBeGreaterThan(0);
  const place = await mkdtemp(join(tmpdir(), 'agent-host-backup-'));
  try {
    const slow = await slowObject(join(place, 'objects'));
    const config = readConfig({ NATS_URL: nats.url, AGENT_HOST_DATA_DIR: place });
    const to = join(place, 'backup');
    const running = backup(config, [to]).catch((error: unknown) => error);
    const pipe = await readFrom(slow);
    await split(nats.url, counts);
    await pipe.close();
    const ended = await running;
    expect(ended).toBeInstanceOf(StartError);
    expect(ended).toMatchObject({ message: expect.stringMatching(/moved to more shards .* take the backup again/) });
    await expect(access(join(to, 'manifest.json'))).rejects.toThrow('ENOENT');
  } finally {
    await rm(place, { recursive: true, force: true });
  }
});

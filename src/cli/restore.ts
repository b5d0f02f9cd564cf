import { createReadStream } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { directoryObjects } from '../drivers/objects/directory.ts';
import type { ObjectStore } from '../drivers/objects/port.ts';
import { isMigrated } from '../projections/read-store/migrate.ts';
import { isHostKeyOf } from '../streams/wrapped-keys.ts';
import { closeNats, connectNats, NatsSetupError } from '../streams/jetstream/connection.ts';
import { RESTORE_MARK, StreamArchive } from '../streams/jetstream/stream-archive.ts';
import type { StreamCopy } from '../streams/jetstream/stream-archive.ts';
import { openObjects } from '../app/artifacts.ts';
import { Sealing, verifyFile } from '../archive/backup/files.ts';
import { readManifest } from '../archive/backup/manifest.ts';
import type { Manifest, StreamEntry } from '../archive/backup/manifest.ts';
import { putBack, readIndex } from '../archive/backup/objects.ts';
import type { ObjectIndex } from '../archive/backup/objects.ts';
import { ByteProgress } from '../archive/backup/progress.ts';
import type { Config } from '../app/config.ts';
import { openDataDir } from '../embedded/data-dir.ts';
import type { DataDir } from '../embedded/data-dir.ts';
import { startNats } from '../embedded/servers.ts';
import { hostKeysOfRunning } from '../app/host-key.ts';
import { Stack } from '../lib/stack.ts';
import { misuse, StartError } from '../lib/start-error.ts';
import { readArguments } from './arguments.ts';
import { operatorOptionsOf } from './catalog/operators.ts';
import { print } from './client/output.ts';

/**
 * `agent-host restore <directory>`: makes a new installation from a backup, with the same sequences, so that cursors
 * and expectations keep their meaning. Nothing is touched before the whole backup has been verified. If it was
 * interrupted, run it again. The first start makes read models and everything else from the log.
 */
export async function restore(config: Config, args: readonly string[]): Promise<number> {
  const { values, words } = readArguments(args, operatorOptionsOf('restore'));
  const directory = resolve(words[0] ?? misuse('name the directory: agent-host restore <directory>'));
  const manifest = await readManifest(directory);
  if (manifest === null) {
    throw new StartError(`${directory} holds no whole backup (no manifest.json); run agent-host backup to its end`);
  }
  checkShards(config, manifest);
  const stack = new Stack();
  try {
    const dataDir = await openDataDir(config.dataDir);
    stack.defer('data directory', async () => await dataDir.release());
    await checkHostKey(config, manifest);
    const index = await verify(directory, manifest);
    await checkReadModels(config, dataDir);
    const archive = await openArchive(config, dataDir, stack);
    const to = await openObjects(config, dataDir.path, stack);
    await begin(archive, to, config.replicas);
    await putBack({ from: await directoryObjects(join(directory, 'objects')), to }, index);
    for (const entry of manifest.streams) await restoreStream(archive, { directory, entry, replicas: config.replicas });
    await archive.remove(RESTORE_MARK);
    return print([{ id: manifest.id, begunAt: manifest.begunAt }], values.json, () => {
      return `restored what was acknowledged before ${manifest.begunAt}; start the Host\n`;
    });
  } finally {
    await stack.unwind();
  }
}

function checkShards({ shards }: Config, manifest: Manifest): void {
  if (shards === undefined || shards === manifest.shards) return;
  throw new StartError(
    `the backup has ${manifest.shards} log shards, AGENT_HOST_LOG_SHARDS says ${shards}; set it to ${manifest.shards} or leave it unset, a restore does not change the number`,
  );
}

async function checkHostKey(config: Config, { hostKeyCheck }: Manifest): Promise<void> {
  const { hostKey, earlierHostKeys } = await hostKeysOfRunning(config);
  if ([hostKey, ...earlierHostKeys].some((key) => isHostKeyOf(key, hostKeyCheck))) return;
  throw new StartError(
    'the Host key is not the one of the installation that was backed up; put the right one into the kek file of the data directory, or name it by AGENT_HOST_KEK_FILE: a backup does not hold it',
  );
}

/** Reads every file of the backup. @throws StartError when one is not what the manifest says */
async function verify(directory: string, { streams, objects }: Manifest): Promise<ObjectIndex> {
  const progress = new ByteProgress('verifying');
  for (const { file, ...seal } of [...streams, objects]) await verifyFile(join(directory, file), seal, progress);
  const index = await readIndex(join(directory, objects.file));
  for (const [path, seal] of index) await verifyFile(join(directory, 'objects', path), seal, progress);
  progress.end();
  return index;
}

/** Read models of another log would be taken for this one's. */
async function checkReadModels(config: Config, dataDir: DataDir): Promise<void> {
  if (config.databaseUrl === undefined) {
    if (!(await readdir(dataDir.path)).includes('postgres')) return;
    throw new StartError(`${dataDir.path} holds the read models of another installation; use an empty data directory`);
  }
  let used: boolean;
  try {
    used = await isMigrated(config.databaseUrl);
  } catch (cause) {
    throw new StartError('the database of DATABASE_URL cannot be used; check the address, and that it runs', { cause });
  }
  if (used) throw new StartError('the database of DATABASE_URL holds read models; name an empty one');
}

async function openArchive(config: Config, dataDir: DataDir, stack: Stack): Promise<StreamArchive> {
  const report = (line: string): void => void process.stderr.write(`${line}\n`);
  let url = config.natsUrl;
  if (url === undefined) {
    const server = await startNats(config, dataDir, report);
    stack.defer('nats-server', async () => await server.stop());
    url = server.url;
  }
  try {
    const connections = await connectNats(url, 'restore', { caFile: config.natsCaFile });
    stack.defer('connections', async () => await closeNats(connections));
    return await StreamArchive.open(connections.consumers);
  } catch (cause) {
    throw cause instanceof NatsSetupError ? new StartError(cause.message, { cause }) : cause;
  }
}

/** Refuses an installation that is not empty, unless a restore has begun it: what that left is discarded. */
async function begin(archive: StreamArchive, objects: ObjectStore, replicas: number): Promise<void> {
  const names = (await archive.names()).filter((name) =>
    /^(EVT_\d+|WORK|KV_(SECRETS|DIRECTORY|SNAPSHOT|LEASE))$/.test(name),
  );
  if ((await archive.names()).includes(RESTORE_MARK)) {
    for (const name of names) await archive.remove(name);
    return;
  }
  if (names.length > 0) {
    throw new StartError(`this NATS holds an installation already (${names.join(', ')}); restore into an empty one`);
  }
  for await (const page of objects.list()) {
    if (page.length > 0) throw new StartError('the object store holds objects already; restore into an empty one');
  }
  await archive.mark(replicas);
}

async function restoreStream(
  archive: StreamArchive,
  { directory, entry, replicas }: { directory: string; entry: StreamEntry; replicas: number },
): Promise<void> {
  const progress = new ByteProgress(entry.name);
  const file = createReadStream(join(directory, entry.file), { highWaterMark: 524_288 });
  // The server's own words, given back to it.
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion
  const { config, state } = entry as unknown as Pick<StreamCopy, 'config' | 'state'>;
  const chunks = new Sealing().through(file, progress);
  const found = await archive.restore({ config, state, chunks }, { replicas });
  if (found.last_seq < entry.lastSequence) {
    throw new Error(`${entry.name} was not restored whole: it ends at ${found.last_seq}, not at ${entry.lastSequence}`);
  }
  if (isLog(entry.name)) await archive.trim(entry.name, entry.lastSequence, found.last_seq);
  await archive.close(config);
  progress.end(`, ${found.messages} messages up to ${entry.lastSequence}`);
}

/** The event streams end at the instant of the backup; a bucket's copy stays as it is. */
function isLog(name: string): boolean {
  return name.startsWith('EVT_');
}

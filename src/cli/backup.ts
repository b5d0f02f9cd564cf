import { mkdir, readdir, rm, stat } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { ulid } from 'ulid';
import { directoryObjects } from '../drivers/objects/directory.ts';
import { HOST_KEY_CHECK } from '../streams/wrapped-keys.ts';
import { closeNats, connectNats, NatsSetupError } from '../streams/jetstream/connection.ts';
import { eventStream, RESHARD_MARK } from '../streams/jetstream/shard-streams.ts';
import { RESTORE_MARK, StreamArchive } from '../streams/jetstream/stream-archive.ts';
import type { Cut, StreamCopy } from '../streams/jetstream/stream-archive.ts';
import { shardOfStreamName, streamName } from '../streams/subjects.ts';
import { openObjects } from '../app/artifacts.ts';
import { damageOf, writeStream } from '../archive/backup/files.ts';
import type { FileSeal } from '../archive/backup/files.ts';
import { MANIFEST_FORMAT, readManifest, writeManifest } from '../archive/backup/manifest.ts';
import type { Manifest, StreamEntry } from '../archive/backup/manifest.ts';
import { copyMissing, readIndex, removeOthers, writeIndex } from '../archive/backup/objects.ts';
import type { ObjectIndex } from '../archive/backup/objects.ts';
import { ByteProgress } from '../archive/backup/progress.ts';
import type { Config } from '../app/config.ts';
import { tryClaim } from '../embedded/claim.ts';
import { Stack } from '../lib/stack.ts';
import { misuse, StartError } from '../lib/start-error.ts';
import { version } from '../app/version.ts';
import { readArguments } from './arguments.ts';
import { operatorOptionsOf } from './catalog/operators.ts';
import { print } from './client/output.ts';
import { logUrlOf } from './running-host.ts';

const SECRETS = 'KV_SECRETS';
const DIRECTORY = 'KV_DIRECTORY';

/**
 * `agent-host backup <directory>`: copies, while it runs, what an installation cannot be rebuilt without: the streams
 * of the log, the tenants' wrapped keys, the objects. A directory with a backup gets a newer one; its objects are not
 * copied again. Returns the exit code.
 *
 * The order is what makes it consistent. Objects first; then the directory, thus never newer than the log that it was
 * made from; the log up to one instant; the keys, thus at least as new as the log; then newer objects, so that what the
 * log names is there.
 */
export async function backup(config: Config, args: readonly string[]): Promise<number> {
  const { values, words } = readArguments(args, operatorOptionsOf('backup'));
  const directory = resolve(words[0] ?? misuse('name the directory: agent-host backup <directory>'));
  const stack = new Stack();
  try {
    await takeDirectory(directory, stack);
    const connections = await plainly(connectNats(await logUrlOf(config), 'backup', { caFile: config.natsCaFile }));
    stack.defer('connections', async () => await closeNats(connections));
    const archive = await StreamArchive.open(connections.consumers);
    const before = await readManifest(directory);
    await checkObjects(config);
    const from = await openObjects(config, config.dataDir, stack);
    const to = await directoryObjects(join(directory, 'objects'));
    const known = before === null ? new Map<string, FileSeal>() : await knownOf(directory, before);
    const id = ulid();
    const begunAt = new Date().toISOString();
    const shards = await shardsOf(archive);
    const index: ObjectIndex = new Map();
    await copyMissing({ from, to, known }, index);
    const { streams, configs, hostKeyCheck } = await copyStreams(archive, { directory, id, shards });
    await refuseMoved(archive, { shards, configs });
    await copyMissing({ from, to, known }, index);
    const file = `objects-${id}.txt`;
    const objects = { file, ...(await writeIndex(join(directory, file), index)), ...totalsOf(index) };
    const rest = { version: await version(), begunAt, endedAt: new Date().toISOString(), shards, hostKeyCheck };
    await writeManifest(directory, { format: MANIFEST_FORMAT, id, ...rest, streams, objects });
    await removeOlder(directory, id);
    await removeOthers(to, index);
    return print([{ directory, id, begunAt, objects: index.size }], values.json, () => {
      return `${directory}: whole; it holds what was acknowledged before ${begunAt}\n`;
    });
  } finally {
    await stack.unwind();
  }
}

/** Two backups at once would remove each other's files. */
async function takeDirectory(directory: string, stack: Stack): Promise<void> {
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const attempt = await tryClaim(directory, 'lock');
  if ('heldBy' in attempt) {
    throw new StartError(`the process with pid ${attempt.heldBy} is working on ${directory}; wait for it`);
  }
  const { claim } = attempt;
  stack.defer('lock', async () => await claim.release());
}

/** An empty directory other than the Host's would be taken for a store without objects. */
async function checkObjects({ s3, objectsDir, dataDir }: Config): Promise<void> {
  const path = objectsDir ?? join(dataDir, 'objects');
  if (s3 !== null || (await isDirectory(path))) return;
  throw new StartError(`there are no objects in ${path}; set AGENT_HOST_OBJECTS_DIR, or S3_BUCKET, as the Host has it`);
}

async function isDirectory(path: string): Promise<boolean> {
  try {
    return (await stat(path)).isDirectory();
  } catch {
    return false;
  }
}

/** The objects of the backup before; null: its list is damaged, and none of its files can be checked. */
async function knownOf(directory: string, { objects: { file, ...seal } }: Manifest): Promise<ObjectIndex | null> {
  const path = join(directory, file);
  const damage = await damageOf(path, seal);
  if (damage === null) return await readIndex(path);
  process.stderr.write(`${path} ${damage}: all objects are copied again\n`);
  return null;
}

async function shardsOf(archive: StreamArchive): Promise<number> {
  const names = await archive.names();
  if (names.includes(RESTORE_MARK)) throw new StartError('a restore into this NATS has not ended; wait for it');
  if (names.includes(RESHARD_MARK)) throw new StartError('a move to more shards has not ended; wait for it');
  const shards = names.filter(isShard).length;
  if (shards > 0 && [SECRETS, DIRECTORY].every((name) => names.includes(name))) return shards;
  throw new StartError('this NATS holds no installation; check NATS_URL, or start a Host on it first');
}

const isShard = (name: string): boolean => name.startsWith('EVT_');

/** What of a stream's configuration says which histories it holds. */
type Holding = Pick<StreamCopy['config'], 'name' | 'subjects'>;

/**
 * A move to more shards takes histories out of streams and into others, which were not there when the copying began. One
 * that was taken back has left the log as it was, but maybe not the copies: these say that they hold fewer histories.
 * @throws StartError when there was one, or is
 */
export async function refuseMoved(
  archive: Pick<StreamArchive, 'names'>,
  { shards, configs }: { readonly shards: number; readonly configs: readonly Holding[] },
): Promise<void> {
  const names = await archive.names();
  const isMoving = names.includes(RESHARD_MARK) || names.filter(isShard).length !== shards;
  if (!isMoving && configs.every((config) => holdsItsOwn(config, shards))) return;
  throw new StartError(
    'the log was moved to more shards meanwhile, and what was copied is not whole; take the backup again once agent-host reshard has ended',
  );
}

function holdsItsOwn({ name, subjects: held }: Holding, shards: number): boolean {
  if (!isShard(name)) return true;
  const { subjects } = eventStream(shardOfStreamName(name), { shards, replicas: 1 });
  return subjects.every((subject) => held.includes(subject));
}

async function copyStreams(
  archive: StreamArchive,
  { directory, id, shards }: { directory: string; id: string; shards: number },
): Promise<{ streams: StreamEntry[]; configs: Holding[]; hostKeyCheck: string }> {
  const events = Array.from({ length: shards }, (_, shard) => streamName(shard));
  const configs: Holding[] = [];
  const copy = async (name: string, cut?: Cut): Promise<StreamEntry> => {
    const { config, state, chunks } = await archive.copy(name);
    configs.push(config);
    const file = `${name}-${id}.snapshot`;
    const progress = new ByteProgress(name);
    const seal = await writeStream(join(directory, file), chunks, progress);
    progress.end();
    const { messages, first_seq: firstSequence, last_seq } = state;
    const place = { messages, firstSequence, lastSequence: cut?.get(name) ?? last_seq };
    return { name, file, ...seal, ...place, config: { ...config }, state: { ...state } };
  };
  // The directory spares the first start a time without known credentials. A restore begins at the other end: a log
  // whose keys are not there yet would be taken for damaged.
  const entries = [await copy(DIRECTORY)];
  const cut = await archive.cut(events);
  for (const name of events) entries.push(await copy(name, cut));
  const check = async (): Promise<string | null> => await archive.value('SECRETS', HOST_KEY_CHECK);
  const keys = await underOneHostKey(check, async () => await copy(SECRETS));
  return { streams: [...entries, keys.copied].toReversed(), configs, hostKeyCheck: keys.hostKeyCheck };
}

/** Copies the keys, and says by what their Host key is known. @throws StartError when that has been changed meanwhile */
export async function underOneHostKey<T>(
  check: () => Promise<string | null>,
  copy: () => Promise<T>,
): Promise<{ readonly copied: T; readonly hostKeyCheck: string }> {
  const hostKeyCheck = await check();
  if (hostKeyCheck === null) throw new StartError('this installation has no Host key yet; start a Host on it first');
  const copied = await copy();
  // A restore that is given the one key would find that it does not open what the other one has wrapped.
  if ((await check()) !== hostKeyCheck) {
    throw new StartError('the Host key was changed meanwhile; run the backup again');
  }
  return { copied, hostKeyCheck };
}

function totalsOf(index: ObjectIndex): Pick<Manifest['objects'], 'count' | 'totalBytes'> {
  let totalBytes = 0;
  for (const { bytes } of index.values()) totalBytes += bytes;
  return { count: index.size, totalBytes };
}

/** Files of the backup before, and of interrupted ones. */
async function removeOlder(directory: string, id: string): Promise<void> {
  for (const name of await readdir(directory)) {
    if (!/^(EVT_\d+|KV_(SECRETS|DIRECTORY)|objects)-[0-9A-Z]{26}\.(snapshot|txt)(\.unfinished)?$/.test(name)) continue;
    if (!name.includes(id)) await rm(join(directory, name), { force: true });
  }
}

async function plainly<T>(connecting: Promise<T>): Promise<T> {
  try {
    return await connecting;
  } catch (cause) {
    throw cause instanceof NatsSetupError ? new StartError(cause.message, { cause }) : cause;
  }
}

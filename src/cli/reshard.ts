import type { Config } from '../app/config.ts';
import { EVENT_SCHEMAS } from '../app/event-schemas.ts';
import { hostKeysOfRunning } from '../app/host-key.ts';
import { openLog } from '../app/log.ts';
import type { LogPorts } from '../app/log.ts';
import { Metrics } from '../app/metrics/metrics.ts';
import { PROJECTIONS } from '../app/projectors.ts';
import { runningNodes } from '../app/running-nodes.ts';
import { openDataDir } from '../embedded/data-dir.ts';
import { startServers } from '../embedded/servers.ts';
import { armFaultPoints, faultPoint } from '../lib/fault-points.ts';
import { createLogger } from '../lib/logger.ts';
import type { Logger } from '../lib/logger.ts';
import { Stack } from '../lib/stack.ts';
import { misuse, StartError } from '../lib/start-error.ts';
import { FencedError } from '../projections/checkpoint.ts';
import { isMigrated, migrate } from '../projections/read-store/migrate.ts';
import { openReadStore } from '../projections/read-store/pool.ts';
import { rebuild } from '../projections/rebuild.ts';
import { ChainVerifier } from '../streams/chain-verifier.ts';
import { commitPlace, lastPosition } from '../streams/event-store.ts';
import type { CommitSource, FollowedCommit } from '../streams/event-store.ts';
import { closeNats, connectNats, NatsSetupError } from '../streams/jetstream/connection.ts';
import { ShardSplit } from '../streams/jetstream/shard-split.ts';
import type { Split } from '../streams/jetstream/shard-split.ts';
import { StreamDigest } from '../streams/stream-digest.ts';
import { bucketOf, BUCKETS, streamOf } from '../streams/subjects.ts';
import { numberOf, readArguments } from './arguments.ts';
import { operatorOptionsOf } from './catalog/operators.ts';
import { print } from './client/output.ts';
import { progressPrinter } from './progress.ts';

/** Commits that are read ahead. */
const BUFFER = 500;
const CONNECTIONS = 3;

/** What a move works on. */
interface Ground {
  readonly config: Config;
  readonly split: ShardSplit;
  readonly log: LogPorts;
  readonly databaseUrl: string;
  readonly logger: Logger;
}

/**
 * `agent-host reshard --to <n>`: moves an installation to a multiple of its log shards, while no Host runs on it. An
 * interrupted one is continued by the same command, or taken back with the number that there was. Returns the exit code.
 */
export async function reshard(config: Config, args: readonly string[]): Promise<number> {
  if (config.faultPoints !== undefined) armFaultPoints(config.faultPoints);
  const { values, words } = readArguments(args, operatorOptionsOf('reshard'));
  const text = values.to ?? misuse('name the number of shards: agent-host reshard --to <n>');
  if (words.length > 0) misuse('agent-host reshard takes no words: agent-host reshard --to <n>');
  const to = numberOf('to', text, { least: 1, whole: true });
  if (to > BUCKETS) misuse(`--to must be ${BUCKETS} or less`);
  const stack = new Stack();
  try {
    return await move(await open(config, to, stack), to, values.json);
  } catch (error) {
    // Of read models that another command is rebuilding, the message says what to do; this one then ends the move.
    const isPlain = error instanceof NatsSetupError || error instanceof FencedError;
    throw isPlain ? new StartError(error.message, { cause: error }) : error;
  } finally {
    await stack.unwind();
  }
}

/** The servers, also embedded ones: no Host runs that would keep them. */
async function open(config: Config, to: number, stack: Stack): Promise<Ground> {
  const dataDir = await openDataDir(config.dataDir);
  stack.defer('data directory', async () => await dataDir.release());
  const keys = await hostKeysOfRunning(config);
  const logger = await createLogger({ level: 'warn', pretty: process.stderr.isTTY, isBeside: true });
  const report = (line: string): void => void process.stderr.write(`${line}\n`);
  const servers = await startServers({ config, dataDir, report, logger });
  stack.defer('servers', servers.stop);
  const connections = await connectNats(servers.natsUrl, 'reshard', { caFile: config.natsCaFile });
  stack.defer('connections', async () => await closeNats(connections));
  const split = await ShardSplit.open(connections.consumers);
  const begun = await split.begun();
  const from = begun?.from ?? (await split.shards());
  if (to < from || to % from !== 0) {
    throw new StartError(
      `this installation has ${from} log shards, and --to ${to} is no multiple of it; name ${from * 2} or another multiple: a history keeps its positions, so streams are split and never merged`,
    );
  }
  const log = await openLog({
    ...{ url: servers.natsUrl, caFile: config.natsCaFile, name: 'reshard', replicas: config.replicas },
    ...{ shards: undefined, asItIs: { shards: to }, isLive: false, ...keys, metrics: new Metrics(), logger },
  });
  stack.defer('log', log.close);
  return { config, split, log, databaseUrl: servers.databaseUrl, logger };
}

async function move(ground: Ground, to: number, json: boolean | undefined): Promise<number> {
  const { split, log } = ground;
  const begun = await split.begun();
  if (begun !== null && to !== begun.to) return await takeBack(ground, begun, { to, json });
  const present = begun?.from ?? (await split.shards());
  if (begun === null && present === to) {
    return print([{ shards: to, commits: null, aggregates: null }], json, () => `there are ${to} log shards already\n`);
  }
  await refuseNodes(log);
  let now = begun ?? (await split.begin(present, to));
  if (now.phase === 'copying') now = await copy(ground, now);
  await split.separate(now);
  await forgetPlaces(log);
  await rebuildAll(ground);
  const commits = await checkTotals(split, now);
  await split.end();
  return print([{ shards: to, commits }], json, () => {
    return `${to} log shards hold the ${commits} commits, every chain verified; set AGENT_HOST_LOG_SHARDS=${to} where it was set, and start the Host\n`;
  });
}

async function takeBack(
  { split, log }: Ground,
  begun: Split,
  { to, json }: { readonly to: number; readonly json: boolean | undefined },
): Promise<number> {
  const canBeTaken = begun.phase === 'copying';
  if (!canBeTaken || to !== begun.from) {
    const back = canBeTaken ? `, or with --to ${begun.from} to take it back` : '';
    throw new StartError(
      `a move from ${begun.from} to ${begun.to} log shards has begun; run this with --to ${begun.to} to end it${back}`,
    );
  }
  await refuseNodes(log);
  await split.takeBack(begun);
  return print([{ shards: to }], json, () => `taken back: there are ${to} log shards, as before\n`);
}

/** @throws StartError while a node runs */
async function refuseNodes({ leases }: LogPorts): Promise<void> {
  const nodes = await runningNodes(leases);
  if (nodes.length === 0) return;
  throw new StartError(`nodes run on this installation (${nodes.join(', ')}); stop all of them, then run this again`);
}

/** Has everything that moves copied and verified; if it cannot be, everything is as before. */
async function copy(ground: Ground, begun: Split): Promise<Split> {
  const { split, log } = ground;
  const progress = progressPrinter();
  await split.copy(begun, ({ shard, position, newest }) => progress.show({ group: 'copy', shard, position, newest }));
  progress.done();
  const { expected, problems, first } = await verify(log.source, begun);
  if (problems > 0) {
    await split.takeBack(begun);
    throw new StartError(`nothing was moved: ${problems} problems, the first: ${first}; run agent-host audit verify`);
  }
  // One that was starting when this began has registered by now.
  await refuseNodes(log);
  return await split.decide(begun, expected);
}

/**
 * Reads every stream once: the present ones against the chains of their aggregates, and each copy against what its
 * aggregates have in the stream that they come from. `expected`: how many commits each stream is to have. Of problems, of
 * which a damaged log may have as many as commits, the first is kept and the others are counted.
 */
async function verify(
  source: CommitSource,
  { from, to }: Split,
): Promise<{ readonly expected: readonly number[]; readonly problems: number; readonly first: string }> {
  let [problems, first] = [0, ''];
  const found = (problem: string): void => {
    if (problems++ === 0) first = problem;
  };
  const wanted = Array.from({ length: to }, () => new StreamDigest());
  for (let shard = 0; shard < from; shard++) {
    const chains = new ChainVerifier(EVENT_SCHEMAS);
    await each(source, shard, (followed) => {
      for (const { subject, position, what } of chains.take(followed)) found(`${subject} at ${position}: ${what}`);
      wanted[streamOf(bucketOf(commitPlace(followed).ref), to)]?.take(followed);
    });
  }
  for (let shard = from; shard < to; shard++) {
    const copied = new StreamDigest();
    await each(source, shard, (followed) => copied.take(followed));
    const digest = wanted[shard];
    if (copied.result() !== digest?.result()) found(`the copy EVT_${shard} is not what it was copied from`);
  }
  return { expected: wanted.map(({ commits }) => commits), problems, first };
}

/** What a stream holds now, in its order. */
async function each(source: CommitSource, shard: number, take: (followed: FollowedCommit) => void): Promise<void> {
  const newest = await source.newest(shard, 'all');
  if (newest === 0) return;
  const progress = progressPrinter();
  const done = new AbortController();
  for await (const batch of source.follow({ shard, kinds: 'all', after: 0, buffer: BUFFER, signal: done.signal })) {
    for (const followed of batch) take(followed);
    const position = lastPosition(batch) ?? 0;
    progress.show({ group: 'verify', shard, position, newest });
    if (position >= newest) break;
  }
  done.abort();
  progress.done();
}

/**
 * Of followers of streams that keep their place outside Postgres: open turns, and what the directory has read. Each
 * reads its streams from the beginning at the next start.
 */
async function forgetPlaces({ snapshots, directory }: LogPorts): Promise<void> {
  await snapshots.erase('dispatcher');
  await directory.erase('checkpoint');
  await faultPoint('reshard.step');
}

/** Their checkpoints and sums are those of streams. A database that no Host has used is filled by the first start. */
async function rebuildAll({ log, databaseUrl, logger }: Ground): Promise<void> {
  if (!(await isMigrated(databaseUrl))) return;
  await migrate(databaseUrl);
  const pool = await openReadStore({ url: databaseUrl, maximumConnections: CONNECTIONS });
  try {
    for (const group of PROJECTIONS) {
      const progress = progressPrinter();
      await rebuild({ pool, source: log.source, seals: log.seals, group, logger, onProgress: progress.show });
      progress.done();
      await faultPoint('reshard.step');
    }
  } finally {
    await pool.end();
  }
}

/** @returns how many commits there are in all. @throws StartError when a stream has more or fewer than were verified */
async function checkTotals(split: ShardSplit, { expected }: Split): Promise<number> {
  let commits = 0;
  for (const [shard, wanted] of expected.entries()) {
    const { messages } = await split.stateOf(shard);
    process.stderr.write(`EVT_${shard}: ${messages} commits\n`);
    if (messages !== wanted) {
      throw new StartError(
        `EVT_${shard} has ${messages} commits instead of ${wanted}; restore the backup, or ask for help`,
      );
    }
    commits += messages;
  }
  return commits;
}

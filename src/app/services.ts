import type { KeyObject } from 'node:crypto';
import type { CacheFigures } from '../commands/repository.ts';
import type { EmbeddedServers, ServersDown } from '../embedded/servers.ts';
import type { ClaimLeases } from '../engine/claim-leases.ts';
import type { ModelDriver } from '../drivers/model/port.ts';
import type { ObjectStore } from '../drivers/objects/port.ts';
import type { Clock } from '../lib/clock.ts';
import type { Logger } from '../lib/logger.ts';
import { Previews } from '../streams/previews.ts';
import type { Stack } from '../lib/stack.ts';
import { Directory } from '../projections/directory/directory.ts';
import { OwnWrites } from '../projections/own-writes.ts';
import { checkSchema } from '../projections/read-store/migrate.ts';
import type { ReadStore } from '../projections/read-store/pool.ts';
import { SCHEMAS } from '../projections/schemas.ts';
import type { MemoryPorts } from '../streams/memory/servers.ts';
import { openArtifacts } from './artifacts.ts';
import type { Artifacts } from './artifacts.ts';
import type { Config } from './config.ts';
import { forgetErased } from './data-keys.ts';
import { openClaimLeases } from './claim-leases.ts';
import { ExecutorPresence } from './executor-presence.ts';
import { openLog } from './log.ts';
import type { LogPorts } from './log.ts';
import { openMemoryLog } from './memory-log.ts';
import { Metrics } from './metrics/metrics.ts';
import { NodeRegistry } from './node-registry.ts';
import { openReadModels } from './read-models.ts';
import type { ReadModels } from './read-models.ts';
import { openPool, openReads } from './read-store.ts';
import { SERVICE } from './service.ts';
import { sandboxServices } from './sandbox-services.ts';
import type { Sandboxes } from './sandbox-services.ts';
import { openTraces } from './traces.ts';
import { version } from './version.ts';
import { writeSide } from './write-side.ts';

export interface HostOptions {
  readonly config: Config;
  readonly natsUrl: string;
  readonly databaseUrl: string;
  /** Those of the two that this process runs. */
  readonly embedded: EmbeddedServers;
  /** Of the two, those that have ended, whichever process runs them. */
  readonly down: () => ServersDown;
  readonly adminKey: string;
  /** Wraps the tenants' data keys. */
  readonly hostKey: KeyObject;
  /** They open what they wrapped before. */
  readonly earlierHostKeys: readonly KeyObject[];
  readonly nodeId: string;
  /** Which of the processes of one Host this is; absent: it is alone. */
  readonly process?: number;
  readonly clock: Clock;
  /** Where objects are kept, absolute. */
  readonly dataDir: string;
  readonly logger: Logger;
  /** What the nodes of a Host in memory share, instead of servers and files; its database is that of `databaseUrl`. */
  readonly memory?: MemoryBacking;
  /** Asks the process to stop gracefully. */
  readonly shutDown: () => void;
}

export interface MemoryBacking {
  readonly servers: MemoryPorts;
  readonly objects: ObjectStore;
  /** In the place of the fixture model. */
  readonly model: ModelDriver;
  /** How long the engine hands its turns over when it stops, ms. */
  readonly drainMs: number;
}

/** What the engine, the projectors and the resources of a node share: the log, both sides of it, and the other nodes. */
export interface Services extends ReadModels {
  readonly options: HostOptions;
  readonly metrics: Metrics;
  readonly log: LogPorts;
  readonly pool: ReadStore;
  readonly directory: Directory;
  readonly ownWrites: OwnWrites;
  readonly registry: NodeRegistry;
  readonly presence: ExecutorPresence;
  readonly write: ReturnType<typeof writeSide>;
  /** All that is kept in memory of tenants, by what it holds. */
  readonly caches: Readonly<Record<string, { readonly cacheFigures: CacheFigures }>>;
  readonly artifacts: Artifacts;
  readonly sandboxes: Sandboxes;
  readonly leases: ClaimLeases;
  readonly previews: Previews;
}

/** Connects to the log and the read store and starts what every node has, whatever its roles. */
export async function openServices(options: HostOptions, stack: Stack): Promise<Services> {
  const { config, clock, logger } = options;
  const metrics = new Metrics(options.memory === undefined);
  if (options.process !== undefined) metrics.registry.setDefaultLabels({ process: options.process });
  // Meanwhile: a connection to the database takes half as long as all that is asked of the log.
  const isUpToDate = checkSchema(options.databaseUrl).catch(() => false);
  const log = await openLogOf(options, metrics, stack);
  const pool = await openPool(options, log, { metrics, isUpToDate });
  stack.defer('read store', async () => await pool.end());
  const tenantReads = await openReads(options, log, { metrics, stack });
  const directory = await openDirectory(log, logger, stack);
  const models = openReadModels({ log, pool, tenantReads, metrics, stack });
  // It is asked again once all is there: the first connection of the pool is opened while the log tells of the other nodes.
  void models.built.settled(Object.values(SCHEMAS), 0);
  const { registry, presence } = await openPresence(options, log, stack);
  const ownWrites = new OwnWrites({ ...models, ...models.reads.sessions, source: log.source, clock });
  const write = writeSide({
    ...{ log, config, clock, metrics, ownWrites, heard: models.heard, logger },
    traced: await tracesOf(options, metrics, stack),
  });
  const reads = models.reads.artifacts;
  const { objects } = options.memory ?? {};
  const artifacts = await openArtifacts({ ...options, objects, metrics, reads, directory, write, stack });
  const ofSandboxes = { ...options, artifacts: artifacts.routes, write, registry, log, models, metrics, stack };
  const sandboxes = await sandboxServices(ofSandboxes);
  const caches = { ...write.caches, files: sandboxes.deps.workspaces };
  stack.defer('erased tenants', forgetErased(log.keyring, directory, Object.values(caches)));
  const leases = await openClaimLeases({ log, config, metrics, clock, logger, stack });
  const previews = new Previews(log.signals);
  stack.defer('previews', () => previews.stop());
  return {
    ...{ options, metrics, log, pool, directory, ...models },
    ...{ ownWrites, registry, presence, write, caches, artifacts, sandboxes, leases, previews },
  };
}

async function openLogOf({ config, logger, ...options }: HostOptions, metrics: Metrics, stack: Stack) {
  const { shards, replicas } = config;
  const { hostKey, earlierHostKeys, memory } = options;
  const log =
    memory === undefined
      ? await openLog({
          ...{ url: options.natsUrl, caFile: config.natsCaFile, name: options.nodeId, shards, replicas, isLive: true },
          ...{ hostKey, earlierHostKeys, metrics, logger },
        })
      : await openMemoryLog({ servers: memory.servers, hostKey, metrics, logger });
  stack.defer('log', log.close);
  // First: all that follow the log wait for it, even a projector that rebuilds a lost database.
  await log.feed.start();
  stack.defer('live feed', () => log.feed.stop());
  return log;
}

async function openDirectory(log: LogPorts, logger: Logger, stack: Stack): Promise<Directory> {
  const directory = new Directory({ bucket: log.directory, sealer: log.keyring, logger });
  await directory.start();
  for (const tenantId of directory.unsealed) await log.keyring.create(tenantId);
  stack.defer('directory', () => directory.stop());
  return directory;
}

/** Which nodes are there, and which executors are connected to them. */
async function openPresence({ config, nodeId, clock, logger }: HostOptions, { leases }: LogPorts, stack: Stack) {
  const registry = new NodeRegistry({ leases, clock, logger });
  const startedAt = await registry.start({ nodeId, roles: config.roles, version: await version() });
  stack.defer('node registry', async () => await registry.stop());
  const isAlive = (node: string, since: string): boolean => registry.isAlive(node, since);
  const presence = new ExecutorPresence({ leases, nodeId, startedAt, isAlive, logger });
  await presence.start();
  stack.defer('executor presence', async () => await presence.stop());
  return { registry, presence };
}

async function tracesOf({ config, nodeId, logger }: HostOptions, metrics: Metrics, stack: Stack) {
  const service = { 'service.name': SERVICE, 'service.version': await version(), 'service.instance.id': nodeId };
  return await openTraces({ config, service, metrics, logger, stack });
}

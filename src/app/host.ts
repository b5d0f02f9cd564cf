import type { KeyObject } from 'node:crypto';
import { shownBudgets } from '../domain/budget/state.ts';
import { BudgetGate } from '../engine/budget-gate.ts';
import type { ClaimLeases } from '../engine/claim-leases.ts';
import { closeServer, createServer } from '../http/server.ts';
import type { ServerParts } from '../http/server.ts';
import type { StatusRouteParts } from '../http/routes/status.ts';
import { EventStreams } from '../http/sse.ts';
import { delay } from '../lib/backoff.ts';
import { systemClock } from '../lib/clock.ts';
import { coalesced } from '../lib/coalesced.ts';
import type { Logger } from '../lib/logger.ts';
import { agentQueries } from '../projections/agents/queries.ts';
import { Directory, DirectoryProjector } from '../projections/directory/directory.ts';
import { projectionLag } from '../projections/lag.ts';
import { OwnWrites } from '../projections/own-writes.ts';
import type { ReadStore } from '../projections/read-store/pool.ts';
import { actionIndex } from '../projections/actions/queries.ts';
import { SCHEMAS } from '../projections/schemas.ts';
import { sessionQueries } from '../projections/sessions/queries.ts';
import { tenantQueries } from '../projections/tenants/queries.ts';
import { TailHub } from '../streams/tail-hub.ts';
import { openArtifacts } from './artifacts.ts';
import type { Artifacts } from './artifacts.ts';
import { hasWhatItNeeds, readiness } from './checks.ts';
import type { Config } from './config.ts';
import { forgetErased } from './data-keys.ts';
import { answersOf, standingIn } from './directory-answers.ts';
import type { EmbeddedServers } from '../embedded/servers.ts';
import { Engine } from './engine.ts';
import { executorParts, openClaimLeases } from './executor-parts.ts';
import { ExecutorPresence } from './executor-presence.ts';
import type { PresenceParts } from './executor-presence.ts';
import { openGate } from './gate.ts';
import { listen, listening } from './listening.ts';
import { openLog } from './log.ts';
import type { LogParts } from './log.ts';
import { modelCatalog, openModels } from './models.ts';
import { NodeRegistry } from './node-registry.ts';
import { sampleInstallation } from './metrics/installation.ts';
import { Metrics } from './metrics/metrics.ts';
import { sampleNode } from './metrics/node.ts';
import { serveMetrics } from './metrics/server.ts';
import { PROJECTIONS, startProjectors } from './projectors.ts';
import { caughtUpOf, freshnessOf, openReadModels } from './read-models.ts';
import type { ReadModels } from './read-models.ts';
import { openPool, openReads } from './read-store.ts';
import { tenantDeletion } from './tenant-deletion.ts';
import { openTraces } from './traces.ts';
import { usageParts } from './usage.ts';
import { version } from './version.ts';
import { Stack } from '../lib/stack.ts';
import { writeSide } from './write-side.ts';
import { streamAccess } from './stream-access.ts';

export interface HostOptions {
  readonly config: Config;
  readonly natsUrl: string;
  readonly databaseUrl: string;
  /** Those of the two that this process runs. */
  readonly embedded: EmbeddedServers;
  readonly adminKey: string;
  /** Wraps the tenants' data keys. */
  readonly hostKey: KeyObject;
  readonly nodeId: string;
  /** Where objects are kept, absolute. */
  readonly dataDir: string;
  readonly logger: Logger;
  /** Asks the process to stop gracefully. */
  readonly shutDown: () => void;
}

export interface Host {
  /** `host:port` that it listens on. */
  readonly address: string;
  readonly metricsAddress: string;
  readonly stop: () => Promise<void>;
}

const SERVICE = 'agent-runtime-host';
const FEATURES = ['runtime-tenants', 'admin-status', 'studio-principal', 'subject-headers'];
const KEEPALIVE_MS = 15_000;
/** `/ready` needs no credential: however often it is asked, the dependencies are asked once in this time. */
const CHECKS_KEPT_MS = 1_000;
/** How long a start waits for read models that are being built, ms. */
const BUILT_WITHIN_MS = 2_000;

/** Builds a Host from its parts and starts them, the listener last; `stop` ends them in reverse order. */
export async function startHost(options: HostOptions): Promise<Host> {
  const stack = new Stack();
  try {
    return await assemble(options, stack);
  } catch (error) {
    await stack.unwind();
    throw error;
  }
}

async function assemble(options: HostOptions, stack: Stack): Promise<Host> {
  const { config, logger, nodeId } = options;
  const metrics = new Metrics();
  const { shards, replicas } = config;
  const log = await openLog({
    ...{ url: options.natsUrl, caFile: config.natsCaFile, name: nodeId, shards, replicas, isLive: true },
    ...{ hostKey: options.hostKey, metrics, logger },
  });
  stack.defer('log', log.close);
  // First: whoever follows the log waits for it, also a projector that makes a lost database again.
  await log.feed.start();
  stack.defer('live feed', () => log.feed.stop());
  const pool = await openPool(options, log, metrics);
  stack.defer('read store', async () => await pool.end());
  const tenantReads = await openReads(options, metrics, stack);
  const directory = new Directory({ bucket: log.directory, sealer: log.keyring, logger });
  await directory.start();
  for (const tenantId of directory.unsealed) await log.keyring.create(tenantId);
  stack.defer('directory', () => directory.stop());
  const models = openReadModels({ log, pool, tenantReads, metrics, stack });
  const registry = new NodeRegistry({ leases: log.leases, clock: systemClock, logger });
  const startedAt = await registry.start({ nodeId, roles: config.roles, version: await version() });
  stack.defer('node registry', async () => await registry.stop());
  const isAlive: PresenceParts['isAlive'] = (node, since) => registry.isAlive(node, since);
  const presence = new ExecutorPresence({ leases: log.leases, nodeId, startedAt, isAlive, logger });
  await presence.start();
  stack.defer('executor presence', async () => await presence.stop());
  const service = { 'service.name': SERVICE, 'service.version': await version(), 'service.instance.id': nodeId };
  const traced = await openTraces({ config, service, metrics, logger, stack });
  const ownWrites = new OwnWrites({ ...models, ...models.reads.sessions, source: log.source, clock: systemClock });
  const write = writeSide({ log, config, metrics, traced, ownWrites, logger });
  const { loop: _loop, ...caches } = write;
  stack.defer('erased tenants', forgetErased(log.keyring, directory, Object.values(caches)));
  const artifacts = await openArtifacts({
    ...options,
    metrics,
    reads: models.reads.artifacts,
    directory,
    write,
    stack,
  });
  const leases = await openClaimLeases({ log, config, logger, stack });
  const parts: Built = {
    options,
    metrics,
    log,
    pool,
    directory,
    ...models,
    ownWrites,
    registry,
    presence,
    write,
    artifacts,
    leases,
  };
  if (config.roles.includes('projector')) startReadModels(parts, stack);
  // A new installation has nothing to read: whoever finds it listening shall find its lists, too.
  await models.built.settled(Object.values(SCHEMAS), BUILT_WITHIN_MS);
  const engine = await startEngine(parts, stack);
  const { hub, streams } = openStreams(parts, stack);
  const { dataDir, embedded } = options;
  sampleNode(metrics, { dataDir, embedded, logConnected: log.connected, streams, presence, engine, caches });
  const addresses = await serve(parts, { engine, hub, streams, stack });
  // Only now could an executor be heard.
  if (config.roles.includes('commands')) leases.hear();
  const onError = (name: string, error: unknown): void =>
    logger.error({ err: error, part: name }, 'a part did not stop cleanly');
  return { ...addresses, stop: async () => await stack.unwind(onError) };
}

/** Opens the listeners, of the metrics first: whoever finds the Host listening finds them. */
async function serve(
  built: Built,
  { engine, hub, streams, stack }: Omit<Running, 'isDraining'> & { readonly hub: TailHub },
): Promise<Pick<Host, 'address' | 'metricsAddress'>> {
  const { config } = built.options;
  const draining = new AbortController();
  const isDraining = (): boolean => draining.signal.aborted;
  const parts = await serverParts(built, { engine, streams, isDraining, stack });
  const server = await createServer(parts);
  const isReady = async (): Promise<boolean> =>
    !isDraining() && hasWhatItNeeds(config.roles, await parts.host.checks());
  const metricsServer = await listening(config.metricsListen.port, 'AGENT_HOST_METRICS_LISTEN', async () => {
    return await serveMetrics(built.metrics, config.metricsListen, isReady);
  });
  stack.defer('metrics', metricsServer.close);
  const address = await listen(server, config);
  stack.defer('listener', async () => {
    // Balancers have seen that this node is not ready before it takes no more connections.
    draining.abort();
    await delay(config.drainMs);
    hub.stop();
    streams.stop();
    await closeServer(server);
  });
  return { address, metricsAddress: metricsServer.address };
}

interface Built extends ReadModels {
  readonly options: HostOptions;
  readonly metrics: Metrics;
  readonly log: LogParts;
  readonly pool: ReadStore;
  readonly directory: Directory;
  readonly ownWrites: OwnWrites;
  readonly registry: NodeRegistry;
  readonly presence: ExecutorPresence;
  readonly write: ReturnType<typeof writeSide>;
  readonly artifacts: Artifacts;
  readonly leases: ClaimLeases;
}

function openStreams({ options, log, directory, metrics }: Built, stack: Stack) {
  const { bufferBytes, totalBytes, perTenantMax, slowMs } = options.config.stream;
  const hub = new TailHub({
    ...{ store: log.store, feed: log.feed, logger: options.logger, slowMs },
    keptBytesMax: Math.ceil(totalBytes / 4),
    onDelivered: (ageMs) => metrics.tailLag.observe(Math.max(0, ageMs) / 1000),
    onBackfill: (reason) => metrics.tailBackfills.inc({ reason }),
  });
  const onRefused = (): void => metrics.refusals.inc({ reason: 'streams' });
  const limits = { bufferBytes, totalBytes, keepaliveMs: KEEPALIVE_MS, perTenantMax, onRefused };
  const streams = new EventStreams(hub, limits, standingIn(directory));
  stack.defer(
    'revocations',
    directory.onChange((tenantId) => streams.recheck(tenantId)),
  );
  return { hub, streams };
}

function startReadModels(built: Built, stack: Stack): void {
  const { log, pool, directory, progress, metrics, write, built: schemas } = built;
  const { logger, databaseUrl } = built.options;
  const directoryProjector = new DirectoryProjector({
    directory,
    bucket: log.directory,
    source: log.source,
    load: async (id) => await write.tenants.refresh({ tenant: id, kind: 'tenant', id }),
    logger,
  });
  directoryProjector.start();
  stack.defer('directory projector', async () => await directoryProjector.stop());
  stack.defer('projectors', startProjectors({ databaseUrl, pool, built: schemas, log, progress, metrics, logger }));
}

async function startEngine(built: Built, stack: Stack): Promise<Engine> {
  const { options, log, directory, write, artifacts, metrics, leases: claims } = built;
  const { config, nodeId, logger } = options;
  const { loop, sessions, conversations, budgets: spending } = write;
  const isBudgeted = (tenantId: string): boolean => directory.tenant(tenantId)?.budgeted === true;
  const onRefused = (): void => metrics.budgetRefusals.inc();
  const budgets = new BudgetGate({ loop, budgets: spending, clock: systemClock, isBudgeted, onRefused });
  const models = openModels({
    directory,
    secrets: log.secrets,
    fixtureModel: config.fixtureModel,
    egress: config.egress,
    logger,
  });
  stack.defer('models', models.close);
  const { turns, turnsPerTenant } = config;
  const { files } = artifacts;
  const engine = new Engine({
    ...{ log, loop, sessions, conversations, models: models.drivers, budgets, files },
    ...{ nodeId, logger, turns, turnsPerTenant, claims, onCall: (call) => metrics.called(call) },
  });
  await engine.start(config.roles.includes('engine'));
  stack.defer('engine', async () => await engine.stop());
  return engine;
}

interface Running {
  readonly engine: Engine;
  readonly streams: EventStreams;
  readonly isDraining: () => boolean;
  readonly stack: Stack;
}

async function serverParts(built: Built, running: Running): Promise<ServerParts> {
  const { engine, streams, stack } = running;
  const { options, metrics, log, pool, reads, directory, progress, ownWrites, presence, write } = built;
  const { config, adminKey, logger } = options;
  const { loop, tenants, agents, sessions, budgets, receipts: older } = write;
  const { artifacts } = built;
  const { objects } = artifacts.routes;
  const features = [...FEATURES, ...(config.fixtureModel ? ['tenant-fixture-model'] : [])];
  const queries = sessionQueries({ ...reads.sessions, store: log.store, progress });
  const { actions, open, places, holding, claims, work } = await actionParts(built, stack);
  const freshness = freshnessOf(built);
  const { deletion, remove } = tenantDeletion({ log, pool, directory, progress, queries, objects, logger, ...write });
  const { usage, ledger } = usageParts(built, queries);
  if (config.roles.includes('projector')) deletion.start();
  stack.defer('tenant deletion', async () => await deletion.stop());
  const { publish, idOf, prepare, ...answers } = answersOf(log.keyring, directory, config);
  const checks = coalesced(CHECKS_KEPT_MS, async () => {
    return await readiness({
      ...{ pool, source: log.source, objects, streams: log.ping, embedded: options.embedded },
      engine: async () => await engine.check(),
    });
  });
  const tenantReads = tenantQueries(reads.tenants);
  return {
    logger,
    roles: { commands: config.roles.includes('commands'), reads: config.roles.includes('reads') },
    gate: openGate({ ...built, ...options, features, stack }),
    timeouts: config.timeouts,
    trustedProxies: config.trustedProxies,
    host: await statusParts(built, { features, checks, isDraining: running.isDraining }),
    admin: {
      create: { loop, tenants, adminKey, publish, idOf, prepare },
      remove,
      queries: tenantReads,
      artifactUse: artifacts.use,
      freshness,
    },
    tenant: {
      loop,
      tenants,
      publish,
      queries: tenantReads,
      freshness,
      checks,
      artifactUse: artifacts.use,
      ...tenantConstants(built),
    },
    budgets: { loop, tenants, budgets, publish, freshness, ledger, shown: shownBudgets, clock: systemClock },
    executors: { loop, tenants, agents, publish, freshness, presence },
    actions: { streams, presence, sessions, open, places, work },
    claims: { ...holding, claims, freshness },
    interactions: { actions, caughtUp: caughtUpOf(built) },
    agents: { loop, agents, queries: agentQueries(reads.agents), freshness },
    artifacts: { ...artifacts.routes, sessionQueries: queries, freshness },
    sessions: { loop, agents, sessions, queries, freshness, ownWrites, removeArtifacts: artifacts.removeOf },
    forks: { loop, sessions, older, freshness },
    commands: {
      ...{ loop, tenants, publish, agents, sessions, artifacts: write.artifacts, budgets, older },
      ...answers,
      runner: engine.runner,
      clock: systemClock,
      // It came with 0.12.
      isNewTo: () => built.registry.hasOlderThan([0, 12]),
    },
    history: { queries, access: streamAccess(sessions), streams },
    usage,
    onResponse: ({ route, status, ms }) => metrics.requests.observe({ route, status }, ms / 1000),
  };
}

function tenantConstants({ options: { config }, log }: Built) {
  return {
    limits: { bodyBytes: config.bodyBytesMax, streams: config.stream.perTenantMax },
    fixtureModel: config.fixtureModel,
    egress: config.egress,
    secrets: log.secrets,
    catalog: modelCatalog,
  };
}

/** How executors find, take and keep their actions, and people what they have to answer. */
async function actionParts({ options, log, reads, write, leases, registry }: Built, stack: Stack) {
  const actions = actionIndex(reads.sessions);
  return { actions, ...(await executorParts({ ...options, log, stack, actions, write, leases, registry })) };
}

async function statusParts(
  { options, log, pool, reads, registry, metrics }: Built,
  known: Pick<StatusRouteParts, 'features' | 'checks' | 'isDraining'>,
): Promise<StatusRouteParts> {
  const lags = async () => await projectionLag({ pool, source: log.source, now: systemClock() }, PROJECTIONS);
  if (options.config.roles.includes('projector')) {
    const sampled = { work: log.work, checks: known.checks, projections: lags, logSizes: log.sizes };
    sampleInstallation(metrics, { pool: reads.sessions.pool, ...sampled });
  }
  return {
    ...known,
    service: SERVICE,
    version: await version(),
    nodes: () => registry.nodes,
    totals: async () => await tenantQueries(reads.tenants).totals(),
    projections: lags,
    shutDown: options.shutDown,
  };
}

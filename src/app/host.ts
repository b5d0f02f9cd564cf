import type { FastifyInstance } from 'fastify';
import { closeServer, createServer } from '../http/server.ts';
import { delay } from '../lib/backoff.ts';
import { Stack } from '../lib/stack.ts';
import { SCHEMAS } from '../projections/schemas.ts';
import { hasWhatItNeeds } from './checks.ts';
import { startEngine } from './engine.ts';
import { openStreams } from './event-streams.ts';
import { openGate } from './gate.ts';
import { listen, listenForMetrics } from './listening.ts';
import type { Listening } from './listening.ts';
import { sampleNode } from './metrics/node.ts';
import type { SaysOfItself } from './metrics/server.ts';
import { openNode } from './node.ts';
import type { Node } from './node.ts';
import { startReadSide } from './read-side.ts';
import { routesOf } from './resources/resources.ts';
import { featuresOf } from './service.ts';
import { openServices } from './services.ts';
import type { HostOptions } from './services.ts';
import { version } from './version.ts';

export interface Host extends Listening {
  readonly stop: () => Promise<void>;
}

/** One of the processes of a Host. */
export interface HostProcess extends SaysOfItself {
  /** `host:port` that it shares with the others; null: it serves no requests. */
  readonly address: string | null;
  readonly stop: (ending: Ending) => Promise<void>;
}

/** How a listener is ended. */
export interface Ending {
  /** How long requests are still taken, with the advice to make the next one on another connection, ms. */
  readonly drainMs: number;
  /** Whether other processes serve the same address meanwhile: then no client has to go elsewhere. */
  readonly othersServe: boolean;
}

/** How long a start waits for read models that are being built, ms. */
const BUILT_WITHIN_MS = 2_000;

/** Builds a Host from its parts and starts them, the listener last; `stop` ends them in reverse order. */
export async function startHost(options: HostOptions): Promise<Host> {
  const { metricsListen, drainMs } = options.config;
  return await started(async (stack) => {
    const host = await assembleHost(options, stack);
    // Of the metrics first: a client that finds the Host listening finds them.
    const metricsAddress = await listenForMetrics(host.says, metricsListen, stack);
    const address = await listen(host.server, options.config);
    stack.defer('listener', async () => await host.endServer({ drainMs, othersServe: false }));
    hearExecutors(host);
    return { address, metricsAddress, stop: async () => await stopHost(options, stack) };
  });
}

/** The same as one of several processes that share a listener, and whose figures another one shows. */
export async function startProcess(options: HostOptions, isServing: boolean): Promise<HostProcess> {
  return await started(async (stack) => {
    const host = await assembleHost(options, stack);
    let how: Ending = { drainMs: 0, othersServe: false };
    const address = isServing ? await listen(host.server, options.config) : null;
    stack.defer('listener', async () => await host.endServer(isServing ? how : { ...how, drainMs: 0 }));
    hearExecutors(host);
    const stop = async (ending: Ending): Promise<void> => {
      how = ending;
      await stopHost(options, stack);
    };
    return { ...host.says, address, stop };
  });
}

async function started<T>(start: (stack: Stack) => Promise<T>): Promise<T> {
  const stack = new Stack();
  try {
    return await start(stack);
  } catch (error) {
    await stack.unwind();
    throw error;
  }
}

/** Ends what a Host has started, in reverse order. */
export async function stopHost({ logger }: HostOptions, stack: Stack): Promise<void> {
  await stack.unwind((name, error) => logger.error({ err: error, part: name }, 'a part did not stop cleanly'));
}

/** A Host that runs, and that nothing can reach yet. */
export interface AssembledHost {
  readonly node: Node;
  /** Takes requests once it is given connections. */
  readonly server: FastifyInstance;
  readonly says: SaysOfItself;
  /** Says that it is not ready, and takes no more requests when balancers have seen that; ends those under way. */
  readonly endServer: (ending: Ending) => Promise<void>;
}

/** Builds a Host from its parts and starts all but its listeners. What it has started is on the stack. */
export async function assembleHost(options: HostOptions, stack: Stack): Promise<AssembledHost> {
  const { config, dataDir, embedded } = options;
  const services = await openServices(options, stack);
  const { metrics, log, presence, caches } = services;
  const feedReadModels = (): void => {
    if (config.roles.includes('projector')) startReadSide(services, stack);
  };
  const isBuilt = await services.built.settled(Object.values(SCHEMAS), 0);
  if (!isBuilt) {
    feedReadModels();
    // A new installation has nothing to read: a client that finds it listening must find its lists, too.
    await services.built.settled(Object.values(SCHEMAS), BUILT_WITHIN_MS);
  }
  const engine = await startEngine(services, stack);
  const { hub, streams } = openStreams(services, stack);
  sampleNode(metrics, { dataDir, embedded, logConnected: log.connected, streams, presence, engine, caches });
  const draining = new AbortController();
  const leaving = new AbortController();
  const isLeaving = (): boolean => leaving.signal.aborted;
  const node = await openNode(services, { engine, streams, isLeaving, stack });
  const server = await serverOf(node, () => draining.signal.aborted);
  // Last: the projectors open a connection for each stream and more, of which each takes some 13 ms.
  if (isBuilt) feedReadModels();
  const endServer = async ({ drainMs, othersServe }: Ending): Promise<void> => {
    draining.abort();
    if (!othersServe) leaving.abort();
    await delay(drainMs);
    hub.stop();
    streams.stop();
    await closeServer(server);
  };
  const says: SaysOfItself = {
    metrics: async () => await metrics.registry.metrics(),
    isReady: async () => !draining.signal.aborted && hasWhatItNeeds(config.roles, await node.checks()),
  };
  return { node, server, says, endServer };
}

async function serverOf(node: Node, isDraining: () => boolean): Promise<FastifyInstance> {
  const { options, metrics } = node;
  const { config, logger } = options;
  const routes = await routesOf(node);
  return await createServer({
    ...{ logger, routes, isDraining, version: await version() },
    gate: openGate({ ...node, ...options, features: featuresOf(config) }),
    timeouts: config.timeouts,
    trustedProxies: config.trustedProxies,
    onResponse: ({ route, status, ms }) => metrics.requests.observe({ route, status }, ms / 1000),
  });
}

/** Only where it listens can executors be heard. */
function hearExecutors({ node: { options, leases } }: AssembledHost): void {
  if (options.config.roles.includes('commands')) leases.hear();
}

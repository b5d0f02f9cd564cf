import type { FastifyInstance } from 'fastify';
import { closeServer, createServer } from '../http/server.ts';
import { delay } from '../lib/backoff.ts';
import { Stack } from '../lib/stack.ts';
import { SCHEMAS } from '../projections/schemas.ts';
import { hasWhatItNeeds } from './checks.ts';
import { startEngine } from './engine.ts';
import { openStreams } from './event-streams.ts';
import { openGate } from './gate.ts';
import { listen, listening } from './listening.ts';
import { sampleNode } from './metrics/node.ts';
import { serveMetrics } from './metrics/server.ts';
import { openNode } from './node.ts';
import type { Node } from './node.ts';
import { startReadSide } from './read-side.ts';
import { routesOf } from './resources/resources.ts';
import { featuresOf } from './service.ts';
import { openServices } from './services.ts';
import type { HostOptions } from './services.ts';
import { version } from './version.ts';

export interface Host {
  /** `host:port` that it listens on. */
  readonly address: string;
  readonly metricsAddress: string;
  readonly stop: () => Promise<void>;
}

/** How long a start waits for read models that are being built, ms. */
const BUILT_WITHIN_MS = 2_000;

/** Builds a Host from its parts and starts them, the listener last; `stop` ends them in reverse order. */
export async function startHost(options: HostOptions): Promise<Host> {
  const stack = new Stack();
  try {
    const addresses = await serve(await assembleHost(options, stack), stack);
    return { ...addresses, stop: async () => await stopHost(options, stack) };
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
  /** Says that it is not ready, and takes no more requests when balancers have seen that; ends those under way. */
  readonly endServer: () => Promise<void>;
}

/** Builds a Host from its parts and starts all but its listeners. What it has started is on the stack. */
export async function assembleHost(options: HostOptions, stack: Stack): Promise<AssembledHost> {
  const { config, dataDir, embedded } = options;
  const services = await openServices(options, stack);
  const { metrics, log, presence, write } = services;
  if (config.roles.includes('projector')) startReadSide(services, stack);
  // A new installation has nothing to read: a client that finds it listening must find its lists, too.
  await services.built.settled(Object.values(SCHEMAS), BUILT_WITHIN_MS);
  const engine = await startEngine(services, stack);
  const { hub, streams } = openStreams(services, stack);
  const { caches } = write;
  sampleNode(metrics, { dataDir, embedded, logConnected: log.connected, streams, presence, engine, caches });
  const draining = new AbortController();
  const isDraining = (): boolean => draining.signal.aborted;
  const node = await openNode(services, { engine, streams, isDraining, stack });
  const server = await serverOf(node);
  const endServer = async (): Promise<void> => {
    draining.abort();
    await delay(config.drainMs);
    hub.stop();
    streams.stop();
    await closeServer(server);
  };
  return { node, server, endServer };
}

async function serverOf(node: Node): Promise<FastifyInstance> {
  const { options, metrics, isDraining } = node;
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

/** Opens the listeners, of the metrics first: a client that finds the Host listening finds them. */
async function serve(
  { node, server, endServer }: AssembledHost,
  stack: Stack,
): Promise<Pick<Host, 'address' | 'metricsAddress'>> {
  const { options, metrics, isDraining, leases } = node;
  const { config } = options;
  const isReady = async (): Promise<boolean> => !isDraining() && hasWhatItNeeds(config.roles, await node.checks());
  const metricsServer = await listening(config.metricsListen.port, 'AGENT_HOST_METRICS_LISTEN', async () => {
    return await serveMetrics(metrics, config.metricsListen, isReady);
  });
  stack.defer('metrics', metricsServer.close);
  const address = await listen(server, config);
  stack.defer('listener', endServer);
  // Only now can executors be heard.
  if (config.roles.includes('commands')) leases.hear();
  return { address, metricsAddress: metricsServer.address };
}

import { closeServer, createServer } from '../http/server.ts';
import { delay } from '../lib/backoff.ts';
import { Stack } from '../lib/stack.ts';
import { SCHEMAS } from '../projections/schemas.ts';
import { hasWhatItNeeds } from './checks.ts';
import { startEngine } from './engine.ts';
import { openStreams } from './event-streams.ts';
import type { OpenStreams } from './event-streams.ts';
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
    return await assemble(options, stack);
  } catch (error) {
    await stack.unwind();
    throw error;
  }
}

async function assemble(options: HostOptions, stack: Stack): Promise<Host> {
  const { config, logger, dataDir, embedded } = options;
  const services = await openServices(options, stack);
  const { metrics, log, presence, write } = services;
  if (config.roles.includes('projector')) startReadSide(services, stack);
  // A new installation has nothing to read: a client that finds it listening must find its lists, too.
  await services.built.settled(Object.values(SCHEMAS), BUILT_WITHIN_MS);
  const engine = await startEngine(services, stack);
  const open = openStreams(services, stack);
  const { streams } = open;
  const { caches } = write;
  sampleNode(metrics, { dataDir, embedded, logConnected: log.connected, streams, presence, engine, caches });
  const draining = new AbortController();
  const isDraining = (): boolean => draining.signal.aborted;
  const node = await openNode(services, { engine, streams, isDraining, stack });
  const addresses = await serve(node, open, draining);
  // Only now can executors be heard.
  if (config.roles.includes('commands')) services.leases.hear();
  const onError = (name: string, error: unknown): void =>
    logger.error({ err: error, part: name }, 'a part did not stop cleanly');
  return { ...addresses, stop: async () => await stack.unwind(onError) };
}

/** Opens the listeners, of the metrics first: a client that finds the Host listening finds them. */
async function serve(
  node: Node,
  { hub, streams }: OpenStreams,
  draining: AbortController,
): Promise<Pick<Host, 'address' | 'metricsAddress'>> {
  const { options, metrics, isDraining, stack } = node;
  const { config, logger } = options;
  const routes = await routesOf(node);
  const server = await createServer({
    ...{ logger, routes, isDraining, version: await version() },
    gate: openGate({ ...node, ...options, features: featuresOf(config) }),
    timeouts: config.timeouts,
    trustedProxies: config.trustedProxies,
    onResponse: ({ route, status, ms }) => metrics.requests.observe({ route, status }, ms / 1000),
  });
  const isReady = async (): Promise<boolean> => !isDraining() && hasWhatItNeeds(config.roles, await node.checks());
  const metricsServer = await listening(config.metricsListen.port, 'AGENT_HOST_METRICS_LISTEN', async () => {
    return await serveMetrics(metrics, config.metricsListen, isReady);
  });
  stack.defer('metrics', metricsServer.close);
  const address = await listen(server, config);
  stack.defer('listener', async () => {
    // Balancers have seen that this node is not ready before it refuses connections.
    draining.abort();
    await delay(config.drainMs);
    hub.stop();
    streams.stop();
    await closeServer(server);
  });
  return { address, metricsAddress: metricsServer.address };
}

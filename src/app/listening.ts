import type { FastifyInstance } from 'fastify';
import type { Stack } from '../lib/stack.ts';
import { StartError } from '../lib/start-error.ts';
import type { Config } from './config.ts';
import { serveMetrics } from './metrics/server.ts';
import type { SaysOfItself } from './metrics/server.ts';
import type { Address } from './variables.ts';

/** Where a Host listens, as `host:port`. */
export interface Listening {
  readonly address: string;
  readonly metricsAddress: string;
}

/** Where the server listens, as `host:port`. @throws StartError */
export async function listen(server: FastifyInstance, { listen: { host, port } }: Config): Promise<string> {
  return await listening(port, 'AGENT_HOST_LISTEN', async () => {
    await server.listen({ host, port });
    const [bound] = server.addresses();
    const boundPort = typeof bound === 'object' ? bound.port : port;
    return `${host.includes(':') ? `[${host}]` : host}:${boundPort}`;
  });
}

/** Opens the listener of what a node, or all processes of one, say of themselves. Returns its address. @throws StartError */
export async function listenForMetrics(says: SaysOfItself, at: Address, stack: Stack): Promise<string> {
  const server = await listening(at.port, 'AGENT_HOST_METRICS_LISTEN', async () => await serveMetrics(says, at));
  stack.defer('metrics', server.close);
  return server.address;
}

/** Opens something on a port, and says in words why it cannot. @throws StartError */
export async function listening<T>(port: number, variable: string, open: () => Promise<T>): Promise<T> {
  try {
    return await open();
  } catch (cause) {
    const code: unknown = cause instanceof Error && 'code' in cause ? cause.code : undefined;
    if (code === 'EADDRINUSE')
      throw new StartError(`port ${port} is in use; stop what listens there or set ${variable} to another address`, {
        cause,
      });
    if (code === 'EACCES' || code === 'EADDRNOTAVAIL' || code === 'ENOTFOUND')
      throw new StartError(`${variable} cannot be listened on (${code}); set it to an address of this machine`, {
        cause,
      });
    throw cause;
  }
}

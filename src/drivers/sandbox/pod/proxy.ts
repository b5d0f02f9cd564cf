import { chmod } from 'node:fs/promises';
import type { Server } from 'node:http';
import type { PodNetwork } from '../port.ts';
import { closeProxy, CONNECTIONS, proxyServer, ProxyUse } from '../proxy.ts';

export interface PodProxy {
  /** The Unix socket on which it listens. */
  readonly socket: string;
  readonly close: () => Promise<void>;
}

/** The proxy of one command, on a socket of its own: who reaches it is that command. */
export async function openProxy(socket: string, network: PodNetwork): Promise<PodProxy> {
  const use = new ProxyUse(network);
  const server = proxyServer(() => use);
  server.maxConnections = CONNECTIONS;
  await listening(server, socket);
  // The user of the pod is another; only what is mounted into it leads here.
  await chmod(socket, 0o666);
  return {
    socket,
    close: async () => {
      use.end();
      await closeProxy(server);
    },
  };
}

async function listening(server: Server, socket: string): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    // Of this process alone, whatever listeners it shares with others.
    server.listen({ path: socket, exclusive: true }, resolve);
  });
}

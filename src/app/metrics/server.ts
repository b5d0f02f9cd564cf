import { createServer } from 'node:http';
import type { Server } from 'node:http';
import type { Address } from '../config.ts';
import type { Metrics } from './metrics.ts';

/** Serves `GET /metrics` on a listener of its own, which has no credentials and belongs on loopback. */
export async function serveMetrics(
  { registry }: Metrics,
  { host, port }: Address,
): Promise<{ readonly address: string; readonly close: () => Promise<void> }> {
  const server: Server = createServer((request, response) => {
    if (request.method !== 'GET' || request.url !== '/metrics') {
      response.writeHead(404).end();
      return;
    }
    registry.metrics().then(
      (text) => response.writeHead(200, { 'content-type': registry.contentType }).end(text),
      () => response.writeHead(500).end(),
    );
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, host, resolve);
  });
  const bound = server.address();
  const address = typeof bound === 'object' && bound !== null ? `${host}:${bound.port}` : `${host}:${port}`;
  return {
    address,
    close: async () => {
      server.closeAllConnections();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}

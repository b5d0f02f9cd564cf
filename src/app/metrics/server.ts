import { createServer } from 'node:http';
import type { Server } from 'node:http';
import { Registry } from 'prom-client';
import type { Address } from '../variables.ts';

/** What a node says of itself. */
export interface SaysOfItself {
  /** In the form that Prometheus reads. */
  readonly metrics: () => Promise<string>;
  /** What it needs itself is there, and it is not stopping. */
  readonly isReady: () => Promise<boolean>;
}

/**
 * Serves `GET /metrics`, and `GET /ready` of this node alone, on a listener of its own, which has no credentials and
 * belongs on loopback or a private network.
 */
export async function serveMetrics(
  { metrics, isReady }: SaysOfItself,
  { host, port }: Address,
): Promise<{ readonly address: string; readonly close: () => Promise<void> }> {
  const server: Server = createServer((request, response) => {
    if (request.method === 'GET' && request.url === '/ready') {
      isReady().then(
        (ready) => response.writeHead(ready ? 200 : 503).end(ready ? 'ready\n' : 'not ready\n'),
        () => response.writeHead(500).end(),
      );
      return;
    }
    if (request.method !== 'GET' || request.url !== '/metrics') {
      response.writeHead(404).end();
      return;
    }
    metrics().then(
      (text) => response.writeHead(200, { 'content-type': Registry.PROMETHEUS_CONTENT_TYPE }).end(text),
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

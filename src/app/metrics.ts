import { createServer } from 'node:http';
import type { Server } from 'node:http';
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import type { Address } from './config.ts';

/** The Host's measurements, in the form that Prometheus reads. */
export class Metrics {
  readonly registry = new Registry();
  readonly #requests: Histogram<'route' | 'status'>;
  readonly #appends: Counter<'outcome'>;
  readonly #roundTrips: Counter<'operation'>;
  readonly #statements: Counter;
  readonly #projected: Gauge<'group' | 'shard'>;
  readonly #parked: Counter<'group'>;

  constructor() {
    const registers = [this.registry];
    collectDefaultMetrics({ register: this.registry, prefix: 'agent_host_' });
    this.#requests = new Histogram({
      name: 'agent_host_http_request_seconds',
      help: 'Time from request to response, by route and status.',
      labelNames: ['route', 'status'],
      buckets: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5],
      registers,
    });
    this.#appends = new Counter({
      name: 'agent_host_log_appends_total',
      help: 'Appends to the log, by outcome.',
      labelNames: ['outcome'],
      registers,
    });
    this.#roundTrips = new Counter({
      name: 'agent_host_log_round_trips_total',
      help: 'Requests to the log and its key-value buckets, by operation.',
      labelNames: ['operation'],
      registers,
    });
    this.#statements = new Counter({
      name: 'agent_host_sql_statements_total',
      help: 'SQL statements sent to the read store.',
      registers,
    });
    this.#projected = new Gauge({
      name: 'agent_host_projection_position',
      help: 'How far a projection has read its stream.',
      labelNames: ['group', 'shard'],
      registers,
    });
    this.#parked = new Counter({
      name: 'agent_host_projection_parked_total',
      help: 'Commits that could not be projected.',
      labelNames: ['group'],
      registers,
    });
  }

  request({ route, status, ms }: { readonly route: string; readonly status: number; readonly ms: number }): void {
    this.#requests.observe({ route, status: String(status) }, ms / 1000);
  }

  append(outcome: string): void {
    this.#appends.inc({ outcome });
  }

  roundTrip(operation: string): void {
    this.#roundTrips.inc({ operation });
  }

  statement(): void {
    this.#statements.inc();
  }

  projected({
    group,
    shard,
    position,
  }: {
    readonly group: string;
    readonly shard: number;
    readonly position: number;
  }): void {
    this.#projected.set({ group, shard: String(shard) }, position);
  }

  parked(group: string): void {
    this.#parked.inc({ group });
  }

  /** A number that is asked for when Prometheus reads. */
  gauge(name: string, help: string, read: () => number): void {
    const gauge: Gauge = new Gauge({
      name: `agent_host_${name}`,
      help,
      registers: [this.registry],
      collect: () => gauge.set(read()),
    });
  }
}

/** Serves `GET /metrics` on a listener of its own, which has no credentials and belongs on loopback. */
export async function serveMetrics(
  metrics: Metrics,
  { host, port }: Address,
): Promise<{ readonly address: string; readonly close: () => Promise<void> }> {
  const server: Server = createServer((request, response) => {
    if (request.method !== 'GET' || request.url !== '/metrics') {
      response.writeHead(404).end();
      return;
    }
    metrics.registry.metrics().then(
      (text) => response.writeHead(200, { 'content-type': metrics.registry.contentType }).end(text),
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

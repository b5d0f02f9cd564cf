import { statfs } from 'node:fs/promises';
import { getHeapStatistics } from 'node:v8';
import type { CacheFigures } from '../../commands/repository.ts';
import type { EmbeddedServers } from '../../embedded/servers.ts';
import type { ExecutorPresence } from '../executor-presence.ts';
import type { Engine } from '../engine.ts';
import type { EventStreams } from '../../http/sse.ts';
import type { Metrics } from './metrics.ts';

export interface NodeDeps {
  readonly dataDir: string;
  readonly embedded: EmbeddedServers;
  readonly logConnected: () => boolean;
  readonly streams: EventStreams;
  readonly presence: ExecutorPresence;
  readonly engine: Engine;
  /** What is kept in memory of tenants, by what it holds. */
  readonly caches: Readonly<Record<string, { readonly cacheFigures: CacheFigures }>>;
}

/** What every node says of itself. */
export function sampleNode(metrics: Metrics, deps: NodeDeps): void {
  const { dataDir, logConnected, streams, presence, engine } = deps;
  const caches = Object.entries(deps.caches);
  metrics.sample('event_streams_open', () => streams.size);
  metrics.sample('event_streams_held_bytes', () => streams.heldBytes);
  metrics.sample('executors_connected', () => presence.here);
  metrics.sample('turns_active', () => engine.active);
  metrics.sample('turns_unattended', () => engine.unattended);
  metrics.sample('log_connected', () => (logConnected() ? 1 : 0));
  sampleServers(metrics, deps.embedded);
  metrics.sample('cache_entries', () =>
    caches.map(([cache, { cacheFigures }]) => ({ labels: { cache }, value: cacheFigures.entries })),
  );
  metrics.sample('cache_bytes', () =>
    caches.map(([cache, { cacheFigures }]) => ({ labels: { cache }, value: cacheFigures.bytes })),
  );
  metrics.sample('cache_lookups_total', () =>
    caches.flatMap(([cache, { cacheFigures }]) => [
      { labels: { cache, result: 'hit' }, value: cacheFigures.hits },
      { labels: { cache, result: 'miss' }, value: cacheFigures.misses },
    ]),
  );
  // Node 24 does not count it.
  metrics.sample('heap_allocated_bytes_total', () => getHeapStatistics().total_allocated_bytes ?? null);
  metrics.sample('data_disk_free_bytes', async () => {
    const { bavail, bsize } = await statfs(dataDir);
    return bavail * bsize;
  });
  metrics.sample('data_disk_size_bytes', async () => {
    const { blocks, bsize } = await statfs(dataDir);
    return blocks * bsize;
  });
}

/** What the process that runs embedded servers says of them. */
export function sampleServers(metrics: Metrics, { nats, postgres }: EmbeddedServers): void {
  const servers = Object.entries({ nats, postgres }).flatMap(([server, kept]) =>
    kept === undefined ? [] : [{ labels: { server }, kept }],
  );
  metrics.sample('embedded_server_up', () =>
    servers.map(({ labels, kept }) => ({ labels, value: kept.isRunning ? 1 : 0 })),
  );
  metrics.sample('embedded_server_restarts_total', () =>
    servers.map(({ labels, kept }) => ({ labels, value: kept.restarts })),
  );
}

import { EventStreams } from '../http/sse.ts';
import type { Stack } from '../lib/stack.ts';
import { TailHub } from '../streams/tail-hub.ts';
import { fingerprintsOf } from './directory-answers.ts';
import type { Services } from './services.ts';

const KEEPALIVE_MS = 15_000;

/** The event streams of the clients of this node, and the tails of the log that feed them. */
export interface OpenStreams {
  readonly hub: TailHub;
  readonly streams: EventStreams;
}

/** Opens what event streams are made from; one ends as soon as the directory takes back what vouched for it. */
export function openStreams({ options, log, directory, metrics, previews }: Services, stack: Stack): OpenStreams {
  const { bufferBytes, totalBytes, perTenantMax, slowMs } = options.config.stream;
  const hub = new TailHub({
    ...{ store: log.store, feed: log.feed, logger: options.logger, slowMs },
    keptBytesMax: Math.ceil(totalBytes / 4),
    onDelivered: (ageMs) => metrics.tailLag.observe(Math.max(0, ageMs) / 1000),
    onBackfill: (reason) => metrics.tailBackfills.inc({ reason }),
  });
  const onRefused = (): void => metrics.refusals.inc({ reason: 'streams' });
  const { clock } = options;
  const limits = { bufferBytes, totalBytes, keepaliveMs: KEEPALIVE_MS, perTenantMax, clock, onRefused };
  const streams = new EventStreams({ hub, previews }, limits, fingerprintsOf(directory));
  stack.defer(
    'revocations',
    directory.onChange((tenantId) => streams.recheck(tenantId)),
  );
  return { hub, streams };
}

import type { KeyObject } from 'node:crypto';
import { SealedSecrets } from '../drivers/secrets/sealed-secrets.ts';
import type { Logger } from '../lib/logger.ts';
import { createCodec } from '../streams/codec.ts';
import { Continuity } from '../streams/continuity.ts';
import { Keyring } from '../streams/keyring.ts';
import { LiveCommitSource } from '../streams/live-source.ts';
import { MemoryCommitSource } from '../streams/memory/commit-source.ts';
import { MemoryEventStore } from '../streams/memory/event-store.ts';
import { MemoryLiveFeed } from '../streams/memory/live-feed.ts';
import type { MemoryPorts } from '../streams/memory/servers.ts';
import { RowSeals } from '../streams/row-seals.ts';
import { sealedCodec } from '../streams/sealed-codec.ts';
import { sealedSnapshots } from '../streams/sealed-snapshots.ts';
import { UPCASTERS } from './events.ts';
import type { LogPorts } from './log.ts';
import type { Metrics } from './metrics/metrics.ts';

interface MemoryLogOptions {
  readonly servers: MemoryPorts;
  readonly hostKey: KeyObject;
  readonly metrics: Metrics;
  readonly logger: Logger;
}

/** One node's view of a log in memory: as `openLog`, sealed as on a disk. */
export async function openMemoryLog({ servers, hostKey, metrics, logger }: MemoryLogOptions): Promise<LogPorts> {
  const { streams, directory, snapshots, leases, secrets, work, signals } = servers;
  const keyring = new Keyring({ bucket: secrets, hostKey, logger });
  await keyring.start();
  const plain = createCodec(UPCASTERS);
  const codec = sealedCodec(plain, keyring);
  const liveFeed = new MemoryLiveFeed(streams, codec);
  liveFeed.start();
  const history = new MemoryCommitSource(streams, codec);
  const feed = new Continuity({ feed: liveFeed, source: history, logger });
  const onAppend = (outcome: string, ms: number): void => metrics.appends.observe({ outcome }, ms / 1000);
  return {
    ...{ codec: plain, feed, work, signals, directory, snapshots, leases, keyring },
    store: new MemoryEventStore({ streams, codec, onAppend }),
    source: new LiveCommitSource(history, feed),
    folds: sealedSnapshots(snapshots, keyring),
    seals: new RowSeals(keyring, plain),
    secrets: new SealedSecrets(keyring, secrets),
    secretBucket: secrets,
    connected: () => true,
    ping: async () => await Promise.resolve(),
    sizes: async () => {
      const shards = Array.from({ length: streams.shards }, (_, shard) => shard);
      return await Promise.resolve(shards.map((shard) => ({ shard, ...streams.size(shard) })));
    },
    close: async () => {
      feed.stop();
      liveFeed.stop();
      keyring.stop();
      await Promise.resolve();
    },
  };
}

import { createCodec } from '#src/streams/codec.ts';
import { Keyring } from '#src/streams/keyring.ts';
import { MemoryCommitSource } from '#src/streams/memory/commit-source.ts';
import { MemoryEventStore } from '#src/streams/memory/event-store.ts';
import { MemoryKeyValue } from '#src/streams/memory/key-value.ts';
import { MemoryLiveFeed } from '#src/streams/memory/live-feed.ts';
import type { MemoryStreams } from '#src/streams/memory/streams.ts';
import { sealedCodec } from '#src/streams/sealed-codec.ts';
import { TEST_HOST_KEY } from './host-keys.ts';
import { capturedLog } from './logger.ts';
import { overriding } from './overriding.ts';

/** One node's view of a log in memory; a tenant's first append makes its data key, as its creation does otherwise. */
export interface MemoryLog extends Disposable {
  readonly store: MemoryEventStore;
  readonly feed: MemoryLiveFeed;
  readonly source: MemoryCommitSource;
}

export async function openMemoryLog(streams: MemoryStreams, secrets: MemoryKeyValue): Promise<MemoryLog> {
  const keyring = new Keyring({ bucket: secrets, hostKey: TEST_HOST_KEY, logger: capturedLog().logger });
  await keyring.start();
  const obtain: Keyring['obtain'] = async (tenant) => {
    await keyring.create(tenant);
    return await keyring.obtain(tenant);
  };
  const codec = sealedCodec(createCodec({}), overriding(keyring, { obtain }));
  const feed = new MemoryLiveFeed(streams, codec);
  feed.start();
  return {
    store: new MemoryEventStore({ streams, codec }),
    feed,
    source: new MemoryCommitSource(streams, codec),
    [Symbol.dispose]: () => {
      feed.stop();
      keyring.stop();
    },
  };
}

export const newBucket = (): MemoryKeyValue => new MemoryKeyValue();

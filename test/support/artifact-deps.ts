import { join } from 'node:path';
import { artifactType, quotaType, sessionType } from '#src/commands/aggregate.ts';
import type { ArtifactDeps } from '#src/commands/artifact/deps.ts';
import { CommandLoop } from '#src/commands/execute.ts';
import { Repository } from '#src/commands/repository.ts';
import { directoryObjects } from '#src/drivers/objects/directory.ts';
import { systemClock } from '#src/lib/clock.ts';
import { sealingKey } from '#src/lib/sealed-box.ts';
import type { EventStore } from '#src/streams/event-store.ts';
import type { Host } from './host.ts';
import { openLog } from './jetstream.ts';

/** The use cases of artifacts on the log and the objects of a running Host: what another node of it would do. */
export async function artifactDepsOf(host: Host): Promise<ArtifactDeps & AsyncDisposable> {
  const hostKey = sealingKey(Buffer.from(await host.file('kek'), 'base64'));
  const log = await openLog(await host.file('nats-url'), { hostKey });
  return {
    ...(await artifactDepsOn(log.store, join(host.dataDir, 'objects'))),
    [Symbol.asyncDispose]: async () => await log[Symbol.asyncDispose](),
  };
}

/** The use cases of artifacts with nothing beside them: no keeper, no read model. */
export async function artifactDepsOn(store: EventStore, objectsDir: string): Promise<ArtifactDeps> {
  const cacheBytes = 1_000_000;
  return {
    loop: new CommandLoop(systemClock, () => 1),
    artifacts: new Repository({ type: artifactType, store, cacheBytes }),
    quotas: new Repository({ type: quotaType, store, cacheBytes }),
    sessions: new Repository({ type: sessionType, store, cacheBytes }),
    objects: await directoryObjects(objectsDir),
    defaults: { fileBytes: 1_000_000, totalBytes: 10_000_000 },
    operationMs: 30_000,
    clock: systemClock,
    onUnsettled: (error) => {
      throw error;
    },
  };
}

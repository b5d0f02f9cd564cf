import { DirectoryProjector } from '../projections/directory/projector.ts';
import type { Stack } from '../lib/stack.ts';
import { startProjectors } from './projectors.ts';
import type { Services } from './services.ts';

/** Starts what feeds the read models of the installation, and the directory that every node has at hand. */
export function startReadSide(services: Services, stack: Stack): void {
  const { log, pool, directory, progress, metrics, write, built } = services;
  const { logger, databaseUrl } = services.options;
  const directoryProjector = new DirectoryProjector({
    directory,
    bucket: log.directory,
    source: log.source,
    load: async (id) => await write.tenants.refresh({ tenant: id, kind: 'tenant', id }),
    logger,
    onRound: metrics.onRound,
  });
  directoryProjector.start();
  stack.defer('directory projector', async () => await directoryProjector.stop());
  stack.defer('projectors', startProjectors({ databaseUrl, pool, built, log, progress, metrics, logger }));
}

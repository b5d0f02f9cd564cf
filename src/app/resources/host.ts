import { hostRoutes } from '../../http/routes/host.ts';
import { statusRoutes } from '../../http/routes/status.ts';
import type { StatusRouteDeps } from '../../http/routes/status.ts';
import { projectionLag } from '../../projections/lag.ts';
import { sampleInstallation } from '../metrics/installation.ts';
import type { Node, ServedRoutes } from '../node.ts';
import { PROJECTIONS } from '../projectors.ts';
import { featuresOf, SERVICE } from '../service.ts';
import { version } from '../version.ts';

/** Whether the Host is live and ready, and what the Host admin sees of the installation. */
export async function hostResource(node: Node): Promise<readonly ServedRoutes[]> {
  const { options, log, pool, reads, registry, metrics, checks, queries, isLeaving } = node;
  const lags = async () => await projectionLag({ pool, source: log.source, now: options.clock() }, PROJECTIONS);
  if (options.config.roles.includes('projector')) {
    const sampled = { clock: options.clock, work: log.work, checks, projections: lags, logSizes: log.sizes };
    sampleInstallation(metrics, { pool: reads.sessions.pool, ...sampled });
  }
  const deps: StatusRouteDeps = {
    ...{ service: SERVICE, version: await version(), features: featuresOf(options.config), checks, isLeaving },
    nodes: () => registry.nodes,
    totals: async () => await queries.tenants.totals(),
    projections: lags,
    shutDown: options.shutDown,
  };
  return [
    { role: null, routes: hostRoutes(deps) },
    { role: null, routes: statusRoutes(deps) },
  ];
}

import { sandboxFileRoutes, sandboxWriteRoutes } from '../../http/routes/sandbox-files.ts';
import { sandboxEventRoutes, sandboxRoutes } from '../../http/routes/sandboxes.ts';
import { tenantSandboxRoutes } from '../../http/routes/tenant-sandbox.ts';
import { sandboxQueries } from '../../projections/sandboxes/queries.ts';
import type { Node, ServedRoutes } from '../node.ts';

/** Sandboxes, their files, what happens in them, and what a tenant can have of them. */
export function sandboxResource({ sandboxes, artifacts, reads, freshness, streams }: Node): readonly ServedRoutes[] {
  const { uploads } = artifacts.routes;
  const deps = { ...sandboxes.deps, queries: sandboxQueries(reads.sandboxes), freshness };
  return [
    { role: null, routes: sandboxRoutes(deps) },
    { role: null, routes: tenantSandboxRoutes({ ...sandboxes.deps, virtualFault: () => null }) },
    { role: 'reads', routes: sandboxFileRoutes(deps) },
    { role: 'reads', routes: sandboxEventRoutes(deps, streams) },
    { role: 'commands', routes: sandboxWriteRoutes({ ...deps, uploads }) },
  ];
}

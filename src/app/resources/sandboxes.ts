import { sandboxFileRoutes, sandboxWriteRoutes } from '../../http/routes/sandbox-files.ts';
import { sandboxEventRoutes, sandboxRoutes } from '../../http/routes/sandboxes.ts';
import { tenantSandboxRoutes } from '../../http/routes/tenant-sandbox.ts';
import { sandboxQueries } from '../../projections/sandboxes/queries.ts';
import type { Node, ServedRoutes } from '../node.ts';

/** Sandboxes, their files, what happens in them, and what a tenant can have of them. */
export function sandboxResource(node: Node): readonly ServedRoutes[] {
  const { sandboxes, artifacts, reads, freshness, heard, streams } = node;
  const { uploads, downloads } = artifacts.routes;
  const deps = { ...sandboxes.deps, queries: sandboxQueries(reads.sandboxes), freshness, heard: heard.sandboxes };
  return [
    { role: null, routes: sandboxRoutes(deps) },
    { role: null, routes: tenantSandboxRoutes({ ...sandboxes.deps, virtualFault: () => null }) },
    { role: 'reads', routes: sandboxFileRoutes({ ...deps, downloads }) },
    { role: 'reads', routes: sandboxEventRoutes(deps, streams) },
    { role: 'commands', routes: sandboxWriteRoutes({ ...deps, uploads }) },
  ];
}

import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import type { Node, ServedRoutes } from '../node.ts';
import { agentResource } from './agents.ts';
import { artifactResource } from './artifacts.ts';
import { actionResource, executorResource } from './executors.ts';
import { hostResource } from './host.ts';
import { sandboxResource } from './sandboxes.ts';
import { historyResource, sessionResource } from './sessions.ts';
import { adminResource, tenantResource } from './tenants.ts';
import { vaultResource } from './vaults.ts';

type Resource = (node: Node) => readonly ServedRoutes[] | Promise<readonly ServedRoutes[]>;

/** Every resource of the interface; each makes what its routes need from the node. */
const RESOURCES: readonly Resource[] = [
  hostResource,
  adminResource,
  tenantResource,
  executorResource,
  agentResource,
  artifactResource,
  vaultResource,
  sandboxResource,
  sessionResource,
  actionResource,
  historyResource,
];

/** The routes that a node of these roles serves. */
export async function routesOf(node: Node): Promise<readonly FastifyPluginAsyncZod[]> {
  const { roles } = node.options.config;
  const found: FastifyPluginAsyncZod[] = [];
  for (const resource of RESOURCES) {
    for (const { role, routes } of await resource(node)) {
      if (role === null || roles.includes(role)) found.push(routes);
    }
  }
  return found;
}

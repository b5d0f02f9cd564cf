import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { ACCESS } from '../../auth/authorize.ts';
import { deleteExecutor, saveExecutors } from '../../commands/tenant/manage-executors.ts';
import type { ManageExecutorDeps } from '../../commands/tenant/manage-executors.ts';
import { readTenant } from '../../commands/tenant/manage-tenant.ts';
import type { Presence } from '../discovery.ts';
import { operations } from '../described.ts';
import type { Freshness } from '../freshness.ts';
import { callerOf } from '../gate.ts';
import { accepted, notFound } from '../problem.ts';
import { manageInput } from '../tenant-input.ts';
import * as wire from '../wire/executors.ts';

const docs = operations('Executors', {
  saveExecutors: [
    'Register executors, all of them or none',
    'The token is chosen by the application; only its hash is kept. Another token for the same agent replaces the old one, which is dead at once on this node and within a second on every other; the new one is good at once on all. Executors that are not named stay as they are.',
  ],
  listExecutors: [
    'List executors, by agent, never their tokens',
    '`connected`: a discovery stream of it is open on some node; after a crash of a node up to 10 s old.',
  ],
  deleteExecutor: ['Delete an executor', 'Its token stops working, and its streams end.'],
});

export interface ExecutorRouteDeps extends ManageExecutorDeps {
  readonly freshness: Freshness;
  readonly presence: Presence;
}

/** Executors as the application registers them. */
export function executorRoutes(deps: ExecutorRouteDeps): FastifyPluginAsyncZod {
  const { freshness, presence } = deps;
  return async (app) => {
    const config = { rules: { access: ACCESS.executors } };
    app.put(
      '/v1/executors',
      {
        config,
        schema: { ...docs.saveExecutors, body: wire.saveExecutorsBody, response: { 200: wire.executorsSaved } },
      },
      async (request) => {
        const { executors: sent, requestId } = request.body;
        const executors = sent.map(({ implementationVersion = null, ...one }) => ({ ...one, implementationVersion }));
        const input = { ...manageInput(request, requestId), executors };
        const { reply, tenant, position } = accepted(await saveExecutors(deps, input));
        await freshness('tenants', { tenant: tenant.id, kind: 'tenant', id: tenant.id }, position);
        return { executors: [...reply] };
      },
    );
    app.get(
      '/v1/executors',
      { config, schema: { ...docs.listExecutors, response: { 200: wire.executorList } } },
      async (request) => {
        const { tenantId } = callerOf(request);
        const tenant = await readTenant(deps, tenantId);
        if (tenant === null) throw notFound('tenant');
        const connected = presence.connected(tenantId);
        const executors = tenant.executors.map(({ agentId, implementationVersion, updatedAt }) => {
          return { agentId, implementationVersion, connected: connected.has(agentId), updatedAt };
        });
        return { executors: executors.toSorted((a, b) => (a.agentId < b.agentId ? -1 : 1)) };
      },
    );
    app.delete(
      '/v1/executors/:agentId',
      {
        config,
        schema: { ...docs.deleteExecutor, params: wire.executorPath, response: { 200: wire.executorDeleted } },
      },
      async (request) => {
        const { agentId } = request.params;
        const outcome = await deleteExecutor(deps, { ...manageInput(request, undefined), agentId });
        const { tenant, position } = accepted(outcome);
        await freshness('tenants', { tenant: tenant.id, kind: 'tenant', id: tenant.id }, position);
        return { agentId, deleted: true as const };
      },
    );
    await Promise.resolve();
  };
}

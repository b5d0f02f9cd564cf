import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { ACCESS } from '../../auth/authorize.ts';
import type { ArtifactUse } from '../../commands/artifact/limits.ts';
import { createTenant } from '../../commands/tenant/create-tenant.ts';
import type { CreateTenantDeps } from '../../commands/tenant/create-tenant.ts';
import { deleteTenant } from '../../commands/tenant/delete-tenant.ts';
import type { DeleteTenantDeps } from '../../commands/tenant/delete-tenant.ts';
import type { TenantQueries } from '../../projections/tenants/queries.ts';
import { operations } from '../described.ts';
import { ListRequest } from '../list-request.ts';
import { accepted, notFound } from '../problem.ts';
import type { Freshness } from '../freshness.ts';
import * as wire from '../wire/schemas.ts';

const docs = operations('Admin', {
  createTenant: [
    'Create a tenant with its first application key',
    'Repeatable by idempotencyKey or tenantId: 200 without the key. The key is shown this once.',
  ],
  listTenants: ['List tenants, newest first'],
  inspectTenant: ['Inspect a tenant'],
  deleteTenant: [
    'Delete a tenant and everything of it',
    'activeWork says what becomes of turns that run: refuse (409 while there are any), drain (wait for them up to timeoutSeconds) or cancel.',
  ],
});

export interface AdminRouteDeps {
  readonly create: CreateTenantDeps;
  readonly remove: DeleteTenantDeps;
  readonly queries: TenantQueries;
  /** What a tenant's artifacts hold. */
  readonly artifactUse: (tenantId: string) => Promise<ArtifactUse>;
  /** How many sandboxes a tenant has. */
  readonly sandboxesOf: (tenantId: string) => Promise<number>;
  readonly freshness: Freshness;
}

/** Tenants, for the Host admin. */
export function adminRoutes(deps: AdminRouteDeps): FastifyPluginAsyncZod {
  const { create, remove, queries, freshness } = deps;
  return async (app) => {
    const config = { rules: { access: ACCESS.admin } };
    app.post(
      '/v1/admin/tenants',
      {
        config,
        schema: {
          ...docs.createTenant,
          body: wire.createTenantBody,
          response: { 200: wire.tenantCreated, 201: wire.tenantCreated },
        },
      },
      async (request, reply) => {
        const { requestId, idempotencyKey = null, ...body } = request.body;
        const causation = requestId ?? request.id;
        const outcome = accepted(await createTenant(create, { body, idempotencyKey, actor: 'admin', causation }));
        const { tenant, applicationKey, replayed, position } = outcome;
        await freshness('tenants', { tenant: tenant.id, kind: 'tenant', id: tenant.id }, position);
        const { id, name, status: state, createdAt, updatedAt } = tenant;
        const shown = { id, name, state, createdAt, updatedAt };
        return await reply
          .code(replayed ? 200 : 201)
          .send({ tenant: shown, applicationKey, principalId: body.principalId });
      },
    );
    app.get(
      '/v1/admin/tenants',
      { config, schema: { ...docs.listTenants, querystring: wire.listQuery, response: { 200: wire.tenantList } } },
      async ({ query }) => {
        const list = new ListRequest('GET /v1/admin/tenants', query, 2);
        const found = await queries.list({ limit: list.wanted, after: list.after });
        const { entries, nextCursor } = list.page(found, ({ createdAt, id }) => [createdAt, id]);
        return { tenants: entries, nextCursor };
      },
    );
    app.get(
      '/v1/admin/tenants/:tenantId',
      { config, schema: { ...docs.inspectTenant, params: wire.tenantPath, response: { 200: wire.tenantInspected } } },
      async ({ params: { tenantId } }) => {
        const tenant = await queries.get(tenantId);
        if (tenant === null) throw notFound('tenant');
        const { sessions, activeTurns, pendingActions } = await queries.counts(tenantId);
        // The account of a tenant being deleted may be unreadable already.
        const isGoing = tenant.state === 'deleting';
        const artifactBytes = isGoing ? 0 : (await deps.artifactUse(tenantId)).artifactBytes;
        const sandboxes = isGoing ? 0 : await deps.sandboxesOf(tenantId);
        return { tenant, counts: { sessions, activeTurns, pendingActions, sandboxes, artifactBytes } };
      },
    );
    await app.register(deletionRoute(remove));
  };
}

function deletionRoute(remove: DeleteTenantDeps): FastifyPluginAsyncZod {
  return async (app) => {
    const config = { rules: { access: ACCESS.admin } };
    app.delete(
      '/v1/admin/tenants/:tenantId',
      {
        config,
        schema: {
          ...docs.deleteTenant,
          params: wire.tenantPath,
          querystring: wire.deleteTenantQuery,
          response: { 200: wire.tenantDeleted },
        },
      },
      async (request) => {
        const { tenantId } = request.params;
        const { activeWork, timeoutSeconds } = request.query;
        const policy = { activeWork, timeoutMs: timeoutSeconds * 1000 };
        accepted(await deleteTenant(remove, { tenantId, ...policy, actor: 'admin', causation: request.id }));
        return { tenantId, deleted: true as const };
      },
    );
    await Promise.resolve();
  };
}

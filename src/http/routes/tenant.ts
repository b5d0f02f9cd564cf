import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { ACCESS } from '../../auth/authorize.ts';
import type { ArtifactUse } from '../../commands/artifact/limits.ts';
import { seedTenant } from '../../commands/tenant/manage-model.ts';
import { readTenant } from '../../commands/tenant/manage-tenant.ts';
import { EXECUTORS_MAX, ISSUERS_MAX, KEYS_MAX } from '../../domain/tenant/limits.ts';
import type { KnownTenant } from '../../domain/tenant/state.ts';
import type { TenantQueries } from '../../projections/tenants/queries.ts';
import { ListRequest } from '../list-request.ts';
import { requireCallable } from '../callable.ts';
import { operations } from '../described.ts';
import { callerOf } from '../gate.ts';
import { accepted, notFound } from '../problem.ts';
import { manageInput } from '../tenant-input.ts';
import * as wire from '../wire/schemas.ts';
import type { Checks } from './host.ts';
import { modelInput, requireFixture, toModelResponse } from './model.ts';
import type { ModelRouteDeps } from './model.ts';

const docs = operations('Tenant', {
  getTenant: ['Status of the calling tenant'],
  seedTenant: ['Write the parts of the configuration that are absent'],
  listAuditEntries: ['Who changed what, newest first'],
});

export interface TenantRouteDeps extends ModelRouteDeps {
  readonly queries: TenantQueries;
  readonly checks: () => Promise<Checks>;
  readonly limits: { readonly bodyBytes: number; readonly streams: number };
  /** What the tenant's artifacts may hold, and do. */
  readonly artifactUse: (tenantId: string) => Promise<ArtifactUse>;
}

/** The tenant's status, its seed and its audit trail. */
export function tenantRoutes(deps: TenantRouteDeps): FastifyPluginAsyncZod {
  const { queries } = deps;
  return async (app) => {
    const config = { rules: { access: ACCESS.tenant } };
    app.get(
      '/v1/tenant',
      { config, schema: { ...docs.getTenant, response: { 200: wire.tenantStatus } } },
      async (request) => {
        const tenant = await readTenant(deps, callerOf(request).tenantId);
        if (tenant === null) throw notFound('tenant');
        return await statusOfTenant(deps, tenant);
      },
    );
    app.put(
      '/v1/tenant/config/seed',
      { config, schema: { ...docs.seedTenant, body: wire.seedBody, response: { 200: wire.seeded } } },
      async (request) => {
        const { requestId, fixtureModel = false, model } = request.body;
        if (fixtureModel) requireFixture(deps, 'fixture', 'fixtureModel');
        if (model !== undefined) requireFixture(deps, model.provider, 'model.provider');
        requireCallable(deps.egress, model?.baseUrl, 'model.baseUrl');
        const wanted = { fixtureModel, model: model === undefined ? null : modelInput(model) };
        const { reply, tenant, position } = accepted(
          await seedTenant(deps, { ...manageInput(request, requestId), ...wanted }),
        );
        await deps.freshness('tenants', { tenant: tenant.id, kind: 'tenant', id: tenant.id }, position);
        return { applied: [...reply.applied], kept: [...reply.kept] };
      },
    );
    app.get(
      '/v1/tenant/audit',
      {
        config,
        schema: { ...docs.listAuditEntries, querystring: wire.listQuery, response: { 200: wire.auditTrail } },
      },
      async (request) => {
        const { tenantId } = callerOf(request);
        const list = new ListRequest(`GET /v1/tenant/audit ${tenantId}`, request.query, 2);
        const found = await queries.audit(tenantId, { limit: list.wanted, after: list.after });
        const { entries, nextCursor } = list.page(found, ({ place, entry }) => [entry.at, place]);
        return { entries: entries.map(({ entry }) => ({ ...entry, details: { ...entry.details } })), nextCursor };
      },
    );
    await Promise.resolve();
  };
}

async function statusOfTenant(deps: TenantRouteDeps, tenant: KnownTenant) {
  const { queries, checks, limits, fixtureModel } = deps;
  const { id, name, status: state, createdAt, updatedAt, keys, issuers, executors } = tenant;
  const { database, engine, streams, objects } = await checks();
  const use = await deps.artifactUse(id);
  return {
    tenant: { id, name, state, createdAt, updatedAt },
    checks: { store: database, execution: engine, streams, objects },
    model: toModelResponse(tenant, fixtureModel),
    counts: {
      ...(await queries.counts(id)),
      keys: keys.length - 1,
      issuers: Object.keys(issuers).length,
      executors: executors.length,
      artifactBytes: use.artifactBytes,
    },
    limits: { ...limits, keys: KEYS_MAX, issuers: ISSUERS_MAX, executors: EXECUTORS_MAX, ...use.limits },
  };
}

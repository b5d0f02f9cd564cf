import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { ACCESS } from '../../auth/authorize.ts';
import { readTenant, seedTenant } from '../../commands/tenant/manage-tenant.ts';
import type { ChangeTenantParts } from '../../commands/tenant/change-tenant.ts';
import { EXECUTORS_MAX, ISSUERS_MAX, KEYS_MAX } from '../../domain/tenant/limits.ts';
import type { KnownTenant } from '../../domain/tenant/state.ts';
import type { TenantQueries } from '../../projections/tenants/queries.ts';
import type { Freshness } from '../freshness.ts';
import { callerOf } from '../gate.ts';
import { ListRequest } from '../list-request.ts';
import { accepted, notFound, ProblemError } from '../problem.ts';
import { manageInput } from '../tenant-input.ts';
import * as wire from '../wire/schemas.ts';
import type { Checks } from './host.ts';

export interface TenantRouteParts extends ChangeTenantParts {
  readonly queries: TenantQueries;
  readonly freshness: Freshness;
  readonly checks: () => Promise<Checks>;
  readonly limits: { readonly bodyBytes: number; readonly streams: number };
  /** Whether this Host has the fixture model on. */
  readonly fixtureModel: boolean;
}

/** The tenant's status, its seed and its audit trail (wire contract, section 12). */
export function tenantRoutes(parts: TenantRouteParts): FastifyPluginAsyncZod {
  const { queries, fixtureModel } = parts;
  return async (app) => {
    const config = { rules: { access: ACCESS.tenant } };
    app.get('/v1/tenant', { config, schema: { response: { 200: wire.tenantStatus } } }, async (request) => {
      const tenant = await readTenant(parts, callerOf(request).tenantId);
      if (tenant === null) throw notFound('tenant');
      return await statusOfTenant(parts, tenant);
    });
    app.put(
      '/v1/tenant/config/seed',
      { config, schema: { body: wire.seedBody, response: { 200: wire.seeded } } },
      async (request) => {
        if (request.body.fixtureModel === undefined) return { applied: [], kept: [] };
        if (!fixtureModel) throw fixtureIsOff();
        const outcome = accepted(await seedTenant(parts, manageInput(request, request.body.requestId)));
        const { reply, tenant, position } = outcome;
        await parts.freshness('tenants', { tenant: tenant.id, kind: 'tenant', id: tenant.id }, position);
        return reply;
      },
    );
    app.get(
      '/v1/tenant/audit',
      {
        config: { rules: { access: ACCESS.audit } },
        schema: { querystring: wire.listQuery, response: { 200: wire.auditTrail } },
      },
      async (request) => {
        const { tenantId } = callerOf(request);
        const list = new ListRequest(`GET /v1/tenant/audit ${tenantId}`, request.query, 2);
        const [position, index] = (list.after ?? []).map(Number);
        const after = position === undefined || index === undefined ? null : { position, index };
        const found = await queries.audit(tenantId, { limit: list.wanted, after });
        const page = list.page(found, (placed) => [String(placed.position), String(placed.index)]);
        return {
          entries: page.entries.map(({ entry }) => ({ ...entry, details: { ...entry.details } })),
          nextCursor: page.nextCursor,
        };
      },
    );
    await Promise.resolve();
  };
}

async function statusOfTenant({ queries, checks, limits, fixtureModel }: TenantRouteParts, tenant: KnownTenant) {
  const { id, name, status: state, createdAt, updatedAt, keys, issuers, executors } = tenant;
  const { database, engine, streams, objects } = await checks();
  const configured = tenant.fixtureModel && fixtureModel;
  return {
    tenant: { id, name, state, createdAt, updatedAt },
    checks: { store: database, execution: engine, streams, objects },
    model: configured ? { configured, provider: 'fixture', model: 'fixture' } : { configured },
    counts: {
      ...(await queries.counts(id)),
      keys: keys.length - 1,
      issuers: Object.keys(issuers).length,
      executors: executors.length,
    },
    limits: { ...limits, keys: KEYS_MAX, issuers: ISSUERS_MAX, executors: EXECUTORS_MAX },
  };
}

function fixtureIsOff(): ProblemError {
  const issues = [{ path: 'fixtureModel', message: 'the optional feature tenant-fixture-model is off' }];
  const message = 'This Host does not have the fixture model on; GET /health lists its features.';
  return new ProblemError({ code: 'invalid_request', message, details: { issues } });
}

import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { ACCESS } from '../../auth/authorize.ts';
import { createTenant } from '../../commands/tenant/create-tenant.ts';
import type { CreateTenantParts } from '../../commands/tenant/create-tenant.ts';
import { decodePageCursor, encodePageCursor } from '../../projections/page-cursor.ts';
import type { TenantQueries } from '../../projections/tenants/queries.ts';
import { accepted, notFound, ProblemError } from '../problem.ts';
import type { Freshness } from '../freshness.ts';
import * as wire from '../wire/schemas.ts';

export interface AdminRouteParts {
  readonly create: CreateTenantParts;
  readonly queries: TenantQueries;
  readonly freshness: Freshness;
}

const LIST = 'GET /v1/admin/tenants';

/** Tenants, for the Host admin. */
export function adminRoutes({ create, queries, freshness }: AdminRouteParts): FastifyPluginAsyncZod {
  return async (app) => {
    const config = { rules: { access: ACCESS.admin } };
    app.post(
      '/v1/admin/tenants',
      { config, schema: { body: wire.createTenantBody, response: { 200: wire.tenantCreated, 201: wire.tenantCreated } } },
      async (request, reply) => {
        const { requestId, idempotencyKey = null, ...body } = request.body;
        const causation = requestId ?? request.id;
        const outcome = accepted(await createTenant(create, { body, idempotencyKey, actor: 'admin', causation }));
        const { tenant, applicationKey, replayed, position } = outcome;
        await freshness('tenants', { tenant: tenant.id, kind: 'tenant', id: tenant.id }, position);
        const { id, name, status: state, createdAt, updatedAt } = tenant;
        const shown = { id, name, state, createdAt, updatedAt };
        return await reply.code(replayed ? 200 : 201).send({ tenant: shown, applicationKey, principalId: body.principalId });
      },
    );
    app.get(
      '/v1/admin/tenants',
      { config, schema: { querystring: wire.listQuery, response: { 200: wire.tenantList } } },
      async ({ query: { limit, cursor } }) => {
        const after = cursor === undefined ? null : decodePageCursor(LIST, cursor, 2);
        if (cursor !== undefined && after === null) throw invalidCursor();
        const found = await queries.list({ limit: limit + 1, after });
        const tenants = found.slice(0, limit);
        const last = tenants.at(-1);
        const more = found.length > limit && last !== undefined;
        return { tenants: [...tenants], nextCursor: more ? encodePageCursor(LIST, [last.createdAt, last.id]) : null };
      },
    );
    app.get(
      '/v1/admin/tenants/:tenantId',
      { config, schema: { params: wire.tenantPath, response: { 200: wire.tenantOnly } } },
      async ({ params: { tenantId } }) => {
        const tenant = await queries.get(tenantId);
        if (tenant === null) throw notFound('tenant');
        return { tenant };
      },
    );
    await Promise.resolve();
  };
}

export function invalidCursor(): ProblemError {
  const message = 'The cursor is not one of this list. Use a cursor from the same route with the same filters, or none.';
  return new ProblemError({ code: 'cursor_invalid', message });
}

import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { ACCESS } from '../../auth/authorize.ts';
import { deleteIssuer, readTenant, saveIssuer } from '../../commands/tenant/manage-tenant.ts';
import type { KnownTenant } from '../../domain/tenant/state.ts';
import type { EgressPolicy } from '../../lib/egress.ts';
import { requireCallable } from '../callable.ts';
import { optional } from '../../domain/kernel/optional.ts';
import { operations } from '../described.ts';
import { callerOf } from '../gate.ts';
import { accepted, notFound } from '../problem.ts';
import { manageInput } from '../tenant-input.ts';
import * as wire from '../wire/schemas.ts';
import type { KeyRouteDeps } from './keys.ts';

const docs = operations('Tenant', {
  saveIssuer: ['Trust the tokens of an issuer', 'Its tokens are good at once on every node.'],
  listIssuers: ['List issuers'],
  getIssuer: ['One issuer'],
  deleteIssuer: ['Stop trusting an issuer'],
});

export interface IssuerRouteDeps extends KeyRouteDeps {
  /** Which addresses this Host calls. */
  readonly egress: EgressPolicy;
}

/** Issuers of tokens that a tenant trusts. */
export function issuerRoutes(deps: IssuerRouteDeps): FastifyPluginAsyncZod {
  return async (app) => {
    const config = { rules: { access: ACCESS.tenant } };
    app.put(
      '/v1/tenant/issuers/:name',
      {
        config,
        schema: {
          ...docs.saveIssuer,
          params: wire.issuerPath,
          body: wire.saveIssuerBody,
          response: { 200: wire.issuer },
        },
      },
      async (request) => {
        const { name } = request.params;
        const { requestId, ...issuer } = request.body;
        requireCallable(deps.egress, issuer.jwksUrl, 'jwksUrl');
        const input = { ...manageInput(request, requestId), name, issuer: optional(issuer) };
        const { tenant, position } = accepted(await saveIssuer(deps, input));
        await deps.freshness('tenants', { tenant: tenant.id, kind: 'tenant', id: tenant.id }, position);
        return toIssuerResponse(tenant, name);
      },
    );
    app.get(
      '/v1/tenant/issuers',
      { config, schema: { ...docs.listIssuers, response: { 200: wire.issuerList } } },
      async (request) => {
        const tenant = await openTenant(deps, callerOf(request).tenantId);
        return { issuers: Object.keys(tenant.issuers).map((name) => toIssuerResponse(tenant, name)) };
      },
    );
    app.get(
      '/v1/tenant/issuers/:name',
      { config, schema: { ...docs.getIssuer, params: wire.issuerPath, response: { 200: wire.issuer } } },
      async (request) => toIssuerResponse(await openTenant(deps, callerOf(request).tenantId), request.params.name),
    );
    app.delete(
      '/v1/tenant/issuers/:name',
      { config, schema: { ...docs.deleteIssuer, params: wire.issuerPath, response: { 200: wire.deleted } } },
      async (request) => {
        const { name } = request.params;
        const { tenant, position } = accepted(await deleteIssuer(deps, { ...manageInput(request, undefined), name }));
        await deps.freshness('tenants', { tenant: tenant.id, kind: 'tenant', id: tenant.id }, position);
        return { id: name, deleted: true as const };
      },
    );
    await Promise.resolve();
  };
}

async function openTenant(deps: KeyRouteDeps, tenantId: string): Promise<KnownTenant> {
  const tenant = await readTenant(deps, tenantId);
  if (tenant === null) throw notFound('tenant');
  return tenant;
}

/** @throws ProblemError not_found */
function toIssuerResponse({ issuers }: KnownTenant, name: string) {
  // A client may choose a name that every object has, such as `constructor`.
  const issuer = Object.hasOwn(issuers, name) ? issuers[name] : undefined;
  if (issuer === undefined) throw notFound('issuer');
  return { name, ...issuer };
}

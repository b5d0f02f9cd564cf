import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { ACCESS } from '../../auth/authorize.ts';
import { deleteKey, readTenant, saveKey } from '../../commands/tenant/manage-tenant.ts';
import type { ChangeTenantDeps } from '../../commands/tenant/change-tenant.ts';
import type { KnownTenant } from '../../domain/tenant/state.ts';
import { operations } from '../described.ts';
import type { Freshness } from '../freshness.ts';
import { callerOf } from '../gate.ts';
import { accepted, notFound } from '../problem.ts';
import { manageInput } from '../tenant-input.ts';
import * as wire from '../wire/schemas.ts';

const docs = operations('Tenant', {
  saveKey: [
    'Create a key, or a new secret for one',
    'The old secret is dead at once on this node and within a second on every other; the new one is good at once on all, and shown this once.',
  ],
  listKeys: ['List keys, never their secrets'],
  deleteKey: ['Delete a key', 'The last application key cannot be deleted.'],
});

export interface KeyRouteDeps extends ChangeTenantDeps {
  readonly freshness: Freshness;
}

/** Application and management keys of a tenant. */
export function keyRoutes(deps: KeyRouteDeps): FastifyPluginAsyncZod {
  return async (app) => {
    const config = { rules: { access: ACCESS.tenant } };
    app.put(
      '/v1/tenant/keys/:keyId',
      {
        config,
        schema: { ...docs.saveKey, params: wire.keyPath, body: wire.saveKeyBody, response: { 200: wire.keySaved } },
      },
      async (request) => {
        const { keyId } = request.params;
        const { role, credentialHash = null, requestId } = request.body;
        const input = { ...manageInput(request, requestId), keyId, role, credentialHash };
        const { reply, tenant, position } = accepted(await saveKey(deps, input));
        await deps.freshness('tenants', { tenant: tenant.id, kind: 'tenant', id: tenant.id }, position);
        const saved = toKeysResponse(tenant).find(({ id }) => id === keyId);
        if (saved === undefined) throw new Error('a key vanished while it was being saved');
        return { ...saved, ...reply };
      },
    );
    app.get(
      '/v1/tenant/keys',
      { config, schema: { ...docs.listKeys, response: { 200: wire.keyList } } },
      async (request) => {
        const tenant = await readTenant(deps, callerOf(request).tenantId);
        if (tenant === null) throw notFound('tenant');
        return { keys: toKeysResponse(tenant) };
      },
    );
    app.delete(
      '/v1/tenant/keys/:keyId',
      { config, schema: { ...docs.deleteKey, params: wire.keyPath, response: { 200: wire.deleted } } },
      async (request) => {
        const { keyId } = request.params;
        const { tenant, position } = accepted(await deleteKey(deps, { ...manageInput(request, undefined), keyId }));
        await deps.freshness('tenants', { tenant: tenant.id, kind: 'tenant', id: tenant.id }, position);
        return { id: keyId, deleted: true as const };
      },
    );
    await Promise.resolve();
  };
}

/** What is shown of keys: never a hash. The studio key is the Host's own and is not among them. */
function toKeysResponse({
  keys,
}: KnownTenant): { id: string; role: 'application' | 'management'; createdAt: string }[] {
  return keys.flatMap(({ id, role, createdAt }) => (role === 'studio' ? [] : [{ id, role, createdAt }]));
}

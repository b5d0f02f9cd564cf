import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { ACCESS } from '../../auth/authorize.ts';
import { artifactUse, limitArtifacts } from '../../commands/artifact/limits.ts';
import type { ArtifactDeps } from '../../commands/artifact/deps.ts';
import { operations } from '../described.ts';
import { callerOf } from '../gate.ts';
import { manageInput } from '../tenant-input.ts';
import * as wire from '../wire/artifacts.ts';

const docs = operations('Tenant', {
  getArtifactUse: ["Limits of the tenant's artifacts, and what they hold"],
  saveArtifactLimits: [
    "Set limits of the tenant's artifacts",
    'A limit that is not named stays. What is stored already stays too.',
  ],
});

/** A tenant's limits of artifacts and what it has stored. */
export function artifactUseRoutes(deps: ArtifactDeps): FastifyPluginAsyncZod {
  return async (app) => {
    const config = { rules: { access: ACCESS.tenant } };
    app.get(
      '/v1/tenant/artifacts',
      { config, schema: { ...docs.getArtifactUse, response: { 200: wire.use } } },
      async (request) => {
        return await artifactUse(deps, callerOf(request).tenantId);
      },
    );
    app.put(
      '/v1/tenant/artifacts',
      { config, schema: { ...docs.saveArtifactLimits, body: wire.limitBody, response: { 200: wire.use } } },
      async (request) => {
        const { requestId, limits } = request.body;
        const { tenantId: tenant, ...meta } = manageInput(request, requestId);
        return await limitArtifacts(deps, { tenant, limits, ...meta });
      },
    );
    await Promise.resolve();
  };
}

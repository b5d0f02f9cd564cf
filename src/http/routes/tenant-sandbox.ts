import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { ACCESS } from '../../auth/authorize.ts';
import { rosterRef } from '../../commands/sandbox/deps.ts';
import type { SandboxDeps } from '../../commands/sandbox/deps.ts';
import { withoutNulls } from '../../domain/kernel/optional.ts';
import { CALL_SECONDS, CALL_SECONDS_MAX } from '../../domain/sandbox/tools.ts';
import { operations } from '../described.ts';
import { callerOf } from '../gate.ts';
import * as wire from '../wire/sandboxes.ts';

const docs = operations('Sandboxes', {
  getTenantSandboxes: ['Which kinds of sandboxes the tenant can have, and how many'],
});

export interface TenantSandboxDeps extends Pick<SandboxDeps, 'rosters' | 'sandboxesMax' | 'workspaceLimits' | 'pods'> {
  /** Why no virtual sandbox can run here; null: they can. */
  readonly virtualFault: () => string | null;
}

/** Which kinds of sandboxes the tenant can have, and how many. */
export function tenantSandboxRoutes(deps: TenantSandboxDeps): FastifyPluginAsyncZod {
  return async (app) => {
    app.get(
      '/v1/tenant/sandbox',
      {
        config: { rules: { access: ACCESS.tenant } },
        schema: { ...docs.getTenantSandboxes, response: { 200: wire.tenantSandbox } },
      },
      async (request) => {
        const { state } = await deps.rosters.refresh(rosterRef(callerOf(request).tenantId));
        const reason = deps.virtualFault();
        return {
          virtual: { available: reason === null, ...withoutNulls({ reason }) },
          pod: await deps.pods.status(),
          defaults: {
            kind: 'virtual' as const,
            ...deps.workspaceLimits,
            callSeconds: CALL_SECONDS,
            callSecondsMax: CALL_SECONDS_MAX,
          },
          limits: { sandboxes: deps.sandboxesMax },
          usage: { sandboxes: Object.keys(state.sandboxes).length },
        };
      },
    );
    await Promise.resolve();
  };
}

import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { ACCESS } from '../../auth/authorize.ts';
import type { ActionView } from '../../projections/actions/queries.ts';
import { discover } from '../discovery.ts';
import type { DiscoveryParts } from '../discovery.ts';
import { callerOf } from '../gate.ts';
import * as wire from '../wire/executors.ts';
import type { Action } from '../wire/executors.ts';

/** What an executor finds its work with; its agent is its principal (wire contract, section 9). */
export function actionRoutes(parts: DiscoveryParts): FastifyPluginAsyncZod {
  return async (app) => {
    const config = { rules: { access: ACCESS.executorWork } };
    app.get('/v1/executors/connect', { config }, async (request, reply) => {
      discover(parts, request, reply, callerOf(request));
      await Promise.resolve();
    });
    app.get(
      '/v1/actions',
      { config, schema: { querystring: wire.actionsQuery, response: { 200: wire.actionList } } },
      async (request) => {
        const { tenantId, principalId } = callerOf(request);
        const found = await parts.actions.pending(tenantId, principalId, request.query.limit);
        return { actions: found.map(shownAction) };
      },
    );
    await Promise.resolve();
  };
}

/** Members in the order of the contract: the database keeps none. */
function shownAction(view: ActionView): Action {
  const { actionId, sessionId, turnId, agentId, kind, toolName, hook, callId, input, status, generation } = view;
  const { subject, info, createdAt, agent } = view;
  return {
    ...{ actionId, sessionId, turnId, agentId, kind },
    ...(toolName === undefined ? {} : { toolName }),
    ...(hook === undefined ? {} : { hook }),
    ...{ callId, input, status, generation },
    ...(subject === undefined ? {} : { subject }),
    ...(info === undefined ? {} : { info: { ...info } }),
    createdAt,
    ...(agent === undefined ? {} : { agent }),
  };
}

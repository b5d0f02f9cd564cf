import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { ACCESS } from '../../auth/authorize.ts';
import { actorOf } from '../../auth/caller.ts';
import type { Caller } from '../../auth/caller.ts';
import type { ActionPlaces } from '../../commands/session/action-places.ts';
import { claimAction, keepAction } from '../../commands/session/hold-action.ts';
import type { HeldAction, HoldActionParts } from '../../commands/session/hold-action.ts';
import type { ActionIndex } from '../../projections/actions/queries.ts';
import { actionView } from '../../projections/actions/views.ts';
import type { ActionView } from '../../projections/actions/views.ts';
import { discover } from '../discovery.ts';
import type { DiscoveryParts } from '../discovery.ts';
import type { Freshness } from '../freshness.ts';
import { callerOf } from '../gate.ts';
import { accepted } from '../problem.ts';
import * as wire from '../wire/executors.ts';
import type { Action } from '../wire/executors.ts';

export interface ActionRouteParts extends DiscoveryParts {
  readonly actions: ActionIndex;
  readonly places: ActionPlaces;
}

export interface ClaimRouteParts extends HoldActionParts {
  readonly freshness: Freshness;
}

const config = { rules: { access: ACCESS.executorWork } };

/** What an executor finds its work with; its agent is its principal (wire contract, section 9). */
export function actionRoutes(parts: ActionRouteParts): FastifyPluginAsyncZod {
  return async (app) => {
    app.get('/v1/executors/connect', { config }, async (request, reply) => {
      discover(parts, request, reply, callerOf(request));
      await Promise.resolve();
    });
    app.get(
      '/v1/actions',
      { config, schema: { querystring: wire.actionsQuery, response: { 200: wire.actionList } } },
      async (request) => {
        const executor = executorOf(callerOf(request));
        const found = await parts.actions.pending(executor, request.query.limit);
        parts.places.remember(executor, found);
        return { actions: found.map(shownAction) };
      },
    );
    await Promise.resolve();
  };
}

/** How an executor takes an action, and says that it is still at it; its result is a command of the session. */
export function claimRoutes(parts: ClaimRouteParts): FastifyPluginAsyncZod {
  return async (app) => {
    app.post(
      '/v1/actions/:actionId/claim',
      { config, schema: { params: wire.actionPath, body: wire.claimBody, response: { 200: wire.claimed } } },
      async (request) => {
        const caller = callerOf(request);
        const { actionId } = request.params;
        const input = { executor: executorOf(caller), actionId, ...request.body, actor: actorOf(caller) };
        const { reply, position } = accepted(await claimAction(parts, input));
        // A list right after it has the action no more.
        await parts.freshness('sessions', reply.ref, position);
        const { action, ref, session, turnId } = reply;
        const { claimId, leaseExpiresAt } = claimOf(reply);
        const view = actionView(action, turnId, { ...session, id: ref.id });
        return { action: shownAction(view), claimId, generation: action.generation, leaseExpiresAt };
      },
    );
    app.post(
      '/v1/actions/:actionId/heartbeat',
      { config, schema: { params: wire.actionPath, body: wire.heartbeatBody, response: { 200: wire.extended } } },
      async (request) => {
        const caller = callerOf(request);
        const { actionId } = request.params;
        const input = { executor: executorOf(caller), actionId, ...request.body, actor: actorOf(caller) };
        const { reply } = accepted(await keepAction(parts, input));
        return { leaseExpiresAt: claimOf(reply).leaseExpiresAt };
      },
    );
    await Promise.resolve();
  };
}

function executorOf({ tenantId, principalId }: Caller): { tenantId: string; agentId: string } {
  return { tenantId, agentId: principalId };
}

function claimOf({ action: { claim } }: HeldAction): NonNullable<HeldAction['action']['claim']> {
  if (claim === null) throw new Error('an action that is held has a claim');
  return claim;
}

/** Members in the order of the contract: the database keeps none. */
function shownAction(view: ActionView): Action {
  const { actionId, sessionId, turnId, agentId, kind, toolName, hook, callId, input, status, generation } = view;
  const { subject, info, createdAt, agent, resume } = view;
  return {
    ...{ actionId, sessionId, turnId, agentId, kind },
    ...(toolName === undefined ? {} : { toolName }),
    ...(hook === undefined ? {} : { hook }),
    // An executor is shown what it may claim, and what it has claimed.
    ...{ callId, input, status: status === 'pending' ? 'pending' : 'claimed', generation },
    ...(subject === undefined ? {} : { subject }),
    ...(info === undefined ? {} : { info: { ...info } }),
    createdAt,
    ...(agent === undefined ? {} : { agent }),
    ...(resume === undefined ? {} : { resume: { interactionId: resume.interactionId, value: resume.value ?? null } }),
  };
}

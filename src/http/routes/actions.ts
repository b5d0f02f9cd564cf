import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import type { z } from 'zod';
import { ACCESS } from '../../auth/authorize.ts';
import { actorOf } from '../../auth/caller.ts';
import type { Caller } from '../../auth/caller.ts';
import type { ActionLocator, OpenActionList } from '../../commands/session/action-locator.ts';
import type { ActionClaims } from '../../commands/session/claim-actions.ts';
import { claimAction, keepAction, pendingActions } from '../../commands/session/hold-action.ts';
import type { FoundAction, HeldAction, HoldActionDeps } from '../../commands/session/hold-action.ts';
import { actionView } from '../../projections/actions/views.ts';
import { discover } from '../discovery.ts';
import type { DiscoveryDeps } from '../discovery.ts';
import { operations } from '../described.ts';
import { callerOf } from '../gate.ts';
import { accepted } from '../problem.ts';
import { viewToActionResponse } from '../action-response.ts';
import * as wire from '../wire/executors.ts';

const docs = operations('Executors', {
  connectExecutor: [
    'Be notified of work, live',
    'A signal `work_available` at once when there is any, and whenever there is new, with `actions`: the oldest, or the new ones, at most 20 and 64 KiB. They can be claimed as they are.',
  ],
  listActions: ["Pending actions of the executor's agent, oldest first"],
  claimActions: [
    'Take the oldest pending actions',
    'At most `limit` of them. The same requestId, sent again to any node, gets the same claims while they hold, whatever its limit, and no others. Without claims in the answer nothing waits.',
  ],
  claimAction: [
    'Take an action',
    'Exclusive: of any number of executors one gets it. The same requestId gets the claim again while it holds, from any node, after any crash. It ends with `leaseExpiresAt` unless heartbeats come.',
  ],
  extendAction: [
    'Extend the claim of an action',
    'Extends the lease by a full period. A lease does not expire while no node could receive heartbeats: after an outage it has a full period again. `claim_stale`: the claim has ended; stop the work.',
  ],
});

export interface ActionRouteDeps extends DiscoveryDeps {
  readonly sessions: HoldActionDeps['sessions'];
  readonly open: OpenActionList;
  readonly places: ActionLocator;
}

export interface ClaimRouteDeps extends HoldActionDeps {
  readonly claims: ActionClaims;
}

const config = { rules: { access: ACCESS.executorWork } };

/** How an executor finds its work; its agent is its principal. None of it needs the database. */
export function actionRoutes(deps: ActionRouteDeps): FastifyPluginAsyncZod {
  return async (app) => {
    app.get(
      '/v1/executors/connect',
      { config: { ...config, sends: 'work' }, schema: { ...docs.connectExecutor } },
      async (request, reply) => {
        discover(deps, request, reply, callerOf(request));
        await Promise.resolve();
      },
    );
    app.get(
      '/v1/actions',
      { config, schema: { ...docs.listActions, querystring: wire.actionsQuery, response: { 200: wire.actionList } } },
      async (request) => {
        const executor = executorOf(callerOf(request));
        await deps.open.reached();
        const pending = deps.open.pending(executor, request.query.limit);
        deps.places.remember(executor, pending);
        const found = await pendingActions(deps.sessions, executor, pending);
        return { actions: found.map(toActionResponse) };
      },
    );
    await Promise.resolve();
  };
}

/** How an executor takes actions, and says that it still works on one; its result is a command of the session. */
export function claimRoutes(deps: ClaimRouteDeps): FastifyPluginAsyncZod {
  return async (app) => {
    app.post(
      '/v1/actions/claim',
      { config, schema: { ...docs.claimActions, body: wire.claimsBody, response: { 200: wire.claimedAll } } },
      async (request) => {
        const caller = callerOf(request);
        const input = { executor: executorOf(caller), ...request.body, actor: actorOf(caller) };
        return { claims: (await deps.claims.claim(input)).map(toClaimResponse) };
      },
    );
    app.post(
      '/v1/actions/:actionId/claim',
      {
        config,
        schema: { ...docs.claimAction, params: wire.actionPath, body: wire.claimBody, response: { 200: wire.claimed } },
      },
      async (request) => {
        const caller = callerOf(request);
        const { actionId } = request.params;
        const input = { executor: executorOf(caller), actionId, ...request.body, actor: actorOf(caller) };
        return toClaimResponse(accepted(await claimAction(deps, input)).reply);
      },
    );
    app.post(
      '/v1/actions/:actionId/heartbeat',
      {
        config,
        schema: {
          ...docs.extendAction,
          params: wire.actionPath,
          body: wire.heartbeatBody,
          response: { 200: wire.extended },
        },
      },
      async (request) => {
        const input = { ...request.body, ...request.params, executor: executorOf(callerOf(request)) };
        const { leaseExpiresAt } = accepted(await keepAction(deps, input)).reply;
        return { leaseExpiresAt };
      },
    );
    await Promise.resolve();
  };
}

function toActionResponse({ ref, session, turnId, action }: FoundAction): wire.Action {
  return viewToActionResponse(actionView(action, turnId, { ...session, id: ref.id }));
}

function toClaimResponse(held: HeldAction): z.output<typeof wire.claimed> {
  const { claimId, leaseExpiresAt, action } = held;
  return { action: toActionResponse(held), claimId, generation: action.generation, leaseExpiresAt };
}

function executorOf({ tenantId, principalId }: Caller): { tenantId: string; agentId: string } {
  return { tenantId, agentId: principalId };
}

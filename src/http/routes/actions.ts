import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import type { z } from 'zod';
import { ACCESS } from '../../auth/authorize.ts';
import { actorOf } from '../../auth/caller.ts';
import type { Caller } from '../../auth/caller.ts';
import type { ActionPlaces, OpenActionList } from '../../commands/session/action-places.ts';
import type { ActionClaims } from '../../commands/session/claim-actions.ts';
import { claimAction, keepAction, pendingActions } from '../../commands/session/hold-action.ts';
import type { FoundAction, HeldAction, HoldActionParts } from '../../commands/session/hold-action.ts';
import { actionView } from '../../projections/actions/views.ts';
import { discover } from '../discovery.ts';
import type { DiscoveryParts } from '../discovery.ts';
import { operations } from '../described.ts';
import type { Freshness } from '../freshness.ts';
import { callerOf } from '../gate.ts';
import { accepted } from '../problem.ts';
import { shownAction } from '../shown-action.ts';
import * as wire from '../wire/executors.ts';

const docs = operations('Executors', {
  connectExecutor: [
    'Hear of work, live',
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
    'Keep an action',
    'The lease lasts for another while. It does not run out while no node could have heard a heartbeat: after an outage it has a whole period again. `claim_stale`: it was over already; stop the work.',
  ],
});

export interface ActionRouteParts extends DiscoveryParts {
  readonly sessions: HoldActionParts['sessions'];
  readonly open: OpenActionList;
  readonly places: ActionPlaces;
}

export interface ClaimRouteParts extends HoldActionParts {
  readonly claims: ActionClaims;
  readonly freshness: Freshness;
}

const config = { rules: { access: ACCESS.executorWork } };

/** What an executor finds its work with; its agent is its principal. Nothing of it needs the database. */
export function actionRoutes(parts: ActionRouteParts): FastifyPluginAsyncZod {
  return async (app) => {
    app.get(
      '/v1/executors/connect',
      { config: { ...config, sends: 'work' }, schema: { ...docs.connectExecutor } },
      async (request, reply) => {
        discover(parts, request, reply, callerOf(request));
        await Promise.resolve();
      },
    );
    app.get(
      '/v1/actions',
      { config, schema: { ...docs.listActions, querystring: wire.actionsQuery, response: { 200: wire.actionList } } },
      async (request) => {
        const executor = executorOf(callerOf(request));
        await parts.open.reached();
        const pending = parts.open.pending(executor, request.query.limit);
        parts.places.remember(executor, pending);
        const found = await pendingActions(parts.sessions, executor, pending);
        return { actions: found.map(shownFound) };
      },
    );
    await Promise.resolve();
  };
}

/** How an executor takes actions, and says that it is still at one; its result is a command of the session. */
export function claimRoutes(parts: ClaimRouteParts): FastifyPluginAsyncZod {
  return async (app) => {
    app.post(
      '/v1/actions/claim',
      { config, schema: { ...docs.claimActions, body: wire.claimsBody, response: { 200: wire.claimedAll } } },
      async (request) => {
        const caller = callerOf(request);
        const input = { executor: executorOf(caller), ...request.body, actor: actorOf(caller) };
        return { claims: (await parts.claims.claim(input)).map(shownClaim) };
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
        const { reply, position } = accepted(await claimAction(parts, input));
        // Counts that are asked for right after it do not have the action any more.
        await parts.freshness('sessions', reply.ref, position);
        return shownClaim(reply);
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
        const caller = callerOf(request);
        const { actionId } = request.params;
        const input = { executor: executorOf(caller), actionId, ...request.body, actor: actorOf(caller) };
        const { leaseExpiresAt } = accepted(await keepAction(parts, input)).reply;
        return { leaseExpiresAt };
      },
    );
    await Promise.resolve();
  };
}

function shownFound({ ref, session, turnId, action }: FoundAction): wire.Action {
  return shownAction(actionView(action, turnId, { ...session, id: ref.id }));
}

function shownClaim(held: HeldAction): z.output<typeof wire.claimed> {
  const { claimId, leaseExpiresAt, action } = held;
  return { action: shownFound(held), claimId, generation: action.generation, leaseExpiresAt };
}

function executorOf({ tenantId, principalId }: Caller): { tenantId: string; agentId: string } {
  return { tenantId, agentId: principalId };
}

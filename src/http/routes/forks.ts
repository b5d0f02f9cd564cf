import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { ACCESS } from '../../auth/authorize.ts';
import { actorOf, outOfReach } from '../../auth/caller.ts';
import { forkSession } from '../../commands/session/fork-session.ts';
import type { ForkSessionDeps } from '../../commands/session/fork-session.ts';
import { canonicalJson } from '../../lib/canonical-json.ts';
import { sha256Hex } from '../../lib/hash.ts';
import { operations } from '../described.ts';
import type { Freshness } from '../freshness.ts';
import { callerOf } from '../gate.ts';
import { misplaced, placeOf, recordPlace } from '../history-place.ts';
import { accepted } from '../problem.ts';
import { forkBody } from '../wire/forks.ts';
import * as wire from '../wire/schemas.ts';
import { stateToResponse } from '../wire/session.ts';
import { sessionRef } from './sessions.ts';

const docs = operations('Sessions', {
  forkSession: [
    'Fork a session at any place of its history',
    'The new session has the history up to `cursor`, that record included, or all there is now, and the agent, subject, info and labels of the one it comes from; it is idle, whatever that one does. Its records have its own sessionId and cursors; keys, calls and usage start fresh. A session with forks is deleted after them. The same idempotencyKey with the same body answers with the same session, as it is then.',
  ],
});

export interface ForkRouteDeps extends ForkSessionDeps {
  readonly freshness: Freshness;
}

/** Forks a session: a new one that continues from any place of its history. */
export function forkRoutes(deps: ForkRouteDeps): FastifyPluginAsyncZod {
  return async (app) => {
    const config = { rules: { access: ACCESS.sessions } };
    app.post(
      '/v1/sessions/:sessionId/fork',
      {
        config,
        schema: { ...docs.forkSession, params: wire.sessionPath, body: forkBody, response: { 201: wire.session } },
      },
      async (request, reply) => {
        const caller = callerOf(request);
        const ref = sessionRef(caller, request.params.sessionId);
        const { requestId, idempotencyKey, id: childId, cursor } = request.body;
        const place = cursor === undefined ? null : placeOf(ref, cursor);
        const forked = accepted(
          await forkSession(deps, {
            ...{ ref, childId, idempotencyKey, requestId, subject: caller.subject, actor: actorOf(caller) },
            at: place === null ? null : recordPlace(place),
            misplaced: (session) => (place === null ? null : misplaced(place, session)),
            // One key space with the commands of the session: a fork is not one.
            bodyHash: sha256Hex(canonicalJson({ fork: { idempotencyKey, id: childId, cursor } })),
            outOfReach: (session) => outOfReach(caller, session),
          }),
        );
        await deps.freshness('sessions', forked.ref, forked.position);
        return await reply
          .code(201)
          .send(stateToResponse(forked.ref, deps.sessions.store.shardOf(forked.ref), forked.state));
      },
    );
    await Promise.resolve();
  };
}

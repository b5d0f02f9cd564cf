import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { ACCESS } from '../../auth/authorize.ts';
import { actorOf, artifactOutOfReach, outOfReach, sandboxGranted, sandboxOutOfReach } from '../../auth/caller.ts';
import type { Caller } from '../../auth/caller.ts';
import type { ArtifactReach } from '../../commands/artifact/deps.ts';
import type { SandboxReach } from '../../commands/sandbox/open-sandbox.ts';
import { deleteSession } from '../../commands/session/delete-session.ts';
import { openSession } from '../../commands/session/open-session.ts';
import type { OpenSessionDeps } from '../../commands/session/open-session.ts';
import { canonicalJson } from '../../lib/canonical-json.ts';
import { timestamp } from '../../lib/clock.ts';
import type { Clock } from '../../lib/clock.ts';
import { sha256Hex } from '../../lib/hash.ts';
import type { SessionQueries } from '../../projections/sessions/queries.ts';
import type { SessionView } from '../../projections/sessions/views.ts';
import type { AggregateRef } from '../../streams/subjects.ts';
import { operations } from '../described.ts';
import type { Freshness } from '../freshness.ts';
import { callerOf } from '../gate.ts';
import { ListRequest } from '../list-request.ts';
import { accepted, ProblemError, refused, requireAgent, withinReach } from '../problem.ts';
import { toSessionResponse, stateToResponse } from '../wire/session.ts';
import * as wire from '../wire/schemas.ts';
import type { OpenSessionBody } from '../wire/schemas.ts';

const docs = operations('Sessions', {
  openSession: [
    'Open a session, or get the existing one',
    'The same body gives the same session; labels may change; other content is a conflict.',
  ],
  getSession: ['One session, with everything acknowledged before the request'],
  deleteSession: [
    'Delete a session with its history and calls',
    'Refused while a turn is active, and with `conflict` while forks of it are there. The id may be used again; cursors from before are invalid then.',
  ],
  listSessions: [
    'List sessions, newest first',
    'Shows what this node has accepted before it was asked. Where its read model is more than 100 ms behind, `asOf` is the time up to which the list is complete.',
  ],
});

export interface SessionRouteDeps extends OpenSessionDeps {
  readonly queries: SessionQueries;
  readonly freshness: Freshness;
  readonly clock: Clock;
  /** Waits for what this node has recorded, and says up to when a list is complete. */
  readonly ownWrites: { readonly shown: (tenantId: string) => Promise<number> };
  /** Removes the artifacts of a session that is deleted; what it cannot do now is done later. Never throws. */
  readonly removeArtifacts: (
    session: AggregateRef,
    shown: (artifact: AggregateRef, position: number | null) => Promise<void>,
  ) => Promise<void>;
}

type Reached = Parameters<typeof outOfReach>[1];

/** Opens, shows and lists sessions. */
export function sessionRoutes(deps: SessionRouteDeps): FastifyPluginAsyncZod {
  const { queries, freshness } = deps;
  return async (app) => {
    const config = { rules: { access: ACCESS.sessions } };
    app.put(
      '/v1/sessions/:sessionId',
      {
        config,
        schema: {
          ...docs.openSession,
          params: wire.sessionPath,
          body: wire.openSessionBody,
          response: { 200: wire.session },
        },
      },
      async (request) => {
        const caller = callerOf(request);
        const ref = sessionRef(caller, request.params.sessionId);
        const outcome = accepted(
          await openSession(deps, openSessionInput(caller, ref, { body: request.body, requestId: request.id })),
        );
        await freshness('sessions', ref, outcome.position);
        const { state } = await deps.sessions.load(ref);
        if (state.status === 'absent') throw new Error('a session vanished while it was being opened');
        return stateToResponse(ref, deps.sessions.store.shardOf(ref), state);
      },
    );
    app.get(
      '/v1/sessions/:sessionId',
      { config, schema: { ...docs.getSession, params: wire.sessionPath, response: { 200: wire.session } } },
      async (request) => {
        const caller = callerOf(request);
        const ref = sessionRef(caller, request.params.sessionId);
        return toSessionResponse(ref, await reachableSession(queries, ref, caller));
      },
    );
    app.delete(
      '/v1/sessions/:sessionId',
      { config, schema: { ...docs.deleteSession, params: wire.sessionPath, response: { 200: wire.deleted } } },
      async (request) => {
        const caller = callerOf(request);
        const { sessionId: id } = request.params;
        const ref = sessionRef(caller, id);
        const reach = { outOfReach: (session: Reached) => outOfReach(caller, session) };
        const input = { ref, actor: actorOf(caller), requestId: request.id, ...reach };
        const { position } = accepted(await deleteSession(deps, input));
        await freshness('sessions', ref, position);
        await deps.removeArtifacts(ref, async (of, at) => await freshness('artifacts', of, at));
        return { id, deleted: true as const };
      },
    );
    await app.register(listRoute(deps));
  };
}

function listRoute({ queries, ownWrites, clock }: SessionRouteDeps): FastifyPluginAsyncZod {
  return async (app) => {
    const config = { rules: { access: ACCESS.sessions } };
    app.get(
      '/v1/sessions',
      {
        config,
        schema: { ...docs.listSessions, querystring: wire.sessionListQuery, response: { 200: wire.sessionList } },
      },
      async (request) => {
        const caller = callerOf(request);
        const { limit: _limit, cursor: _cursor, label, ...filter } = request.query;
        // A subject's list is its own, whatever it asks for; another's is as empty as a missing one.
        if (caller.subject !== null && filter.subject !== undefined && filter.subject !== caller.subject) {
          return { sessions: [], nextCursor: null, asOf: timestamp(clock()) };
        }
        const person = caller.subject ?? '';
        const scope = `GET /v1/sessions ${caller.tenantId} ${person} ${canonicalJson({ ...filter, label })}`;
        const list = new ListRequest(scope, request.query, 2);
        const subject = caller.subject ?? filter.subject;
        const wanted = {
          ...filter,
          subject,
          agents: caller.agents,
          labels: label.map(labelOf),
        };
        const asOf = timestamp(await ownWrites.shown(caller.tenantId));
        const found = await queries.list(caller.tenantId, wanted, { limit: list.wanted, after: list.after });
        const { entries, nextCursor } = list.page(found, ({ createdAt, id }) => [createdAt, id]);
        return {
          sessions: entries.map((view) => toSessionResponse(sessionRef(caller, view.id), view)),
          nextCursor,
          asOf,
        };
      },
    );
    await Promise.resolve();
  };
}

export function sessionRef(caller: Caller, id: string): AggregateRef {
  return { tenant: caller.tenantId, kind: 'session', id };
}

function labelOf(text: string): { name: string; value: string } {
  const at = text.indexOf('=');
  return { name: text.slice(0, at), value: text.slice(at + 1) };
}

function openSessionInput(
  caller: Caller,
  ref: AggregateRef,
  request: { body: OpenSessionBody; requestId: string },
): Parameters<typeof openSession>[1] {
  const { requestId = request.requestId, labels = {}, vaultIds = [], ...fixed } = request.body;
  if (caller.subject !== null && fixed.subject !== undefined && fixed.subject !== caller.subject) {
    const issues = [{ path: 'subject', message: 'must be the subject that the request acts for' }];
    throw new ProblemError({
      code: 'invalid_request',
      message: 'The session would belong to another subject.',
      details: { issues },
    });
  }
  requireSandbox(caller, fixed.sandbox);
  const subject = caller.subject ?? fixed.subject ?? null;
  const { agentId, info = {} } = fixed;
  requireAgent(caller, agentId);
  const { sandbox: wanted } = fixed;
  const artifactReach: ArtifactReach = (owner) => artifactOutOfReach(caller, owner);
  const stated = typeof wanted === 'object' ? { sandbox: wanted } : {};
  const bodyHash = sha256Hex(canonicalJson({ agentId, info, subject, ...stated }));
  const sandbox = { wanted, outOfReach: sandboxReach(caller), artifactReach };
  const meta = { actor: actorOf(caller), requestId };
  return { ref, agentId, subject, actsFor: caller.subject, info, labels, vaultIds, sandbox, bodyHash, ...meta };
}

function sandboxReach(caller: Caller): SandboxReach {
  return (sandbox) => sandboxOutOfReach(caller, sandbox);
}

/** @throws ProblemError not_granted when a token's grants do not reach the named sandbox */
function requireSandbox(caller: Caller, wanted: OpenSessionBody['sandbox']): void {
  const refusal = typeof wanted === 'object' && 'id' in wanted ? sandboxGranted(caller, wanted.id) : null;
  if (refusal !== null) throw refused(refusal);
}

/** @throws ProblemError not_found, with the same bytes for a missing session and one out of reach */
export async function reachableSession(
  queries: SessionQueries,
  ref: AggregateRef,
  caller: Caller,
): Promise<SessionView> {
  const view = await queries.get(ref, caller.subject);
  return withinReach(caller, view);
}

/** As `reachableSession`, for a route that does not show the session itself. */
export async function passedSession(
  queries: Pick<SessionQueries, 'reach'>,
  ref: AggregateRef,
  caller: Caller,
): Promise<SessionView> {
  return withinReach(caller, await queries.reach(ref, caller.subject));
}

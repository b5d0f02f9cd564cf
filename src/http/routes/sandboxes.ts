import type { FastifyRequest } from 'fastify';
import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { ACCESS } from '../../auth/authorize.ts';
import { actorOf, sandboxGranted, sandboxOutOfReach } from '../../auth/caller.ts';
import { findSandbox, resetSandbox, stopSandbox } from '../../commands/sandbox/change-sandbox.ts';
import type { FoundSandbox } from '../../commands/sandbox/change-sandbox.ts';
import { openSandbox, removeSandbox } from '../../commands/sandbox/open-sandbox.ts';
import type { SandboxInput } from '../../commands/sandbox/open-sandbox.ts';
import { sandboxRef } from '../../commands/sandbox/deps.ts';
import type { SandboxDeps } from '../../commands/sandbox/deps.ts';
import { LAST_INDEX } from '../../domain/kernel/decision.ts';
import { canonicalJson } from '../../lib/canonical-json.ts';
import type { SandboxQueries } from '../../projections/sandboxes/queries.ts';
import { operations } from '../described.ts';
import type { Freshness } from '../freshness.ts';
import { callerOf } from '../gate.ts';
import { placeOf, refuseEarlier } from '../history-place.ts';
import { ListRequest } from '../list-request.ts';
import { accepted, refused } from '../problem.ts';
import type { EventStreams } from '../sse.ts';
import { toSandboxResponse } from '../wire/sandbox.ts';
import * as wire from '../wire/sandboxes.ts';
import { reachOf } from './artifacts.ts';

const docs = operations('Sandboxes', {
  openSandbox: [
    'Make a sandbox, or get the one that is there',
    'Labels may change; another kind or spec is a conflict. Without a spec, that of the sandbox that is there holds. A tenant has 100 sandboxes at most, those of sessions included; the next is refused with 409.',
  ],
  listSandboxes: [
    'List sandboxes, newest first',
    'A subject sees its own, and those without a subject that its token names. The first page waits, 2 s at most, for what the node that answers has heard of.',
  ],
  getSandbox: ['One sandbox, with the sessions that work in it'],
  stopSandbox: [
    'Suspend a pod',
    'Its volume is kept. A virtual sandbox has nothing to stop (400). With a turn running: 409 sandbox_busy.',
  ],
  resetSandbox: [
    'Take everything out of a sandbox',
    'What its spec names as source is put in again. With a turn running: 409 sandbox_busy.',
  ],
  deleteSandbox: [
    'Delete a sandbox with its files',
    'With a turn running: 409 sandbox_busy. The one that a session was opened with goes with the session.',
  ],
  streamSandboxEvents: [
    'What happens to a sandbox and in it, live',
    'Server-sent events: records of the types sandbox.state and sandbox.exec, resumable by cursor or Last-Event-ID.',
  ],
});

export interface SandboxRouteDeps extends SandboxDeps {
  readonly queries: SandboxQueries;
  readonly freshness: Freshness;
  /** Waits, for a bounded time, until the list shows what this node has heard of, whichever node wrote it. */
  readonly heard: { readonly reached: (tenantId: string) => Promise<unknown> };
}

/** Makes, shows, lists, stops, empties and deletes sandboxes. */
export function sandboxRoutes(deps: SandboxRouteDeps): FastifyPluginAsyncZod {
  return async (app) => {
    const read = { rules: { access: ACCESS.readSandboxes } };
    const write = { rules: { access: ACCESS.writeSandboxes } };
    app.put(
      '/v1/sandboxes/:sandboxId',
      {
        config: write,
        schema: { ...docs.openSandbox, params: wire.sandboxPath, body: wire.openBody, response: { 200: wire.sandbox } },
      },
      async (request) => {
        const caller = callerOf(request);
        const { kind, spec, labels, requestId } = request.body;
        const input = inputOf(request, request.params.sandboxId, requestId);
        const refusal = sandboxGranted(caller, input.sandboxId);
        if (refusal !== null) throw refused(refusal);
        const wanted = { kind, spec, labels, subject: caller.subject, owner: null };
        const outcome = await openSandbox(deps, { ...input, ...wanted, artifactReach: reachOf(caller) });
        return await shown(deps, input, accepted(outcome).position);
      },
    );
    app.get(
      '/v1/sandboxes/:sandboxId',
      { config: read, schema: { ...docs.getSandbox, params: wire.sandboxPath, response: { 200: wire.sandbox } } },
      async (request) => toSandboxResponse((await reachedSandbox(deps, request, request.params.sandboxId)).state),
    );
    app.post(
      '/v1/sandboxes/:sandboxId/stop',
      { config: write, schema: { ...docs.stopSandbox, params: wire.sandboxPath, response: { 200: wire.sandbox } } },
      async (request) => {
        const input = inputOf(request, request.params.sandboxId);
        return await shown(deps, input, accepted(await stopSandbox(deps, input)).position);
      },
    );
    app.post(
      '/v1/sandboxes/:sandboxId/reset',
      { config: write, schema: { ...docs.resetSandbox, params: wire.sandboxPath, response: { 200: wire.sandbox } } },
      async (request) => {
        const input = inputOf(request, request.params.sandboxId);
        const reset = { ...input, artifactReach: reachOf(callerOf(request)) };
        return await shown(deps, input, accepted(await resetSandbox(deps, reset)).position);
      },
    );
    app.delete(
      '/v1/sandboxes/:sandboxId',
      {
        config: write,
        schema: { ...docs.deleteSandbox, params: wire.sandboxPath, response: { 200: wire.sandboxDeleted } },
      },
      async (request) => {
        const { sandboxId: id } = request.params;
        const input = inputOf(request, id);
        const { position } = accepted(await removeSandbox(deps, input));
        await deps.freshness('sandboxes', sandboxRef(input.tenant, id), position);
        return { id, deleted: true as const };
      },
    );
    await app.register(listRoute(deps));
  };
}

function listRoute({ queries, heard }: SandboxRouteDeps): FastifyPluginAsyncZod {
  return async (app) => {
    app.get(
      '/v1/sandboxes',
      {
        config: { rules: { access: ACCESS.readSandboxes } },
        schema: { ...docs.listSandboxes, querystring: wire.listQuery, response: { 200: wire.sandboxList } },
      },
      async (request) => {
        const { tenantId, subject, sandboxes: granted } = callerOf(request);
        const { label, state } = request.query;
        const scope = `GET /v1/sandboxes ${tenantId} ${subject ?? ''} ${canonicalJson({ label, state })}`;
        const list = new ListRequest(scope, request.query, 2);
        const filter = { state, labels: label.map(labelOf), subject, granted };
        if (list.after === null) await heard.reached(tenantId);
        const found = await queries.list(tenantId, filter, { limit: list.wanted, after: list.after });
        const { entries, nextCursor } = list.page(found, ({ createdAt, sandboxId }) => [createdAt, sandboxId]);
        return { sandboxes: entries.map(toSandboxResponse), nextCursor };
      },
    );
    await Promise.resolve();
  };
}

/** What happened to and in a sandbox, live, like the stream of a session. */
export function sandboxEventRoutes(deps: SandboxDeps, streams: EventStreams): FastifyPluginAsyncZod {
  return async (app) => {
    app.get(
      '/v1/sandboxes/:sandboxId/events',
      {
        config: { rules: { access: ACCESS.readSandboxes }, sends: 'records' },
        schema: { ...docs.streamSandboxEvents, params: wire.sandboxPath, querystring: wire.eventsQuery },
      },
      async (request, reply) => {
        const caller = callerOf(request);
        const { sandboxId } = request.params;
        const ref = sandboxRef(caller.tenantId, sandboxId);
        const { cursor = lastEventId(request.headers['last-event-id']) } = request.query;
        const place = cursor === undefined || cursor === 'latest' ? null : placeOf(ref, cursor);
        const { state: session } = await reachedSandbox(deps, request, sandboxId);
        if (place !== null) refuseEarlier(place, session);
        const { position } = await deps.sandboxes.load(ref);
        const latest = { shard: deps.sandboxes.store.shardOf(ref), position, index: LAST_INDEX };
        const after = cursor === 'latest' ? latest : place;
        // Its creation is a record too.
        const whole = { createdPosition: session.createdPosition - 1 };
        streams.open(request, reply, { caller, ref, session: whole, after, agent: null, previews: false });
      },
    );
    await Promise.resolve();
  };
}

function lastEventId(header: string | string[] | undefined): string | undefined {
  return header === undefined || header === '' ? undefined : String(header);
}

/** @throws ProblemError not_found, with the same bytes for a missing one and one out of reach; not_granted */
export async function reachedSandbox(
  deps: Pick<SandboxDeps, 'sandboxes'>,
  request: FastifyRequest,
  sandboxId: string,
): Promise<FoundSandbox> {
  return accepted(await findSandbox(deps, inputOf(request, sandboxId)));
}

/** Who does what to which sandbox. */
export function inputOf(request: FastifyRequest, sandboxId: string, requestId?: string): SandboxInput {
  const caller = callerOf(request);
  const outOfReach = (sandbox: Parameters<typeof sandboxOutOfReach>[1]) => sandboxOutOfReach(caller, sandbox);
  return { tenant: caller.tenantId, sandboxId, outOfReach, actor: actorOf(caller), causation: requestId ?? request.id };
}

async function shown(deps: SandboxRouteDeps, { tenant, sandboxId }: SandboxInput, position: number | null) {
  const ref = sandboxRef(tenant, sandboxId);
  await deps.freshness('sandboxes', ref, position);
  const { state } = await deps.sandboxes.load(ref);
  if (state.status === 'absent') throw new Error('a sandbox vanished while it was being changed');
  return toSandboxResponse(state);
}

function labelOf(text: string): { name: string; value: string } {
  const at = text.indexOf('=');
  return { name: text.slice(0, at), value: text.slice(at + 1) };
}

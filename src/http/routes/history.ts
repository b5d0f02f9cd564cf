import type { FastifyReply } from 'fastify';
import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { ACCESS } from '../../auth/authorize.ts';
import { optional } from '../../domain/kernel/optional.ts';
import type { SessionQueries } from '../../projections/sessions/queries.ts';
import { readThrough } from '../../projections/forks/queries.ts';
import type { ModelCallView } from '../../projections/sessions/views.ts';
import { encodeCursor } from '../../streams/cursor.ts';
import { operations } from '../described.ts';
import { callerOf } from '../gate.ts';
import { placeOf, refuseEarlier } from '../history-place.ts';
import { ListRequest } from '../list-request.ts';
import type { EventStreams } from '../sse.ts';
import { recordText } from '../wire/records.ts';
import * as wire from '../wire/schemas.ts';
import { passedSession, sessionRef } from './sessions.ts';
import type { SessionAccess } from '../session-access.ts';

const docs = operations('Sessions', {
  listItems: [
    'The history, in pages',
    'The cursor is exclusive. Every event acknowledged before the request is there.',
  ],
  streamEvents: [
    'The history, live',
    'The records after `cursor`, or after Last-Event-ID, else from the beginning, and then each new one; `cursor=latest` begins now. A clean end says nothing but that this node stops or the credential has changed: resume on any node.',
  ],
  listModelCalls: ['The ledger of model calls, oldest first', 'No subject may read it.'],
});

export interface HistoryRouteDeps {
  readonly queries: SessionQueries;
  readonly access: SessionAccess;
  readonly streams: EventStreams;
}

/** The canonical history as pages and as a live stream, and the ledger of model calls. */
export function historyRoutes({ queries, access, streams }: HistoryRouteDeps): FastifyPluginAsyncZod {
  return async (app) => {
    const config = { rules: { access: ACCESS.sessions } };
    app.get(
      '/v1/sessions/:sessionId/items',
      {
        config,
        schema: {
          ...docs.listItems,
          params: wire.sessionPath,
          querystring: wire.itemsQuery,
          response: { 200: wire.items },
        },
      },
      async (request, reply) => {
        const caller = callerOf(request);
        const ref = sessionRef(caller, request.params.sessionId);
        const { cursor, limit, agent = null, order } = request.query;
        const from = cursor === undefined ? null : placeOf(ref, cursor);
        const view = await passedSession(queries, ref, caller);
        if (from !== null) refuseEarlier(from, view);
        const page = await readThrough(queries, { ref, session: view }, { order, limit, from, agent });
        const end = page.examined === null ? (cursor ?? null) : encodeCursor(ref, page.examined);
        const items = page.records.map((record) => recordText(ref, record).text).join(',');
        return await sendText(
          reply,
          `{"items":[${items}],"cursor":${JSON.stringify(end)},"hasMore":${String(page.hasMore)}}`,
        );
      },
    );
    app.get(
      '/v1/sessions/:sessionId/events',
      {
        config: { ...config, sends: 'records' },
        schema: { ...docs.streamEvents, params: wire.sessionPath, querystring: wire.eventsQuery },
      },
      async (request, reply) => {
        const caller = callerOf(request);
        const ref = sessionRef(caller, request.params.sessionId);
        const { cursor = lastEventId(request.headers['last-event-id']), agent = null, previews } = request.query;
        const place = cursor === undefined || cursor === 'latest' ? null : placeOf(ref, cursor);
        const session = await access(ref, caller);
        if (place !== null) refuseEarlier(place, session);
        const after = cursor === 'latest' ? session.latest() : place;
        streams.open(request, reply, { caller, ref, session, after, agent, previews: previews === 'true' });
      },
    );
    await app.register(ledgerRoute(queries));
  };
}

function ledgerRoute(queries: SessionQueries): FastifyPluginAsyncZod {
  return async (app) => {
    app.get(
      '/v1/sessions/:sessionId/calls/model',
      {
        config: { rules: { access: ACCESS.modelCalls } },
        schema: {
          ...docs.listModelCalls,
          params: wire.sessionPath,
          querystring: wire.callsQuery,
          response: { 200: wire.calls },
        },
      },
      async (request) => {
        const caller = callerOf(request);
        const ref = sessionRef(caller, request.params.sessionId);
        const { turnId = null } = request.query;
        const view = await passedSession(queries, ref, caller);
        const scope = `calls/model ${ref.tenant} ${ref.id} ${view.createdPosition} ${turnId ?? ''}`;
        const list = new ListRequest(scope, request.query, 2);
        const { calls, asOf } = await queries.calls(ref, { limit: list.wanted, turnId, after: list.afterPlace });
        const { entries, nextCursor } = list.page(calls, (call) => [String(call.position), String(call.index)]);
        return { calls: entries.map(toCallResponse), nextCursor, asOf };
      },
    );
    await Promise.resolve();
  };
}

/** The records are JSON text already: parsing and rewriting them would be most of the work of a page. */
async function sendText(reply: Pick<FastifyReply, 'type'>, text: string): Promise<FastifyReply> {
  return await reply.type('application/json; charset=utf-8').send(text);
}

type CallResponse = Omit<ModelCallView, 'position' | 'index' | 'outcome' | 'attempt'> & {
  readonly attempt: number;
  readonly outcome: 'completed' | 'failed' | 'cancelled' | 'lost';
};

/** Members in the documented order: jsonb keeps none. */
function toCallResponse({ outcome, usage, ...call }: ModelCallView): CallResponse {
  if (outcome === 'pending' || outcome === 'withheld') throw new Error('the ledger shows calls that have ended only');
  const { id, sessionId, turnId, agentId, provider, model, at, attempt = 1 } = call;
  const { finishReason, latencyMs, firstTokenMs } = call;
  const figures = optional({ finishReason, latencyMs, firstTokenMs });
  return { id, sessionId, turnId, agentId, provider, model, at, outcome, attempt, ...figures, usage };
}

function lastEventId(header: string | string[] | undefined): string | undefined {
  return header === undefined || header === '' ? undefined : String(header);
}

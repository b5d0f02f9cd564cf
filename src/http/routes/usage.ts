import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { ACCESS } from '../../auth/authorize.ts';
import { timestamp } from '../../lib/clock.ts';
import type { Clock } from '../../lib/clock.ts';
import type { SessionQueries } from '../../projections/sessions/queries.ts';
import type { WholeUsageQueries } from '../../projections/usage/queries.ts';
import { operations } from '../described.ts';
import { callerOf } from '../gate.ts';
import { ListRequest } from '../list-request.ts';
import { ProblemError } from '../problem.ts';
import { sessionPath } from '../wire/schemas.ts';
import * as wire from '../wire/usage.ts';
import { passedSession, sessionRef } from './sessions.ts';

const docs = operations('Sessions', {
  getSessionUsage: [
    'What the model calls of a session, or of one turn, used, and its calls of sandboxes took',
    'Every call of the ledger counts once: failed, cancelled and lost ones with what they reported, repeated ones too (`duplicates` says how many). `tokensReported` and `costKnown` are true when they are of all calls that could have used anything. `sandboxSeconds` is the time from the beginning of each call of a sandbox to its end, `sandboxCpuSeconds` what its processes took of it. No subject may read it.',
  ],
});

const tenantDocs = operations('Model calls', {
  getTenantUsage: [
    'What model calls used and calls of sandboxes took, by agent, model, session or day',
    'Calls requested from `from` on and before `to` (RFC 3339; at most 400 days; without them the last 30 days, today with them). A group has the key of its agent (an agent used as a tool has its own), its model as `provider/model`, its session, or its day in UTC; groups come in the order of their keys, `total` is of all of them. Model calls of sessions that were deleted are not in it; the time of sandboxes is, and has no group by model.',
  ],
});

export interface UsageRouteDeps {
  readonly queries: SessionQueries;
  readonly usage: WholeUsageQueries;
  readonly clock: Clock;
}

const DAY_MS = 86_400_000;
const DEFAULT_DAYS = 30;

/** What model calls used, summed over the ledger. */
export function usageRoutes({ queries, usage, clock }: UsageRouteDeps): FastifyPluginAsyncZod {
  return async (app) => {
    app.get(
      '/v1/sessions/:sessionId/usage',
      {
        config: { rules: { access: ACCESS.modelCalls } },
        schema: {
          ...docs.getSessionUsage,
          params: sessionPath,
          querystring: wire.sessionUsageQuery,
          response: { 200: wire.sessionUsage },
        },
      },
      async (request) => {
        const caller = callerOf(request);
        const ref = sessionRef(caller, request.params.sessionId);
        const { createdAt } = await passedSession(queries, ref, caller);
        const now = clock();
        const { completeTo, ...total } = await usage.session(ref, request.query.turnId ?? null, createdAt);
        return { ...total, asOf: timestamp(completeTo ?? now) };
      },
    );
    app.get(
      '/v1/tenant/usage',
      {
        config: { rules: { access: ACCESS.tenant } },
        schema: {
          ...tenantDocs.getTenantUsage,
          querystring: wire.tenantUsageQuery,
          response: { 200: wire.tenantUsage },
        },
      },
      async (request) => {
        const { tenantId } = callerOf(request);
        const { groupBy } = request.query;
        const { from, to } = rangeOf(request.query, clock());
        const scope = `tenant/usage ${tenantId} ${request.query.from ?? ''} ${request.query.to ?? ''} ${groupBy}`;
        const list = new ListRequest(scope, request.query, 1);
        const now = clock();
        const range = { from, to, groupBy, limit: list.wanted, after: list.after?.[0] ?? null };
        const report = await usage.tenant(tenantId, range);
        const { entries: groups, nextCursor } = list.page(report.groups, ({ key }) => [key]);
        return { from, to, groups, total: report.total, nextCursor, asOf: timestamp(report.completeTo ?? now) };
      },
    );
    await Promise.resolve();
  };
}

/**
 * Without `to`, up to the end of today in UTC, so that a call made now is included, whichever node's clock wrote it.
 * @throws ProblemError invalid_request
 */
function rangeOf(query: { readonly from?: string | undefined; readonly to?: string | undefined }, nowMs: number) {
  const to = query.to ?? timestamp((Math.floor(nowMs / DAY_MS) + 1) * DAY_MS);
  const from = query.from ?? timestamp(Math.max(0, Date.parse(to) - DEFAULT_DAYS * DAY_MS));
  const spanMs = Date.parse(to) - Date.parse(from);
  if (spanMs <= 0) throw badRange('from', 'has to be before "to"');
  if (spanMs > wire.USAGE_DAYS_MAX * DAY_MS)
    throw badRange('to', `is more than ${wire.USAGE_DAYS_MAX} days after "from"`);
  return { from, to };
}

function badRange(path: string, message: string): ProblemError {
  const whole = 'The time from "from" to "to" is not a range that can be asked for.';
  return new ProblemError({ code: 'invalid_request', message: whole, details: { issues: [{ path, message }] } });
}

import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { ACCESS } from '../../auth/authorize.ts';
import type { Caller } from '../../auth/caller.ts';
import { canonicalJson } from '../../lib/canonical-json.ts';
import type { ActionIndex, InteractionFilter } from '../../projections/actions/queries.ts';
import type { InteractionView } from '../../projections/actions/views.ts';
import { operations } from '../described.ts';
import { callerOf } from '../gate.ts';
import { ListRequest } from '../list-request.ts';
import * as wire from '../wire/interactions.ts';
import type { ShownInteraction } from '../wire/interactions.ts';
import { optional } from '../../domain/kernel/optional.ts';

const docs = operations('Sessions', {
  listInteractions: [
    'What people have to answer, over all sessions, oldest first',
    'Approvals and questions that are open. A subject sees those of its own sessions; a management key sees questions about budgets only.',
  ],
});

export interface InteractionRouteDeps {
  readonly actions: ActionIndex;
  /** Resolves when the read models have what the log held before, or when that takes too long. */
  readonly caughtUp: () => Promise<void>;
}

/** What people have to answer, over all sessions: oldest first. */
export function interactionRoutes({ actions, caughtUp }: InteractionRouteDeps): FastifyPluginAsyncZod {
  return async (app) => {
    const config = { rules: { access: ACCESS.interactions } };
    app.get(
      '/v1/interactions',
      {
        config,
        schema: {
          ...docs.listInteractions,
          querystring: wire.interactionsQuery,
          response: { 200: wire.interactionList },
        },
      },
      async (request) => {
        const caller = callerOf(request);
        const { limit: _limit, cursor: _cursor, ...filter } = request.query;
        const scope = `GET /v1/interactions ${caller.tenantId} ${caller.subject ?? ''} ${canonicalJson(filter)}`;
        const list = new ListRequest(scope, request.query, 2);
        // A subject's list is its own, whatever it asks for; another's is as empty as a missing one.
        if (caller.subject !== null && filter.subject !== undefined && filter.subject !== caller.subject) {
          return { interactions: [], nextCursor: null };
        }
        const wanted: InteractionFilter = {
          agentId: filter.agentId,
          subject: caller.subject ?? filter.subject,
          agents: caller.agents,
          budgets: budgetsFor(caller),
        };
        await caughtUp();
        const found = await actions.interactions(caller.tenantId, wanted, { limit: list.wanted, after: list.after });
        const { entries, nextCursor } = list.page(found, ({ createdAt, interactionId }) => [createdAt, interactionId]);
        return { interactions: entries.map(toInteractionResponse), nextCursor };
      },
    );
    await Promise.resolve();
  };
}

/** Budgets are the tenant's business: people do not see the question, and a management key sees nothing else. */
function budgetsFor({ kind, subject }: Caller): InteractionFilter['budgets'] {
  if (kind === 'management') return 'only';
  return subject === null ? 'too' : 'none';
}

/** Members in the documented order: jsonb keeps none. */
function toInteractionResponse(view: InteractionView): ShownInteraction {
  const { interactionId, kind, sessionId, turnId, agentId, subject, createdAt } = view;
  const { prompt, toolName, input, schema, budgetId, actionId, agent } = view;
  const { server, vaultId, credentialId, url } = view;
  return {
    ...{ interactionId, kind, sessionId, turnId, agentId, subject },
    ...optional({ prompt, toolName, input, schema: schema && { ...schema } }),
    createdAt,
    ...optional({ actionId, budgetId, server, vaultId, credentialId, url, agent }),
  };
}

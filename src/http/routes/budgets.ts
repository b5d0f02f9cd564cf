import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { ACCESS } from '../../auth/authorize.ts';
import { readBudgets, saveBudgets } from '../../commands/tenant/budgets.ts';
import type { SaveBudgetDeps } from '../../commands/tenant/budgets.ts';
import { readTenant } from '../../commands/tenant/manage-tenant.ts';
import type { BudgetDefinition } from '../../domain/budget/events.ts';
import type { BudgetState, BudgetWithSpend } from '../../domain/budget/state.ts';
import { timestamp } from '../../lib/clock.ts';
import { operations } from '../described.ts';
import type { Freshness } from '../freshness.ts';
import { callerOf } from '../gate.ts';
import { accepted, notFound, ProblemError } from '../problem.ts';
import { manageInput } from '../tenant-input.ts';
import * as wire from '../wire/budgets.ts';

const docs = operations('Model calls', {
  listBudgets: ['Budgets, with what is spent of them in the present period'],
  saveBudgets: [
    'Set what model calls may cost',
    'Replaces the list. A call that would pass a budget, counting those under way on all nodes, pauses its turn with a question (`budgetId`) that an application or management key answers with `respond`: `{ raise: { limitUsd?, limitTokens? } }` or `{ raise: false }`. A call is expected to cost what the one before it cost, else the average. A budget that begins has spent what the ledger has of its period; calls that are under way at that moment count when they end.',
  ],
});

export interface BudgetRouteDeps extends SaveBudgetDeps {
  readonly freshness: Freshness;
  /** What a budget has spent in the period that `at` is in, and in no other. */
  readonly shown: (state: BudgetState, at: string) => readonly BudgetWithSpend[];
}

type BudgetToSave = Omit<BudgetDefinition, 'id'> & { readonly id?: string | undefined };

/** What model calls may cost. */
export function budgetRoutes(deps: BudgetRouteDeps): FastifyPluginAsyncZod {
  const show = async (tenantId: string): Promise<{ budgets: BudgetWithSpend[] }> => ({
    budgets: [...deps.shown(await readBudgets(deps, tenantId), timestamp(deps.clock()))],
  });
  return async (app) => {
    const config = { rules: { access: ACCESS.tenant } };
    app.get(
      '/v1/tenant/budgets',
      { config, schema: { ...docs.listBudgets, response: { 200: wire.budgetList } } },
      async (request) => {
        const { tenantId } = callerOf(request);
        if ((await readTenant(deps, tenantId)) === null) throw notFound('tenant');
        return await show(tenantId);
      },
    );
    app.put(
      '/v1/tenant/budgets',
      { config, schema: { ...docs.saveBudgets, body: wire.saveBudgetsBody, response: { 200: wire.budgetList } } },
      async (request) => {
        const budgets = withIds(request.body.budgets);
        const input = { ...manageInput(request, request.body.requestId), budgets };
        const { tenant, position } = accepted(await saveBudgets(deps, input));
        await deps.freshness('tenants', { tenant: tenant.id, kind: 'tenant', id: tenant.id }, position);
        return await show(tenant.id);
      },
    );
    await Promise.resolve();
  };
}

/** A budget without an id is named by what it covers, so that the same list gives the same budgets. */
function withIds(budgets: readonly BudgetToSave[]): BudgetDefinition[] {
  const named = budgets.map((budget) => {
    const { id, scope, period, agentId, sessionId } = budget;
    return {
      ...budget,
      id: id ?? [scope, agentId ?? sessionId, period].filter((part) => part !== undefined).join('.'),
    };
  });
  const twice = named.find(({ id }, at) => named.findIndex((other) => other.id === id) !== at);
  if (twice === undefined) return named;
  const issues = [{ path: 'budgets', message: `two budgets have the id ${twice.id}; give them ids of their own` }];
  throw new ProblemError({ code: 'invalid_request', message: 'Budgets need different ids.', details: { issues } });
}

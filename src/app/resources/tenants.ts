import { budgetsWithSpend } from '../../domain/budget/state.ts';
import { adminRoutes } from '../../http/routes/admin.ts';
import { budgetRoutes } from '../../http/routes/budgets.ts';
import { issuerRoutes } from '../../http/routes/issuers.ts';
import { keyRoutes } from '../../http/routes/keys.ts';
import { modelRoutes } from '../../http/routes/model.ts';
import { tenantRoutes } from '../../http/routes/tenant.ts';
import type { TenantRouteDeps } from '../../http/routes/tenant.ts';
import { sandboxQueries } from '../../projections/sandboxes/queries.ts';
import { modelCatalog } from '../models.ts';
import type { Node, ServedRoutes } from '../node.ts';
import { tenantDeletion } from '../tenant-deletion.ts';

/** Tenants as the Host admin makes and deletes them; a projector finishes begun deletions. */
export function adminResource(node: Node): readonly ServedRoutes[] {
  const { options, log, pool, directory, progress, write, artifacts, queries, freshness, answers } = node;
  const { metrics, stack } = node;
  const { objects } = artifacts.routes;
  const { reads, heard } = node;
  const { deletion, remove } = tenantDeletion({
    ...{
      log,
      pool,
      directory,
      progress,
      queries: queries.sessions,
      objects,
      clock: options.clock,
      logger: options.logger,
    },
    onRound: metrics.onRound,
    ...write,
  });
  if (options.config.roles.includes('projector')) deletion.start();
  stack.defer('tenant deletion', async () => await deletion.stop());
  const { loop, tenants } = write;
  const { publish, idOf, prepare } = answers;
  const create = { loop, tenants, adminKey: options.adminKey, publish, idOf, prepare };
  const sandboxesOf = async (tenantId: string): Promise<number> => {
    await heard.sandboxes.reached(tenantId);
    return await sandboxQueries(reads.sandboxes).count(tenantId);
  };
  const routes = adminRoutes({
    ...{ create, remove, queries: queries.tenants, artifactUse: artifacts.use, sandboxesOf, freshness },
  });
  return [{ role: null, routes }];
}

/** A tenant's own status, and its keys, issuers, models and budgets. */
export function tenantResource(node: Node): readonly ServedRoutes[] {
  const { options, log, write, artifacts, registry, queries, freshness, answers, checks } = node;
  const { config } = options;
  const { loop, tenants, budgets } = write;
  const { publish } = answers;
  const deps: TenantRouteDeps = {
    ...{ loop, tenants, publish, queries: queries.tenants, freshness, checks, artifactUse: artifacts.use },
    ...{ fixtureModel: config.fixtureModel, egress: config.egress, secrets: log.secrets, catalog: modelCatalog },
    isNew: registry.isNewToSome,
    limits: { bodyBytes: config.bodyBytesMax, streams: config.stream.perTenantMax },
  };
  const ledger = queries.usage.ledger.bind(queries.usage);
  return [
    { role: null, routes: tenantRoutes(deps) },
    { role: null, routes: keyRoutes(deps) },
    { role: null, routes: issuerRoutes(deps) },
    { role: null, routes: modelRoutes(deps) },
    {
      role: null,
      routes: budgetRoutes({
        ...{ loop, tenants, budgets, publish, freshness, ledger },
        ...{ shown: budgetsWithSpend, clock: options.clock },
      }),
    },
  ];
}

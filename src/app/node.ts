import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import type { Freshness } from '../http/freshness.ts';
import type { Checks } from '../http/routes/host.ts';
import type { EventStreams } from '../http/sse.ts';
import { coalesced } from '../lib/coalesced.ts';
import type { Stack } from '../lib/stack.ts';
import type { SessionQueries } from '../projections/sessions/queries.ts';
import { sessionQueries } from '../projections/sessions/queries.ts';
import type { TenantQueries } from '../projections/tenants/queries.ts';
import { tenantQueries } from '../projections/tenants/queries.ts';
import { wholeUsageQueries } from '../projections/usage/queries.ts';
import type { UsageQueries, WholeUsageQueries } from '../projections/usage/queries.ts';
import type { VaultQueries } from '../projections/vaults/queries.ts';
import { vaultQueries } from '../projections/vaults/queries.ts';
import { readiness } from './checks.ts';
import { answersOf } from './directory-answers.ts';
import type { Engine } from './engine.ts';
import { openExecutorWork } from './executor-work.ts';
import type { ExecutorWork } from './executor-work.ts';
import { freshnessOf } from './read-models.ts';
import type { Services } from './services.ts';
import { sandboxUsageOf, usageOf } from './usage.ts';

/** `/ready` needs no credential: however often it is asked, the dependencies are asked once in this time. */
const CHECKS_KEPT_MS = 1_000;

/** A node that runs: what its resources take from it. */
export interface Node extends Services {
  readonly engine: Engine;
  readonly streams: EventStreams;
  /** It is about to stop, and balancers should send requests elsewhere. */
  readonly isLeaving: () => boolean;
  readonly stack: Stack;
  /** For sessions, tenants, usage and vaults, used by several resources. */
  readonly queries: {
    readonly sessions: SessionQueries;
    readonly tenants: TenantQueries;
    readonly usage: UsageQueries;
    readonly wholeUsage: WholeUsageQueries;
    readonly vaults: VaultQueries;
  };
  readonly freshness: Freshness;
  readonly checks: () => Promise<Checks>;
  readonly answers: ReturnType<typeof answersOf>;
  readonly work: ExecutorWork;
}

/** A group of routes, and the role of the nodes that serve it; null: every node does. */
export interface ServedRoutes {
  readonly role: 'commands' | 'reads' | null;
  readonly routes: FastifyPluginAsyncZod;
}

type Running = Pick<Node, 'engine' | 'streams' | 'isLeaving' | 'stack'>;

/** Adds to the services what several resources are made from. */
export async function openNode(services: Services, running: Running): Promise<Node> {
  const { options, log, pool, reads, directory, progress, artifacts } = services;
  const tenants = tenantQueries(reads.tenants);
  const counts: TenantQueries['counts'] = async (tenantId) => {
    await services.ownWrites.reached(tenantId);
    return await tenants.counts(tenantId);
  };
  const sessions = sessionQueries({ ...reads.sessions, store: log.store, progress, clock: options.clock });
  const usage = usageOf(services);
  const checks = coalesced(CHECKS_KEPT_MS, async () => {
    return await readiness({
      ...{ pool, source: log.source, objects: artifacts.routes.objects, streams: log.ping },
      down: options.down,
      engine: async () => await running.engine.check(),
    });
  });
  return {
    ...{ ...services, ...running, checks },
    queries: {
      sessions,
      tenants: { ...tenants, counts },
      usage,
      wholeUsage: wholeUsageQueries(usage, sandboxUsageOf(services)),
      vaults: vaultQueries(reads.vaults),
    },
    freshness: freshnessOf(services),
    answers: answersOf(log.keyring, directory, options.config),
    work: await openExecutorWork(services, running.stack),
  };
}

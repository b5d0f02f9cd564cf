import { agentRoutes } from '../../http/routes/agents.ts';
import { agentQueries } from '../../projections/agents/queries.ts';
import type { Node, ServedRoutes } from '../node.ts';

/** Agents and their versions. */
export function agentResource({ options, write, reads, freshness, registry }: Node): readonly ServedRoutes[] {
  const { loop, agents } = write;
  const { egress } = options.config;
  const queries = agentQueries(reads.agents);
  return [
    { role: null, routes: agentRoutes({ loop, agents, isNew: registry.isNewToSome, queries, egress, freshness }) },
  ];
}

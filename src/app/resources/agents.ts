import { agentRoutes } from '../../http/routes/agents.ts';
import { agentQueries } from '../../projections/agents/queries.ts';
import type { Node, ServedRoutes } from '../node.ts';

/** Agents and their versions. */
export function agentResource({ options, write, reads, freshness, registry }: Node): readonly ServedRoutes[] {
  const { loop, agents } = write;
  const mcpIsNew = (): boolean => registry.isNewToSome('mcp');
  const { egress } = options.config;
  const queries = agentQueries(reads.agents);
  return [{ role: null, routes: agentRoutes({ loop, agents, mcpIsNew, queries, egress, freshness }) }];
}

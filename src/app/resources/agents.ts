import { agentRoutes } from '../../http/routes/agents.ts';
import { agentQueries } from '../../projections/agents/queries.ts';
import type { Node, ServedRoutes } from '../node.ts';

/** Agents and their versions. */
export function agentResource({ write, reads, freshness }: Node): readonly ServedRoutes[] {
  const { loop, agents } = write;
  return [{ role: null, routes: agentRoutes({ loop, agents, queries: agentQueries(reads.agents), freshness }) }];
}

import { commandRoutes } from '../../http/routes/commands.ts';
import { forkRoutes } from '../../http/routes/forks.ts';
import { historyRoutes } from '../../http/routes/history.ts';
import { sessionRoutes } from '../../http/routes/sessions.ts';
import { usageRoutes } from '../../http/routes/usage.ts';
import type { Node, ServedRoutes } from '../node.ts';
import { streamAccess } from '../stream-access.ts';

/** Sessions, the commands that are sent to them, and their forks. */
export function sessionResource(node: Node): readonly ServedRoutes[] {
  const { write, artifacts, queries, freshness, ownWrites, answers, engine, registry } = node;
  const sandboxes = node.sandboxes.ofSessions;
  const { loop, tenants, agents, sessions, budgets, receipts: older } = write;
  const removeArtifacts = artifacts.removeOf;
  const { publish, isDraining, tenantModel } = answers;
  const isNew = registry.isNewToSome;
  const commands = {
    ...{ loop, tenants, publish, agents, sessions, artifacts: write.artifacts, budgets, older },
    results: artifacts.routes,
    ...{ isDraining, tenantModel, isNew, runner: engine.runner, clock: node.options.clock },
    egress: node.options.config.egress,
  };
  const opened = {
    ...{ loop, agents, sessions, queries: queries.sessions, freshness, ownWrites, removeArtifacts },
    ...{ vaults: write.vaults, isNew, sandboxes, clock: node.options.clock },
  };
  return [
    { role: null, routes: sessionRoutes(opened) },
    { role: 'commands', routes: commandRoutes(commands) },
    { role: 'commands', routes: forkRoutes({ loop, sessions, older, freshness, sandboxes }) },
  ];
}

/** What sessions have recorded: as pages, as streams, and as sums. */
export function historyResource({ options, write, queries, streams }: Node): readonly ServedRoutes[] {
  const access = streamAccess(write.sessions);
  return [
    { role: 'reads', routes: historyRoutes({ queries: queries.sessions, access, streams }) },
    {
      role: 'reads',
      routes: usageRoutes({ queries: queries.sessions, usage: queries.wholeUsage, clock: options.clock }),
    },
  ];
}

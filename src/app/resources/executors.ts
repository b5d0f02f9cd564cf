import { actionRoutes, claimRoutes } from '../../http/routes/actions.ts';
import { executorRoutes } from '../../http/routes/executors.ts';
import { interactionRoutes } from '../../http/routes/interactions.ts';
import type { Node, ServedRoutes } from '../node.ts';
import { caughtUpOf } from '../read-models.ts';

/** Executors as the application registers them. */
export function executorResource({ write, freshness, presence, answers }: Node): readonly ServedRoutes[] {
  const { loop, tenants, agents } = write;
  const { publish } = answers;
  return [{ role: null, routes: executorRoutes({ loop, tenants, agents, publish, freshness, presence }) }];
}

/** Actions as executors find, take and keep them, and what people have to answer. */
export function actionResource(node: Node): readonly ServedRoutes[] {
  const { write, presence, streams } = node;
  const { index: actions, open, places, holding, claims, work } = node.work;
  return [
    { role: 'commands', routes: claimRoutes({ ...holding, claims }) },
    { role: 'reads', routes: interactionRoutes({ actions, caughtUp: caughtUpOf(node) }) },
    { role: 'reads', routes: actionRoutes({ streams, presence, sessions: write.sessions, open, places, work }) },
  ];
}

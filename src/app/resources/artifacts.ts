import { artifactUseRoutes } from '../../http/routes/artifact-use.ts';
import { artifactRoutes } from '../../http/routes/artifacts.ts';
import { uploadRoutes } from '../../http/routes/uploads.ts';
import type { Node, ServedRoutes } from '../node.ts';
import { caughtUpOf } from '../read-models.ts';

/** Files and folders, how they come in, and how much of them a tenant has. */
export function artifactResource(node: Node): readonly ServedRoutes[] {
  const { artifacts, queries, freshness, heard } = node;
  const deps = {
    ...artifacts.routes,
    sessionQueries: queries.sessions,
    freshness,
    heard: heard.artifacts,
    caughtUp: caughtUpOf(node),
  };
  return [
    { role: null, routes: artifactUseRoutes(deps) },
    { role: 'reads', routes: artifactRoutes(deps) },
    { role: 'commands', routes: uploadRoutes(deps) },
  ];
}

import { artifactUseRoutes } from '../../http/routes/artifact-use.ts';
import { artifactRoutes } from '../../http/routes/artifacts.ts';
import { uploadRoutes } from '../../http/routes/uploads.ts';
import type { Node, ServedRoutes } from '../node.ts';

/** Files and folders, how they come in, and how much of them a tenant has. */
export function artifactResource({ artifacts, queries, freshness, heard }: Node): readonly ServedRoutes[] {
  const deps = { ...artifacts.routes, sessionQueries: queries.sessions, freshness, heard: heard.artifacts };
  return [
    { role: null, routes: artifactUseRoutes(deps) },
    { role: 'reads', routes: artifactRoutes(deps) },
    { role: 'commands', routes: uploadRoutes(deps) },
  ];
}

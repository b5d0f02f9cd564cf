import { sandboxToolsOf } from '../../agent/manifest.ts';
import type { Manifest } from '../../agent/manifest.ts';

/** The names that a manifest itself gives to tools. */
export function declaredNames(manifest: Manifest): string[] {
  const { tools = [], agents = [] } = manifest;
  return [...tools.map(({ name }) => name), ...agents.map(({ agentId }) => agentId), ...sandboxToolsOf(manifest)];
}

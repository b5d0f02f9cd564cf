/** Owners of workspaces in the object store begin like this. */
export const WORKSPACE_PREFIX = 'ws_';

/**
 * The change that wrote an object of a workspace (`<workspace>/<change>-<rest>`): it is recorded, and with it all that it wrote
 * is named; or it never will be. Null: the object is no workspace's.
 */
export function changeOf(object: string): string | null {
  return /^(ws_[0-9a-z]+\/wo_[0-9a-z]+)-/.exec(object)?.[1] ?? null;
}

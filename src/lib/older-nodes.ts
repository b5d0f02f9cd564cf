/** The request would be recorded in a way that a node of the previous version, still running, does not know. */
export class OlderNodesError extends Error {}

/** @param isNew whether some node does not know it. @throws OlderNodesError */
export function requireKnown<T>(isNew: (what: T) => boolean, needs: readonly T[]): void {
  if (needs.some((what) => isNew(what))) throw new OlderNodesError();
}

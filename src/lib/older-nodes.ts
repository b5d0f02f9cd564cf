/** The request would be recorded in a way that a node of the previous version, still running, does not know. */
export class OlderNodesError extends Error {}

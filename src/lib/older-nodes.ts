/** What was asked for would be recorded in a way that a node of the version before, which is still there, does not know. */
export class OlderNodesError extends Error {}

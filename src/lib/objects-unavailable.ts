/**
 * The object store cannot be reached, is full, or did not do what it was asked. A write that ended like this has left
 * nothing that a reader could see.
 */
export class ObjectsUnavailableError extends Error {}

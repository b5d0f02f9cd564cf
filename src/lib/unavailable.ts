/** What the Host works with and cannot always reach. */
export type Dependency = 'streams' | 'database' | 'objects' | 'issuer' | 'sandboxes';

/**
 * A dependency cannot be reached, is full, is behind, or has not done what was asked; a later retry may work.
 * - `streams`: the log. An append that ends like this may have been recorded or not.
 * - `database`: the read models. Reads answer 503, commands and event streams continue.
 * - `objects`: the object store. A write that ends like this has left nothing that a reader could see.
 * - `sandboxes`: what runs commands, such as the API server of a cluster. What was asked has not begun.
 * - `issuer`: the keys that an issuer of tokens publishes.
 */
export class UnavailableError extends Error {
  readonly dependency: Dependency;

  constructor(dependency: Dependency, message: string, options?: ErrorOptions) {
    super(message, options);
    this.dependency = dependency;
  }
}

/** Whether an error says that this dependency is unavailable. */
export function isUnavailableError(error: unknown, dependency: Dependency): error is UnavailableError {
  return error instanceof UnavailableError && error.dependency === dependency;
}

/** Postgres cannot be reached, or the read models are too far behind: reads answer 503, commands and streams go on. */
export class ReadStoreUnavailableError extends Error {}

/** The rows lack a commit that could not be projected, and the log cannot make good for it. */
export class ParkedCommitError extends ReadStoreUnavailableError {}

/** The schemas that this version reads from have not been filled yet. */
export class UnbuiltReadModelsError extends ReadStoreUnavailableError {
  constructor() {
    super('the read models of this version are being built');
  }
}

/** Postgres cannot be reached, or the read models are too far behind: reads answer 503, commands and streams go on. */
export class ReadStoreUnavailableError extends Error {}

/** A tenant has as many reads under way as it may, and this one has waited for its turn for too long. */
export class ReadsBusyError extends ReadStoreUnavailableError {}

/** The database was told to stop working on a read that took too long. */
export class ReadTooLongError extends ReadStoreUnavailableError {}

/** The rows lack a commit that could not be projected, and the log cannot make good for it. */
export class ParkedCommitError extends ReadStoreUnavailableError {}

/** The schemas that this version reads from have not been filled yet. */
export class UnbuiltReadModelsError extends ReadStoreUnavailableError {
  constructor() {
    super('the read models of this version are being built');
  }
}

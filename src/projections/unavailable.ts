/** Postgres cannot be reached, or the read models are too far behind: reads answer 503, commands and streams go on. */
export class ReadStoreUnavailableError extends Error {}

/** The rows lack a commit that could not be projected, and the log cannot make good for it. */
export class ParkedCommitError extends ReadStoreUnavailableError {}

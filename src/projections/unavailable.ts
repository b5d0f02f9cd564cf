/** Postgres cannot be reached, or the read models are too far behind: reads answer 503, commands and streams go on. */
export class ReadStoreUnavailableError extends Error {}

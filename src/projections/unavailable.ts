import { UnavailableError } from '../lib/unavailable.ts';

class ReadsUnavailableError extends UnavailableError {
  constructor(message: string, options?: ErrorOptions) {
    super('database', message, options);
  }
}

/** A tenant has as many reads in progress as it may, and this one has waited too long for its turn. */
export class ReadsBusyError extends ReadsUnavailableError {}

/** The database cancelled a read that took too long. */
export class ReadTooLongError extends ReadsUnavailableError {}

/** The rows lack a commit that could not be projected, and the log cannot make good for it. */
export class ParkedCommitError extends ReadsUnavailableError {}

/** The schemas that this version reads from have not been filled yet. */
export class UnbuiltReadModelsError extends ReadsUnavailableError {
  constructor() {
    super('the read models of this version are being built');
  }
}

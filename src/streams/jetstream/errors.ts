import { JetStreamApiError } from '@nats-io/jetstream';

/** Error codes of the server's API that have a meaning here (measured: anchors/nats-event-store.md, section 1). */
export const ApiCode = {
  wrongLastSequence: 10_071,
  /** Someone's append to that subject is in flight; carries no number. */
  wrongLastSequenceUnknown: 10_164,
  /** A message with this id is being stored right now. */
  duplicateInProcess: 10_158,
  /** Work queue: the subject has an item already. */
  maxMessagesPerSubject: 10_077,
  noMessageFound: 10_037,
  streamNotFound: 10_059,
  /** Deleting by sequence: there is no such message any more, or it was never stored. */
  sequenceNotFound: 10_043,
  beyondTheEnd: 10_057,
} as const;

export function apiCode(error: unknown): number | null {
  return error instanceof JetStreamApiError ? error.code : null;
}

export function isWrongLastSequence(error: unknown): boolean {
  const code = apiCode(error);
  return code === ApiCode.wrongLastSequence || code === ApiCode.wrongLastSequenceUnknown;
}

import { JetStreamApiError } from '@nats-io/jetstream';
import { errors } from '@nats-io/transport-node';

/** Error codes of the server's API that have a meaning here. */
export const ApiCode = {
  wrongLastSequence: 10_071,
  /** Another append to that subject is in flight; carries no number. */
  wrongLastSequenceUnknown: 10_164,
  /** A message with this id is being stored right now. */
  duplicateInProcess: 10_158,
  /** Work queue: the subject has an item already. */
  maxMessagesPerSubject: 10_077,
  noMessageFound: 10_037,
  streamNotFound: 10_059,
  /** There is a stream of this name with another configuration, or one is being made. */
  streamNameInUse: 10_058,
  /** A stream of another name takes one of the subjects. */
  subjectsOverlap: 10_065,
  /** Fewer servers than copies wanted, for now or for good. */
  noSuitablePeers: 10_005,
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

/** Transient refusals: no leader, the same id in flight, a server that is starting. */
export function isPassing(error: unknown): boolean {
  const code = apiCode(error);
  return (
    code === ApiCode.duplicateInProcess || code === 10_008 || code === 10_039 || code === 10_076 || code === 10_118
  );
}

/** No server answered, or none that could: the request may or may not have been carried out. */
export function isUnanswered(error: unknown): boolean {
  return error instanceof errors.TimeoutError || error instanceof errors.RequestError || isPassing(error);
}

/** The subject to which these credentials may not publish; null: something else is wrong. */
export function deniedSubject(error: unknown): string | null {
  for (let cause: unknown = error; cause instanceof Error; cause = cause.cause) {
    if (cause instanceof errors.PermissionViolationError && cause.operation === 'publish') return cause.subject;
  }
  return null;
}

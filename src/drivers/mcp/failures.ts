import { ProtocolError, SdkError, SdkErrorCode, SdkHttpError } from '@modelcontextprotocol/client';
import { ENDED_CODE } from './exchange.ts';
import { LegError } from './leg.ts';
import type { Leg, LegFailure } from './leg.ts';
import { cut } from './limits.ts';
import { MCP_LISTING_MAX_AGE_MS } from './port.ts';
import type { McpNeedsAuth, McpOutcome, McpUnavailable } from './port.ts';

const SERVER_TEXT_CHARS_MAX = 500;

/** Why a server's revision or list of tools could not be had. */
export function failureBefore(error: unknown, leg: Leg): LegFailure {
  if (error instanceof LegError) return error.failure;
  if (leg.failure !== null) return leg.failure;
  const unavailable = (reason: string): LegFailure => ({ kind: 'unavailable', reason, retryAfterMs: null });
  if (error instanceof SdkHttpError)
    return unavailable(`the server answers with HTTP status ${error.status ?? 'none'}`);
  if (error instanceof SdkError && error.code === SdkErrorCode.RequestTimeout) {
    return unavailable('the server does not answer in time');
  }
  if (error instanceof ProtocolError || error instanceof SdkError || isUnreadable(error)) {
    return unavailable('the server does not answer as the protocol requires');
  }
  return { kind: 'thrown', error };
}

/** What a failure before the call is to its caller. @throws what the Host itself works with has thrown */
export function outcomeBefore(
  failure: LegFailure,
  credential: McpNeedsAuth['credential'],
): McpNeedsAuth | McpUnavailable {
  switch (failure.kind) {
    case 'needs_auth':
      return needsAuth(credential);
    case 'unavailable':
      return failure;
    case 'thrown':
      throw failure.error;
    case 'address_refused':
    case 'too_large':
      // It will not be otherwise in a moment.
      return { kind: 'unavailable', reason: failure.reason, retryAfterMs: MCP_LISTING_MAX_AGE_MS };
    case 'lost':
      return { kind: 'unavailable', reason: failure.reason, retryAfterMs: null };
  }
}

export function needsAuth(credential: McpNeedsAuth['credential']): McpNeedsAuth {
  const message =
    credential === null
      ? 'The server requires a credential, and no vault of the session has one for its address.'
      : 'The server does not accept the credential for its address: it has to be signed in again or replaced.';
  return { kind: 'needs_auth', credential, message };
}

type Failed = Extract<McpOutcome, { kind: 'failed' }>;

export function failed(code: Failed['code'], message: string, mayHaveHappened: boolean): Failed {
  return { kind: 'failed', code, message, mayHaveHappened };
}

const IN_DOUBT = 'It may have been carried out: check that before calling it again.';

/**
 * How a call ended that brought no result.
 * @param isRepeatable whether it may be made again although it may have been carried out
 */
export function outcomeOf(
  error: unknown,
  leg: Leg,
  { credential, isRepeatable }: { credential: McpNeedsAuth['credential']; isRepeatable: boolean },
): McpOutcome {
  const failure = error instanceof LegError ? error.failure : leg.failure;
  // Thrown means that it may be made again: not once it was sent.
  if (failure?.kind === 'thrown' && !leg.isCallSent) throw failure.error;
  if (failure?.kind === 'too_large') {
    return failed('too_large', `The tool has run, but ${failure.reason}. Ask for less.`, true);
  }
  if (failure !== null && !leg.isCallSent) {
    if (failure.kind !== 'address_refused') return outcomeBefore(failure, credential);
    return failed('address_refused', `The server was not called: ${failure.reason}.`, false);
  }
  if (failure?.kind === 'unavailable') return isRepeatable ? failure : failed('lost', undecided(leg), true);
  if (failure !== null) return failed('lost', `The connection to the server broke during the call. ${IN_DOUBT}`, true);
  return outcomeOfAnswer(error, leg);
}

function outcomeOfAnswer(error: unknown, leg: Leg): McpOutcome {
  if (error instanceof SdkHttpError) {
    if (!leg.isCallRefused) return failed('lost', undecided(leg), true);
    return failed('refused', `The server refused the call with HTTP status ${leg.callStatus}.`, false);
  }
  if (error instanceof ProtocolError && error.code === ENDED_CODE) {
    return failed('lost', `The server ended the connection without a result. ${IN_DOUBT}`, true);
  }
  if (error instanceof ProtocolError) {
    const text = cut(error.message, SERVER_TEXT_CHARS_MAX);
    const isUncalled = error.code === -32_601 || error.code === -32_602 || error.code === -32_600;
    return failed('refused', `The server refused the call: ${text}`, !isUncalled);
  }
  if (error instanceof SdkError || isUnreadable(error)) {
    return failed('invalid_answer', `The server's answer is not one of the protocol. ${IN_DOUBT}`, true);
  }
  if (error instanceof TypeError) {
    return failed('lost', `The connection to the server broke during the call. ${IN_DOUBT}`, leg.isCallSent);
  }
  throw error;
}

function undecided({ callStatus }: Leg): string {
  return `The answer to the call is HTTP status ${callStatus}, which does not say whether it was carried out. ${IN_DOUBT}`;
}

/** What the client throws when it cannot read an answer. */
function isUnreadable(error: unknown): boolean {
  return error instanceof SyntaxError || (error instanceof Error && error.name === 'ZodError');
}

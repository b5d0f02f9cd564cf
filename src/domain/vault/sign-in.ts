import type { Decision } from '../kernel/decision.ts';
import { isRejection, reject } from '../kernel/rejection.ts';
import { toMs } from '../kernel/time.ts';
import type { EventData, VaultEvent } from './events.ts';
import { reachCredential } from './decide.ts';
import type { Grant, Superseding } from './decide.ts';
import { secretsOf } from './state.ts';
import type { Credential, SignIn, VaultState } from './state.ts';

/** A credential that a person can sign in for. */
export function reachForSignIn(state: VaultState, actsFor: string | null, id: string) {
  const known = reachCredential(state, actsFor, id);
  if (isRejection(known) || known.type === 'oauth') return known;
  return reject('conflict', 'A bearer credential has no sign-in. Rotate it with another token.');
}

/** Of two sign-ins that were started, the second counts. */
export function decideStartSignIn(
  state: VaultState,
  { actsFor, ...data }: EventData<'credential.sign_in_started'> & { readonly actsFor: string | null },
): Decision<VaultEvent, Superseding> {
  const known = reachForSignIn(state, actsFor, data.credentialId);
  if (isRejection(known)) return known;
  return {
    kind: 'accepted',
    events: [{ type: 'credential.sign_in_started', data }],
    reply: { superseded: openSecret(known) },
  };
}

export interface TakeSignIn {
  readonly actsFor: string | null;
  readonly credentialId: string;
  readonly stateHash: string;
  /** The issuer named in the answer; undefined: none. */
  readonly iss: string | undefined;
  readonly nowMs: number;
}

/**
 * Uses up the state that came back, before the code is sent anywhere: it is valid once, for the credential that it was
 * made for, and only with an answer from the server that was asked.
 */
export function decideTakeSignIn(state: VaultState, command: TakeSignIn): Decision<VaultEvent, SignIn> {
  const { actsFor, credentialId, stateHash, iss, nowMs } = command;
  const known = reachForSignIn(state, actsFor, credentialId);
  if (isRejection(known)) return known;
  const { signIn } = known;
  if (signIn?.stateHash !== stateHash || signIn.taken || toMs(signIn.expiresAt) <= nowMs) {
    return reject('conflict', 'No sign-in with this state is open. Begin another with authorize.');
  }
  const isOther = iss === undefined ? signIn.namesIssuer : iss !== signIn.issuer;
  if (isOther) {
    const message = 'must be the issuer that came back in the address, and the one that was asked';
    return reject('invalid_request', `iss ${message}.`, { details: { issues: [{ path: 'iss', message }] } });
  }
  const data = { credentialId, signInId: signIn.signInId };
  return { kind: 'accepted', events: [{ type: 'credential.sign_in_taken', data }], reply: signIn };
}

/** The tokens of a sign-in, unless another was started, or the credential rotated, since. */
export function decideSignedIn(
  state: VaultState,
  { credentialId, signInId, ...grant }: Grant & { readonly credentialId: string; readonly signInId: string },
): Decision<VaultEvent, Superseding> {
  const known = reachCredential(state, null, credentialId);
  if (isRejection(known)) return known;
  if (known.signIn?.signInId !== signInId) {
    return reject('conflict', 'The credential has been changed during the sign-in. Look at it, and sign in again.');
  }
  const events: VaultEvent[] = [{ type: 'credential.signed_in', data: { credentialId, signInId, ...grant } }];
  return { kind: 'accepted', events, reply: { superseded: secretsOf(known) } };
}

/** Whether a person has given the credential tokens since it had been given some `grants` times. */
export function isGivenAgain(
  state: VaultState,
  { credentialId, grants }: { readonly credentialId: string; readonly grants: number },
): boolean {
  const known = reachCredential(state, null, credentialId);
  return !isRejection(known) && known.state === 'ready' && known.grants > grants;
}

function openSecret({ id, signIn }: Credential): Superseding['superseded'] {
  return signIn === null ? [] : [{ credentialId: id, secretId: signIn.secretId }];
}

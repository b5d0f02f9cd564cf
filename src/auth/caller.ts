/** Scopes that a subject can be given (wire contract, section 3). */
export const SCOPES = ['agents:read', 'agents:write', 'sessions:own', 'sandboxes:write', 'vaults:own'] as const;
export type Scope = (typeof SCOPES)[number];

export type CallerKind = 'admin' | 'application' | 'studio' | 'management';

/** Who sends a request, once its credential has been recognised. Never holds the credential. */
export interface Caller {
  readonly kind: CallerKind;
  /** Empty for the Host admin. */
  readonly tenantId: string;
  readonly principalId: string;
  /** The person that an application key acts for; null: for nobody. */
  readonly subject: string | null;
  /** Of the subject; an application key alone has them all. */
  readonly scopes: readonly Scope[];
}

/** As commits name who caused them. */
export function actorOf(caller: Caller): string {
  const principal = caller.kind === 'admin' ? 'admin' : `${caller.kind}:${caller.principalId}`;
  return caller.subject === null ? principal : `${principal} for subject:${caller.subject}`;
}

/** Whether a session is within the caller's reach: a subject sees its own only (wire contract, section 3). */
export function reachesSession(caller: Caller, session: { readonly subject: string | null }): boolean {
  return caller.subject === null || session.subject === caller.subject;
}

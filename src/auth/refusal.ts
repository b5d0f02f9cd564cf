/** Why a request is refused before it is processed, as codes of the API. */
export type AuthCode =
  | 'invalid_request'
  | 'credential_required'
  | 'credential_invalid'
  | 'token_expired'
  | 'key_role_mismatch'
  | 'subject_invalid'
  | 'subject_forbidden'
  | 'scope_required';

export interface AuthRefusal {
  readonly kind: 'refused';
  readonly code: AuthCode;
  readonly message: string;
  readonly details?: Readonly<Record<string, unknown>>;
}

export function refuse(code: AuthCode, message: string, details?: Readonly<Record<string, unknown>>): AuthRefusal {
  return details === undefined ? { kind: 'refused', code, message } : { kind: 'refused', code, message, details };
}

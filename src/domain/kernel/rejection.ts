/**
 * Why a command is refused: the error codes of the API that a decision can give.
 * A refusal is data; only a bug throws. The HTTP status is assigned at the edge (http/problem.ts).
 */
export const REJECTION_CODES = [
  'invalid_request',
  'key_role_mismatch',
  'not_granted',
  'not_found',
  'conflict',
  'cursor_invalid',
  'idempotency_conflict',
  'session_busy',
  'session_not_waiting',
  'action_not_claimable',
  'claim_stale',
  'tenant_conflict',
  'active_work',
  'tenant_draining',
  'limit_exceeded',
  'sandbox_busy',
  'sandbox_unavailable',
  'sandbox_lost',
] as const;

export type RejectionCode = (typeof REJECTION_CODES)[number];

export interface Rejection {
  readonly kind: 'rejected';
  readonly code: RejectionCode;
  /** Tells the caller what to do. */
  readonly message: string;
  readonly details?: Readonly<Record<string, unknown>>;
  readonly activeTurnId?: string;
}

/** Whether what a decision refers to was refused instead of found. */
export function isRejection(found: object): found is Rejection {
  return 'kind' in found && found.kind === 'rejected';
}

export function reject(
  code: RejectionCode,
  message: string,
  extra: Pick<Rejection, 'details' | 'activeTurnId'> = {},
): Rejection {
  return { kind: 'rejected', code, message, ...extra };
}

import { notGranted, outOfReach, reachesAgent } from '../auth/caller.ts';
import type { Caller } from '../auth/caller.ts';
import type { AuthCode } from '../auth/refusal.ts';
import { optional } from '../domain/kernel/optional.ts';
import type { Manifest } from '../domain/agent/manifest.ts';
import type { Rejection, RejectionCode } from '../domain/kernel/rejection.ts';

/** Codes that only the edge uses. */
type EdgeCode =
  | 'origin_rejected'
  | 'range_not_satisfiable'
  | 'unsupported_media_type'
  | 'protocol_unsupported'
  | 'rate_limited'
  | 'internal_error'
  | 'unavailable';

export type ProblemCode = RejectionCode | AuthCode | EdgeCode;

/** HTTP status of each error code: the only place where the two meet. */
export const STATUS_OF: Readonly<Record<ProblemCode, number>> = {
  invalid_request: 400,
  cursor_invalid: 400,
  subject_invalid: 400,
  credential_required: 401,
  credential_invalid: 401,
  token_expired: 401,
  origin_rejected: 403,
  key_role_mismatch: 403,
  scope_required: 403,
  subject_forbidden: 403,
  not_granted: 403,
  not_found: 404,
  conflict: 409,
  idempotency_conflict: 409,
  session_busy: 409,
  session_not_waiting: 409,
  action_not_claimable: 409,
  claim_stale: 409,
  tenant_conflict: 409,
  active_work: 409,
  tenant_draining: 409,
  sandbox_busy: 409,
  sandbox_unavailable: 409,
  sandbox_lost: 409,
  limit_exceeded: 413,
  range_not_satisfiable: 416,
  unsupported_media_type: 415,
  protocol_unsupported: 426,
  rate_limited: 429,
  internal_error: 500,
  unavailable: 503,
};

/** For a shape that lists them: each code under its own name. */
export const PROBLEM_CODES: Readonly<Record<string, string>> = Object.fromEntries(
  Object.keys(STATUS_OF).map((code) => [code, code]),
);

/** A limit of a count, not of a size, is a conflict with what is there. */
const COUNT_LIMITS = [
  'keys',
  'issuers',
  'executors',
  'queue',
  'versions',
  'operations',
  'forks',
  'forkDepth',
  'artifacts',
  'credentials',
  'sandboxes',
  'sandboxSessions',
  'workspaces',
];

export function statusOf({ code, details }: Problem): number {
  const counted = code === 'limit_exceeded' && COUNT_LIMITS.some((limit) => limit === details?.['limit']);
  return counted ? 409 : STATUS_OF[code];
}

/** The answer to a refused request, without the ids that the response adds. */
export interface Problem {
  readonly code: ProblemCode;
  readonly message: string;
  readonly details?: Readonly<Record<string, unknown>> | undefined;
  readonly activeTurnId?: string | undefined;
  /** Members of the body besides the usual. */
  readonly extra?: Readonly<Record<string, unknown>>;
  readonly headers?: Readonly<Record<string, string>>;
}

/** Thrown by a handler that refuses; the error handler of the server turns it into the response. */
export class ProblemError extends Error {
  readonly problem: Problem;

  constructor(problem: Problem, options?: ErrorOptions) {
    super(problem.message, options);
    this.problem = problem;
  }
}

export function notFound(what: string): ProblemError {
  return new ProblemError({ code: 'not_found', message: `No such ${what}.` });
}

/** @throws ProblemError not_granted when a token's grants do not reach the agent, whether it exists or not */
export function requireAgent(caller: Caller, agentId: string): void {
  if (reachesAgent(caller, agentId)) return;
  throw refused(notGranted());
}

/** A manifest reaches no further than its sender. @throws ProblemError not_granted */
export function requireAgentsOf(caller: Caller, { agents = [] }: Pick<Manifest, 'agents'>): void {
  for (const { agentId } of agents) requireAgent(caller, agentId);
}

/** Throws the refusal of a use case, returns what was not refused. */
export function accepted<T extends { readonly kind: 'done' }>(outcome: T | Rejection): T {
  if (outcome.kind === 'done') return outcome;
  throw refused(outcome);
}

/** The refusal of a decision as a handler throws it. */
export function refused({ kind: _kind, ...problem }: Rejection): ProblemError {
  return new ProblemError(problem);
}

/**
 * A session that was found, if the caller may see it.
 * @throws ProblemError not_found, the same for a missing one and one of another subject; not_granted
 */
export function withinReach<T extends { readonly subject: string | null; readonly agentId: string }>(
  caller: Caller,
  session: T | null,
): T {
  if (session === null) throw notFound('session');
  const refusal = outOfReach(caller, session);
  if (refusal !== null) throw refused(refusal);
  return session;
}

/** The body of every refusal. */
export function problemBody(problem: Problem, requestId: string): Record<string, unknown> {
  const { code, message, details, activeTurnId, extra } = problem;
  return {
    status: 'rejected',
    code,
    message,
    requestId,
    ...optional({ details, activeTurnId }),
    ...extra,
  };
}

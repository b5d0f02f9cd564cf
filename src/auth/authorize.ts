import type { Caller, CallerKind, Scope } from './caller.ts';
import { refuse } from './refusal.ts';
import type { AuthRefusal } from './refusal.ts';

/** Who may use a route. Every route names one of these; there is no default. */
export interface Access {
  readonly kinds: readonly CallerKind[];
  /** Any one of them lets a subject in; empty: no subject may use the route; `any`: every subject may. */
  readonly scopes: readonly Scope[] | 'any';
}

/** A token acts for its subject only, so the scopes of a route keep it out where they keep every subject out. */
const APPLICATION = ['application', 'studio', 'issuer'] as const;
const APPLICATION_OR_MANAGEMENT = ['application', 'studio', 'management', 'issuer'] as const;
const EXECUTOR = ['executor'] as const;

export const ACCESS = {
  admin: { kinds: ['admin'], scopes: [] },
  me: { kinds: APPLICATION_OR_MANAGEMENT, scopes: 'any' },
  readAgents: { kinds: APPLICATION_OR_MANAGEMENT, scopes: ['agents:read', 'agents:write'] },
  writeAgents: { kinds: APPLICATION_OR_MANAGEMENT, scopes: ['agents:write'] },
  sessions: { kinds: APPLICATION, scopes: ['sessions:own'] },
  /**
   * An executor may send `action_result` alone, a management key `respond` to a question about a budget. The route looks
   * at that: the gate has not read the body.
   */
  commands: { kinds: [...APPLICATION_OR_MANAGEMENT, ...EXECUTOR], scopes: ['sessions:own'] },
  /** A management key sees what it may answer: budget questions. */
  interactions: { kinds: APPLICATION_OR_MANAGEMENT, scopes: ['sessions:own'] },
  artifacts: { kinds: APPLICATION, scopes: ['sessions:own'] },
  vaults: { kinds: APPLICATION, scopes: ['vaults:own'] },
  readSandboxes: { kinds: APPLICATION, scopes: ['sessions:own', 'sandboxes:write'] },
  writeSandboxes: { kinds: APPLICATION, scopes: ['sandboxes:write'] },
  modelCalls: { kinds: APPLICATION, scopes: [] },
  tenant: { kinds: APPLICATION_OR_MANAGEMENT, scopes: [] },
  executors: { kinds: APPLICATION_OR_MANAGEMENT, scopes: [] },
  executorWork: { kinds: EXECUTOR, scopes: [] },
} as const satisfies Readonly<Record<string, Access>>;

/** What a part of a request needs besides the scope of its route. Null: the caller has it, or acts for no subject. */
export function requireScope(caller: Caller, scope: Scope, part: string): AuthRefusal | null {
  if (caller.subject === null || caller.scopes.includes(scope)) return null;
  return refuse('scope_required', `The subject lacks a scope for ${part}.`, { scopes: [scope] });
}

/** Pure: the whole matrix can be tested without a server. */
export function authorize(caller: Caller, access: Access): AuthRefusal | null {
  if (!access.kinds.includes(caller.kind)) {
    const takes = access.kinds.filter((kind) => kind !== 'issuer' || access.scopes.length > 0).join(', ');
    return refuse('key_role_mismatch', `This route takes a credential of another kind (${takes}).`);
  }
  const { scopes } = access;
  if (caller.subject === null || scopes === 'any') return null;
  if (scopes.some((scope) => caller.scopes.includes(scope))) return null;
  const hint =
    scopes.length === 0
      ? 'No subject may use this route; use an application key without Svc-Subject.'
      : 'The subject lacks a scope for this route.';
  return refuse('scope_required', hint, { scopes });
}

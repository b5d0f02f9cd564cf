import type { Caller, CallerKind, Scope } from './caller.ts';
import { refuse } from './refusal.ts';
import type { AuthRefusal } from './refusal.ts';

/** Who may use a route (wire contract, sections 3 and 4). Every route names one of these; there is no default. */
export interface Access {
  readonly kinds: readonly CallerKind[];
  /** Any one of them lets a subject in; empty: no subject may use the route. */
  readonly scopes: readonly Scope[];
}

const APPLICATION = ['application', 'studio'] as const;
const APPLICATION_OR_MANAGEMENT = ['application', 'studio', 'management'] as const;

export const ACCESS = {
  admin: { kinds: ['admin'], scopes: [] },
  me: {
    kinds: APPLICATION_OR_MANAGEMENT,
    scopes: ['agents:read', 'agents:write', 'sessions:own', 'sandboxes:write', 'vaults:own'],
  },
  readAgents: { kinds: APPLICATION_OR_MANAGEMENT, scopes: ['agents:read', 'agents:write'] },
  writeAgents: { kinds: APPLICATION_OR_MANAGEMENT, scopes: ['agents:write'] },
  sessions: { kinds: APPLICATION, scopes: ['sessions:own'] },
  modelCalls: { kinds: APPLICATION, scopes: [] },
} as const satisfies Readonly<Record<string, Access>>;

/** Pure: the whole matrix can be tested without a server. */
export function authorize(caller: Caller, access: Access): AuthRefusal | null {
  if (!access.kinds.includes(caller.kind)) {
    return refuse('key_role_mismatch', `This route takes a credential of another kind (${access.kinds.join(', ')}).`);
  }
  if (caller.subject === null || access.scopes.some((scope) => caller.scopes.includes(scope))) return null;
  const hint =
    access.scopes.length === 0
      ? 'No subject may use this route; send the request without Svc-Subject.'
      : 'The subject lacks a scope for this route.';
  return refuse('scope_required', hint, { scopes: access.scopes });
}

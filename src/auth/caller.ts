import { reject } from '../domain/kernel/rejection.ts';
import type { Rejection } from '../domain/kernel/rejection.ts';

/** Scopes that a subject can be given. */
export const SCOPES = ['agents:read', 'agents:write', 'sessions:own', 'sandboxes:write', 'vaults:own'] as const;
export type Scope = (typeof SCOPES)[number];

export const CALLER_KINDS = ['admin', 'application', 'studio', 'management', 'issuer', 'executor'] as const;
export type CallerKind = (typeof CALLER_KINDS)[number];

/** Who sends a request, once its credential has been recognised. Never holds the credential. */
export interface Caller {
  readonly kind: CallerKind;
  /** Empty for the Host admin. */
  readonly tenantId: string;
  /** The key's id, the issuer's name, or the executor's agent. */
  readonly principalId: string;
  /** The person that the request is made for; null: for no subject. A token is always its subject's. */
  readonly subject: string | null;
  /** Of the subject; an application key alone has them all. */
  readonly scopes: readonly Scope[];
  /** Agents that a token's grants reach, or the executor's one; null: no grant limits the caller. */
  readonly agents: readonly string[] | null;
  /** Sandboxes that a token's grants reach; null: no grant limits the caller. */
  readonly sandboxes: readonly string[] | null;
  /** SHA-256 of the credential, hex: names it for limits and for streams that must end with it. */
  readonly credential: string;
  /** When the credential, and with it a stream that it opened, expires, ms since 1970; null: never. */
  readonly expiresAt: number | null;
}

/** How commits name who caused them. */
export function actorOf(caller: Caller): string {
  const principal = caller.kind === 'admin' ? 'admin' : `${caller.kind}:${caller.principalId}`;
  return caller.subject === null ? principal : `${principal} for subject:${caller.subject}`;
}

/** What decides who reaches a session. */
export interface ReachedSession {
  readonly subject: string | null;
  readonly agentId: string;
  /** Agents that its manifest uses as tools, and those that its turn's own manifest does, by id. */
  readonly agents?: Readonly<Record<string, unknown>> | undefined;
  readonly turn?: { readonly agents: Readonly<Record<string, unknown>> | null } | null;
}

/**
 * Why a session is out of the caller's reach; null: it is not. Another subject's session, and for an executor one in
 * which its agent does not work, is refused with the words for a missing one.
 */
export function outOfReach(caller: Caller, session: ReachedSession): Rejection | null {
  if (caller.kind === 'executor') return worksIn(caller, session) ? null : unknownSession();
  if (caller.subject !== null && session.subject !== caller.subject) return unknownSession();
  return reachesAgent(caller, session.agentId) ? null : notGranted();
}

/** The agent of an executor works in its own sessions, and where it is used as a tool. */
function worksIn(caller: Caller, { agentId, agents = {}, turn }: ReachedSession): boolean {
  const used = [...Object.keys(agents), ...Object.keys(turn?.agents ?? {})];
  return [agentId, ...used].some((one) => reachesAgent(caller, one));
}

function unknownSession(): Rejection {
  return reject('not_found', 'No such session.');
}

/**
 * The same for an artifact, by the session that it belongs to: a subject reaches only those of its own sessions, and
 * none without a session.
 */
export function artifactOutOfReach(
  caller: Caller,
  owner: { readonly subject: string | null; readonly agentId: string } | null,
): Rejection | null {
  if (caller.subject !== null && owner?.subject !== caller.subject) return reject('not_found', 'No such artifact.');
  return owner === null || reachesAgent(caller, owner.agentId) ? null : notGranted();
}

/** The refusal of a token whose grants do not reach an agent, whether the agent exists or not. */
export function notGranted(): Rejection {
  return reject('not_granted', "The token's grants do not reach this agent.");
}

/** Whether a token's grants reach an agent, or it is the executor's own; every other credential reaches all of them. */
export function reachesAgent(caller: Caller, agentId: string): boolean {
  return caller.agents === null || caller.agents.includes(agentId);
}

/** The refusal of a token whose grants do not reach a sandbox, whether it exists or not; null: they do, or there are none. */
export function sandboxGranted({ sandboxes }: Caller, sandboxId: string): Rejection | null {
  if (sandboxes === null || sandboxes.includes(sandboxId)) return null;
  return reject('not_granted', "The token's grants do not reach this sandbox.");
}

/** What decides who reaches a sandbox. `owner`: the session that it was made for. */
interface ReachedSandbox {
  readonly sandboxId: string;
  readonly subject: string | null;
  readonly owner: { readonly sessionId: string } | null;
}

/**
 * Why a sandbox is out of the caller's reach; null: it is not. A person reaches their own, and those without a subject
 * that their token names; another's is refused with the words for a missing one.
 */
export function sandboxOutOfReach(caller: Caller, { sandboxId, subject, owner }: ReachedSandbox): Rejection | null {
  const isNamed = caller.sandboxes?.includes(sandboxId) === true;
  const isWithin = caller.subject === null || subject === caller.subject || (subject === null && isNamed);
  if (!isWithin) return reject('not_found', 'No such sandbox.');
  // The sandbox of a person's own session came with it, which no grant of sandboxes limits.
  return owner !== null && subject === caller.subject ? null : sandboxGranted(caller, sandboxId);
}

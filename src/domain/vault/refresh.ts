import type { Decision } from '../kernel/decision.ts';
import { isRejection } from '../kernel/rejection.ts';
import { toMs, toTimestamp } from '../kernel/time.ts';
import type { RefreshFailure, VaultEvent } from './events.ts';
import type { NamedSecret } from './decide.ts';
import { reachCredential } from './decide.ts';
import type { Credential, RefreshUnderWay, VaultState } from './state.ts';

/**
 * Whether the tokens of a generation may be replaced now, and by whom. The log decides: of all nodes that ask, one
 * records that it will use the refresh token before doing so.
 */
export type RefreshTurn =
  /** This node may refresh: the event is recorded. */
  | { readonly kind: 'ours'; readonly credential: Credential }
  /** The tokens have already been replaced. */
  | { readonly kind: 'replaced' }
  /** Another node is refreshing, and has until then. */
  | { readonly kind: 'theirs'; readonly until: string }
  /** The node that was refreshing has not recorded the outcome; its answer may be in the secret store. */
  | { readonly kind: 'lapsed'; readonly refreshing: RefreshUnderWay }
  /** The last attempt failed a moment ago. */
  | { readonly kind: 'later'; readonly notBefore: string }
  /** Only a person can help. */
  | { readonly kind: 'hopeless' };

export interface StartRefresh {
  readonly credentialId: string;
  readonly generation: number;
  readonly refreshId: string;
  /** Where the answer will be stored. */
  readonly secretId: string;
  readonly nowMs: number;
  readonly leaseMs: number;
  /** A refresh that lapsed and left nothing in the secret store. */
  readonly lookedFor: string | null;
}

export function decideStartRefresh(state: VaultState, command: StartRefresh): Decision<VaultEvent, RefreshTurn> {
  const { credentialId, generation, refreshId, secretId, nowMs, leaseMs, lookedFor } = command;
  const known = reachCredential(state, null, credentialId);
  const unchanged = (reply: RefreshTurn) => ({ kind: 'unchanged', reply }) as const;
  if (isRejection(known)) return unchanged({ kind: 'hopeless' });
  if (known.generation !== generation) return unchanged({ kind: 'replaced' });
  if (known.state === 'needs_auth' || known.refresh === null || known.grantGone) return unchanged({ kind: 'hopeless' });
  const { refreshing, refreshNotBefore } = known;
  if (refreshing !== null && toMs(refreshing.until) > nowMs) {
    return unchanged({ kind: 'theirs', until: refreshing.until });
  }
  if (refreshing !== null && refreshing.refreshId !== lookedFor) return unchanged({ kind: 'lapsed', refreshing });
  if (refreshNotBefore !== null && toMs(refreshNotBefore) > nowMs) {
    return unchanged({ kind: 'later', notBefore: refreshNotBefore });
  }
  const data = { credentialId, generation, refreshId, secretId, until: toTimestamp(nowMs + leaseMs) };
  return {
    kind: 'accepted',
    events: [{ type: 'credential.refresh_started', data }],
    reply: { kind: 'ours', credential: known },
  };
}

export interface Refreshed {
  readonly credentialId: string;
  readonly generation: number;
  readonly refreshId: string;
  readonly secretId: string;
  readonly expiresAt: string | null;
}

/**
 * New tokens count, whichever node brings them and however late, as long as those that they replace are the newest: the
 * server no longer honours any others. The reply is the secret that nothing names any longer.
 */
export function decideRefreshed(state: VaultState, data: Refreshed): Decision<VaultEvent, readonly NamedSecret[]> {
  const { credentialId } = data;
  const known = reachCredential(state, null, credentialId);
  const own = [{ credentialId, secretId: data.secretId }];
  if (isRejection(known)) return { kind: 'unchanged', reply: own };
  if (known.secretId === data.secretId) return { kind: 'unchanged', reply: [] };
  if (known.generation !== data.generation) return { kind: 'unchanged', reply: own };
  const reply = known.secretId === null ? [] : [{ credentialId, secretId: known.secretId }];
  return { kind: 'accepted', events: [{ type: 'credential.refreshed', data }], reply };
}

export interface RefreshFailed {
  readonly credentialId: string;
  readonly generation: number;
  readonly refreshId: string;
  readonly reason: RefreshFailure;
  /** The server that the token is for has refused it. */
  readonly isRefused: boolean;
  readonly nowMs: number;
}

const PAUSE_MS = 1_000;
const PAUSE_MS_MAX = 60_000;

/**
 * A refusal while the access token is valid only stops further refreshes. If the outcome of an attempt is not known,
 * the next one waits until the access token has expired: a server that takes a second use of a refresh token for theft
 * revokes that, too.
 */
export function decideRefreshFailed(state: VaultState, command: RefreshFailed): Decision<VaultEvent, null> {
  const { credentialId, generation, refreshId, reason, isRefused, nowMs } = command;
  const known = reachCredential(state, null, credentialId);
  const isOurs = !isRejection(known) && known.generation === generation && known.refreshing?.refreshId === refreshId;
  if (!isOurs) return { kind: 'unchanged', reply: null };
  const isGood = !isRefused && isUsable(known, nowMs);
  const pauseMs = Math.min(PAUSE_MS * 2 ** Math.min(known.failures, 10), PAUSE_MS_MAX);
  const waits = reason === 'in_doubt' && isGood && known.expiresAt !== null;
  const notBefore = waits ? known.expiresAt : toTimestamp(nowMs + pauseMs);
  const needsAuth = reason === 'grant_gone' && !isGood;
  const data = { credentialId, generation, refreshId, reason, needsAuth, notBefore };
  return { kind: 'accepted', events: [{ type: 'credential.refresh_failed', data }], reply: null };
}

/** The tokens of a generation are useless, and only a person can provide others. */
export function decideRefused(
  state: VaultState,
  { credentialId, generation }: { readonly credentialId: string; readonly generation: number },
): Decision<VaultEvent, null> {
  const known = reachCredential(state, null, credentialId);
  if (isRejection(known) || known.generation !== generation || known.state === 'needs_auth') {
    return { kind: 'unchanged', reply: null };
  }
  return {
    kind: 'accepted',
    events: [{ type: 'credential.refused', data: { credentialId, generation } }],
    reply: null,
  };
}

/** Whether the access token is valid, judging by its expiry; it may be refused nevertheless. */
export function isUsable({ state, secretId, expiresAt }: Credential, nowMs: number): boolean {
  return state === 'ready' && secretId !== null && (expiresAt === null || toMs(expiresAt) > nowMs);
}

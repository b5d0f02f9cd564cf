import type { EventMeta } from '../kernel/decision.ts';
import type { CredentialType, EventData, RefreshSettings, VaultEvent } from './events.ts';

/** A refresh that was started and whose end is not recorded. */
export interface RefreshUnderWay {
  readonly refreshId: string;
  readonly secretId: string;
  readonly until: string;
}

export type SignIn = Omit<EventData<'credential.sign_in_started'>, 'credentialId'> & {
  /** Its state has come back, so it is not valid for another exchange. */
  readonly taken: boolean;
};

/** A repetition of a rotation is recognised by these. */
interface RotationReceipt {
  readonly keyHash: string;
  readonly bodyHash: string;
}

export interface Credential {
  readonly id: string;
  readonly name: string;
  readonly type: CredentialType;
  readonly url: string;
  readonly scopes: readonly string[];
  readonly bodyHash: string;
  /** `needs_auth`: it cannot be used before a sign-in or a rotation. */
  readonly state: 'ready' | 'needs_auth';
  /** Counts the tokens: each stored one has the next number. */
  readonly generation: number;
  /** Counts the tokens that people have given: saved, rotated or signed in for. Refreshes leave it as it is. */
  readonly grants: number;
  readonly secretId: string | null;
  readonly expiresAt: string | null;
  readonly refresh: RefreshSettings | null;
  /**
   * The server has said that the grant is no longer valid: the access token is valid until it expires, and no refresh
   * is tried.
   */
  readonly grantGone: boolean;
  readonly refreshing: RefreshUnderWay | null;
  /** No refresh before this time; null: any time. */
  readonly refreshNotBefore: string | null;
  /** Refreshes of this generation that have failed, in a row. */
  readonly failures: number;
  readonly signIn: SignIn | null;
  readonly rotations: readonly RotationReceipt[];
  readonly createdAt: string;
  readonly rotatedAt: string | null;
}

export interface OpenVault {
  readonly status: 'open';
  readonly name: string;
  readonly subject: string;
  readonly metadata: Readonly<Record<string, unknown>>;
  readonly bodyHash: string;
  readonly credentials: Readonly<Record<string, Credential>>;
  /** Ids of deleted credentials: the request that made one does not make it again. */
  readonly gone: readonly string[];
  readonly createdAt: string;
  readonly updatedAt: string;
}

/** absent → open → deleted. An id is derived from a request, so it is never used again. */
export type VaultState =
  | { readonly status: 'absent' }
  | OpenVault
  | {
      readonly status: 'deleted';
      readonly subject: string;
      /** Secrets that may still be stored, with the credentials that they belonged to. */
      readonly left: readonly { readonly credentialId: string; readonly secretId: string }[];
    };

export const initialVault: VaultState = { status: 'absent' };

/** Part of a snapshot's name: raise it whenever the meaning of the folded state changes. */
export const VAULT_FOLD_VERSION = 2;

/** Rotations of a credential whose repetition is recognised. */
const ROTATIONS_KEPT = 20;

/** Total: it never throws, and an event that cannot apply changes nothing. */
export function evolveVault(state: VaultState, event: VaultEvent, { at }: EventMeta): VaultState {
  if (event.type === 'vault.created') {
    if (state.status !== 'absent') return state;
    return { status: 'open', ...event.data, credentials: {}, gone: [], createdAt: at, updatedAt: at };
  }
  if (state.status === 'deleted' && event.type === 'vault.cleared') {
    return { ...state, left: state.left.filter(({ secretId }) => !event.data.secretIds.includes(secretId)) };
  }
  if (state.status !== 'open' || event.type === 'vault.cleared') return state;
  if (event.type === 'vault.deleted') {
    const left = Object.values(state.credentials).flatMap((credential) => secretsOf(credential));
    return { status: 'deleted', subject: state.subject, left };
  }
  return evolveCredentials(state, event, at);
}

type CredentialEvent = Exclude<VaultEvent, { type: `vault.${string}` }>;

function evolveCredentials(state: OpenVault, event: CredentialEvent, at: string): OpenVault {
  const { credentialId: id } = event.data;
  const known = Object.hasOwn(state.credentials, id) ? state.credentials[id] : undefined;
  if (event.type === 'credential.saved') {
    if (known !== undefined) return state;
    return { ...state, updatedAt: at, credentials: { ...state.credentials, [id]: saved(event.data, at) } };
  }
  if (known === undefined) return state;
  if (event.type === 'credential.deleted') {
    const { [id]: _gone, ...credentials } = state.credentials;
    return { ...state, updatedAt: at, credentials, gone: [...state.gone, id] };
  }
  if (event.type === 'credential.used') return state;
  const next = evolveCredential(known, event, at);
  return next === known ? state : { ...state, updatedAt: at, credentials: { ...state.credentials, [id]: next } };
}

function saved({ credentialId: id, ...data }: EventData<'credential.saved'>, at: string): Credential {
  return {
    id,
    ...data,
    state: data.secretId === null ? 'needs_auth' : 'ready',
    generation: 1,
    grants: data.secretId === null ? 0 : 1,
    grantGone: false,
    refreshing: null,
    refreshNotBefore: null,
    failures: 0,
    signIn: null,
    rotations: [],
    createdAt: at,
    rotatedAt: null,
  };
}

type ChangeEvent = Exclude<CredentialEvent, { type: 'credential.saved' | 'credential.deleted' | 'credential.used' }>;

function evolveCredential(known: Credential, event: ChangeEvent, at: string): Credential {
  switch (event.type) {
    case 'credential.rotated': {
      const { credentialId: _id, keyHash, bodyHash, ...grant } = event.data;
      const rotations = [...known.rotations, { keyHash, bodyHash }].slice(-ROTATIONS_KEPT);
      return { ...given(known, grant), rotations, rotatedAt: at };
    }
    case 'credential.signed_in': {
      const { credentialId: _id, signInId: _signIn, ...grant } = event.data;
      return { ...given(known, grant), rotatedAt: at };
    }
    case 'credential.refreshed': {
      if (event.data.generation !== known.generation) return known;
      const { secretId, expiresAt } = event.data;
      return { ...granted(known, { secretId, expiresAt, refresh: known.refresh }), signIn: known.signIn };
    }
    case 'credential.refused':
      return event.data.generation === known.generation ? { ...known, state: 'needs_auth' } : known;
    case 'credential.sign_in_started': {
      const { credentialId: _id, ...signIn } = event.data;
      return { ...known, signIn: { ...signIn, taken: false } };
    }
    case 'credential.sign_in_taken':
      return known.signIn?.signInId === event.data.signInId
        ? { ...known, signIn: { ...known.signIn, taken: true } }
        : known;
    case 'credential.refresh_started': {
      if (event.data.generation !== known.generation) return known;
      const { refreshId, secretId, until } = event.data;
      return { ...known, refreshing: { refreshId, secretId, until } };
    }
    case 'credential.refresh_failed':
      return refreshFailed(known, event.data);
  }
}

/** With tokens of a person. */
function given(known: Credential, grant: Pick<Credential, 'secretId' | 'expiresAt' | 'refresh'>): Credential {
  return { ...granted(known, grant), grants: known.grants + (grant.secretId === null ? 0 : 1) };
}

/** With other tokens, whatever was in progress with the old ones has ended. */
function granted(known: Credential, grant: Pick<Credential, 'secretId' | 'expiresAt' | 'refresh'>): Credential {
  return {
    ...known,
    ...grant,
    state: grant.secretId === null ? 'needs_auth' : 'ready',
    generation: known.generation + 1,
    grantGone: false,
    refreshing: null,
    refreshNotBefore: null,
    failures: 0,
    signIn: null,
  };
}

function refreshFailed(known: Credential, data: EventData<'credential.refresh_failed'>): Credential {
  const { generation, refreshId, reason, needsAuth, notBefore } = data;
  if (generation !== known.generation || known.refreshing?.refreshId !== refreshId) return known;
  return {
    ...known,
    state: needsAuth ? 'needs_auth' : known.state,
    grantGone: known.grantGone || reason === 'grant_gone',
    refreshing: null,
    refreshNotBefore: notBefore,
    failures: known.failures + 1,
  };
}

/** Every secret that a credential names: of its tokens, and of a refresh or sign-in in progress. */
export function secretsOf({ id, secretId, refreshing, signIn }: Credential) {
  const ids = [secretId, refreshing?.secretId ?? null, signIn?.secretId ?? null];
  return ids.flatMap((one) => (one === null ? [] : [{ credentialId: id, secretId: one }]));
}

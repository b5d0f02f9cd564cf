import type { Decision } from '../kernel/decision.ts';
import { isRejection, reject } from '../kernel/rejection.ts';
import type { Rejection } from '../kernel/rejection.ts';
import type { CredentialType, EventData, RefreshSettings, VaultEvent } from './events.ts';
import { secretsOf } from './state.ts';
import type { Credential, OpenVault, VaultState } from './state.ts';

/** Credentials that a vault may have at a time, and in its lifetime. */
export const CREDENTIALS_MAX = 100;
export const CREDENTIALS_EVER_MAX = 1_000;

/** A secret of a credential, by its name in the store. */
export interface NamedSecret {
  readonly credentialId: string;
  readonly secretId: string;
}

/** What nothing names once the decision is recorded. */
export interface Superseding {
  readonly superseded: readonly NamedSecret[];
}

export interface CreateVault {
  readonly name: string;
  readonly subject: string;
  readonly metadata: Readonly<Record<string, unknown>>;
  readonly bodyHash: string;
}

export function decideCreateVault(state: VaultState, command: CreateVault): Decision<VaultEvent, null> {
  if (state.status === 'deleted') return madeAndDeleted('vault');
  if (state.status === 'open') return repeated(state.bodyHash === command.bodyHash, null);
  const data = { ...command, metadata: { ...command.metadata } };
  return { kind: 'accepted', events: [{ type: 'vault.created', data }], reply: null };
}

/** A vault that the caller may see. Someone who acts for a person (`actsFor`) learns of that person's vaults only. */
export function reachVault(state: VaultState, actsFor: string | null): OpenVault | Rejection {
  if (state.status !== 'open' || (actsFor !== null && state.subject !== actsFor)) {
    return reject('not_found', 'No such vault.');
  }
  return state;
}

/** A credential of a vault that the caller may see. */
export function reachCredential(state: VaultState, actsFor: string | null, id: string): Credential | Rejection {
  const vault = reachVault(state, actsFor);
  if (isRejection(vault)) return vault;
  const credential = Object.hasOwn(vault.credentials, id) ? vault.credentials[id] : undefined;
  return credential ?? reject('not_found', 'No such credential.');
}

export function decideDeleteVault(state: VaultState, actsFor: string | null): Decision<VaultEvent, Superseding> {
  const vault = reachVault(state, actsFor);
  if (isRejection(vault)) return vault;
  const superseded = Object.values(vault.credentials).flatMap(secretsOf);
  return { kind: 'accepted', events: [{ type: 'vault.deleted', data: {} }], reply: { superseded } };
}

/** The secrets that a deleted vault named have been removed. */
export function decideClearVault(state: VaultState, secretIds: readonly string[]): Decision<VaultEvent, null> {
  if (state.status !== 'deleted' || state.left.every(({ secretId }) => !secretIds.includes(secretId))) {
    return { kind: 'unchanged', reply: null };
  }
  return {
    kind: 'accepted',
    events: [{ type: 'vault.cleared', data: { secretIds: [...secretIds] } }],
    reply: null,
  };
}

/** Tokens, or a bearer token, that are stored under `secretId`; null: none yet. */
export interface Grant {
  readonly secretId: string | null;
  readonly expiresAt: string | null;
  readonly refresh: RefreshSettings | null;
}

export interface SaveCredential extends Grant {
  readonly actsFor: string | null;
  readonly credentialId: string;
  readonly name: string;
  readonly type: CredentialType;
  readonly url: string;
  readonly scopes: readonly string[];
  readonly bodyHash: string;
}

export function decideSaveCredential(state: VaultState, command: SaveCredential): Decision<VaultEvent, Superseding> {
  const { actsFor, ...data } = command;
  const vault = reachVault(state, actsFor);
  if (isRejection(vault)) return vault;
  if (vault.gone.includes(data.credentialId)) return madeAndDeleted('credential');
  const known = Object.hasOwn(vault.credentials, data.credentialId) ? vault.credentials[data.credentialId] : undefined;
  const unused = data.secretId === null ? [] : [{ credentialId: data.credentialId, secretId: data.secretId }];
  if (known !== undefined) return repeated(known.bodyHash === data.bodyHash, { superseded: unused });
  const count = Object.keys(vault.credentials).length;
  if (count >= CREDENTIALS_MAX)
    return full(`The vault has ${count} credentials. Delete one, or use another vault.`, count);
  const ever = count + vault.gone.length;
  if (ever >= CREDENTIALS_EVER_MAX) return full(`The vault has had ${ever} credentials. Use another vault.`, ever);
  const events: VaultEvent[] = [{ type: 'credential.saved', data: { ...data, scopes: [...data.scopes] } }];
  return { kind: 'accepted', events, reply: { superseded: [] } };
}

export interface RotateCredential extends Grant {
  readonly actsFor: string | null;
  readonly credentialId: string;
  readonly type: CredentialType;
  readonly url: string;
  readonly keyHash: string;
  readonly bodyHash: string;
}

/** Other tokens replace the existing ones at once. Type and address stay: a token is valid for one place. */
export function decideRotateCredential(
  state: VaultState,
  command: RotateCredential,
): Decision<VaultEvent, Superseding> {
  const { actsFor, type, url, credentialId, secretId, expiresAt, refresh, keyHash, bodyHash } = command;
  const data = { credentialId, secretId, expiresAt, refresh, keyHash, bodyHash };
  const known = reachCredential(state, actsFor, data.credentialId);
  if (isRejection(known)) return known;
  const first = known.rotations.find(({ keyHash }) => keyHash === data.keyHash);
  const unused = data.secretId === null ? [] : [{ credentialId: known.id, secretId: data.secretId }];
  if (first !== undefined) return repeated(first.bodyHash === data.bodyHash, { superseded: unused });
  if (known.type !== type || known.url !== url) {
    return reject(
      'conflict',
      `The credential is of type ${known.type} for ${known.url}. Rotate it with the same type and url, or save another.`,
    );
  }
  const events: VaultEvent[] = [{ type: 'credential.rotated', data }];
  return { kind: 'accepted', events, reply: { superseded: secretsOf(known) } };
}

export function decideDeleteCredential(
  state: VaultState,
  { actsFor, credentialId }: { readonly actsFor: string | null; readonly credentialId: string },
): Decision<VaultEvent, Superseding> {
  const known = reachCredential(state, actsFor, credentialId);
  if (isRejection(known)) return known;
  const events: VaultEvent[] = [{ type: 'credential.deleted', data: { credentialId } }];
  return { kind: 'accepted', events, reply: { superseded: secretsOf(known) } };
}

/** Records a use of the tokens of a generation; null when they no longer exist. */
export function decideUseCredential(
  state: VaultState,
  use: EventData<'credential.used'>,
): Decision<VaultEvent, Credential | null> {
  const known = reachCredential(state, null, use.credentialId);
  if (isRejection(known) || known.generation !== use.generation) return { kind: 'unchanged', reply: null };
  return { kind: 'accepted', events: [{ type: 'credential.used', data: use }], reply: known };
}

/** The same request again, or its key with another body. */
function repeated<R>(isSame: boolean, reply: R): Decision<VaultEvent, R> {
  if (isSame) return { kind: 'unchanged', reply };
  return reject(
    'idempotency_conflict',
    'The idempotencyKey was used with another body. Send a new key with a new request.',
  );
}

function madeAndDeleted(what: string): Rejection {
  return reject('conflict', `The ${what} that this idempotencyKey made has been deleted. Send another key.`);
}

function full(message: string, count: number): Rejection {
  return reject('limit_exceeded', message, { details: { limit: 'credentials', count } });
}

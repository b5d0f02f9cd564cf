import type { Decision } from '../../domain/kernel/decision.ts';
import { isRejection, reject } from '../../domain/kernel/rejection.ts';
import type { Rejection } from '../../domain/kernel/rejection.ts';
import {
  decideClearVault,
  decideCreateVault,
  decideDeleteCredential,
  decideDeleteVault,
  decideRotateCredential,
  decideSaveCredential,
  reachCredential,
  reachVault,
} from '../../domain/vault/decide.ts';
import type { CreateVault, Grant, Superseding } from '../../domain/vault/decide.ts';
import type { CredentialType, RefreshSettings, VaultEvent } from '../../domain/vault/events.ts';
import type { Credential, OpenVault, VaultState } from '../../domain/vault/state.ts';
import { faultPoint } from '../../lib/fault-points.ts';
import { newId } from '../../lib/ids.ts';
import { requireKnown } from '../../lib/older-nodes.ts';
import type { AggregateRef } from '../../streams/subjects.ts';
import type { CommandLoop } from '../execute.ts';
import type { CommitMeta, Repository } from '../repository.ts';
import type { CredentialSecret, VaultSecrets } from './secrets.ts';

export interface VaultDeps {
  readonly loop: CommandLoop;
  readonly vaults: Repository<VaultState, VaultEvent>;
  readonly secrets: VaultSecrets;
}

export interface CreateVaultDeps extends VaultDeps {
  /** Whether some node does not know vaults: it would run turns without their credentials. */
  readonly isNew: (what: 'vaults') => boolean;
}

/** Who changes which vault. `actsFor`: the person that the request is made for; null: none. */
export interface VaultInput extends CommitMeta {
  readonly ref: AggregateRef;
  readonly actsFor: string | null;
}

export interface VaultChanged<T> {
  readonly kind: 'done';
  readonly of: T;
  /** Null: nothing was recorded. */
  readonly position: number | null;
}

export function vaultRef(tenant: string, id: string): AggregateRef {
  return { tenant, kind: 'vault', id };
}

/** Creates a vault; a repeated request is answered with the existing vault. @throws OlderNodesError */
export async function createVault(
  { loop, vaults, isNew }: CreateVaultDeps,
  { ref, command, ...meta }: Omit<VaultInput, 'actsFor'> & { readonly command: CreateVault },
): Promise<VaultChanged<OpenVault> | Rejection> {
  requireKnown(isNew, ['vaults']);
  const outcome = await loop.execute(vaults, ref, { ...meta, decide: (state) => decideCreateVault(state, command) });
  if (outcome.kind === 'rejected') return outcome;
  const { state } = await vaults.load(ref);
  // Another request is deleting it at this moment.
  if (state.status !== 'open') return reject('not_found', 'No such vault.');
  return { kind: 'done', of: state, position: outcome.position };
}

/** A vault with everything that any node has acknowledged. */
export async function readVault(
  { vaults }: Pick<VaultDeps, 'vaults'>,
  ref: AggregateRef,
  actsFor: string | null,
): Promise<OpenVault | Rejection> {
  const { state } = await vaults.refresh(ref);
  return reachVault(state, actsFor);
}

export async function readCredential(
  { vaults }: Pick<VaultDeps, 'vaults'>,
  { ref, actsFor }: Pick<VaultInput, 'ref' | 'actsFor'>,
  id: string,
): Promise<Credential | Rejection> {
  const { state } = await vaults.refresh(ref);
  return reachCredential(state, actsFor, id);
}

/** The event first: from then on nothing of it is used. Then its secrets are removed. */
export async function deleteVault(deps: VaultDeps, input: VaultInput): Promise<VaultChanged<null> | Rejection> {
  const { ref, actsFor, ...meta } = input;
  const outcome = await deps.loop.execute(deps.vaults, ref, {
    ...meta,
    decide: (state) => decideDeleteVault(state, actsFor),
  });
  if (outcome.kind === 'rejected') {
    // An earlier deletion may have died before the secrets were gone.
    await clearVault(deps, ref, meta);
    return outcome;
  }
  await faultPoint('vault.deleted');
  await clearVault(deps, ref, meta);
  return { kind: 'done', of: null, position: outcome.position };
}

/** Removes the secrets that a deleted vault left. Safe to repeat. */
export async function clearVault(
  { loop, vaults, secrets }: VaultDeps,
  ref: AggregateRef,
  meta: CommitMeta,
): Promise<void> {
  const { state } = await vaults.load(ref);
  if (state.status !== 'deleted' || state.left.length === 0) return;
  await secrets.remove({ tenant: ref.tenant, vaultId: ref.id }, state.left);
  const ids = state.left.map(({ secretId }) => secretId);
  await loop.execute(vaults, ref, { ...meta, decide: (newest) => decideClearVault(newest, ids) });
}

/** What a request supplies: the secret, and what may be shown of it. */
export interface SentGrant {
  /** Null: none yet. */
  readonly secret: CredentialSecret | null;
  readonly expiresAt: string | null;
  readonly refresh: RefreshSettings | null;
}

export interface SaveCredentialInput extends VaultInput {
  readonly credentialId: string;
  readonly name: string;
  readonly type: CredentialType;
  readonly url: string;
  readonly scopes: readonly string[];
  readonly bodyHash: string;
  readonly sent: SentGrant;
}

export async function saveCredential(
  deps: VaultDeps,
  input: SaveCredentialInput,
): Promise<VaultChanged<Credential> | Rejection> {
  const { actsFor, credentialId, name, type, url, scopes, bodyHash } = input;
  const command = { actsFor, credentialId, name, type, url, scopes, bodyHash };
  return await withSecret(deps, input, (state, grant) => decideSaveCredential(state, { ...command, ...grant }));
}

export interface RotateCredentialInput extends VaultInput {
  readonly credentialId: string;
  readonly type: CredentialType;
  readonly url: string;
  /** SHA-256 of the idempotency key, and whose it is. */
  readonly keyHash: string;
  readonly bodyHash: string;
  readonly sent: SentGrant;
}

export async function rotateCredential(
  deps: VaultDeps,
  input: RotateCredentialInput,
): Promise<VaultChanged<Credential> | Rejection> {
  const { actsFor, credentialId, type, url, keyHash, bodyHash } = input;
  const command = { actsFor, credentialId, type, url, keyHash, bodyHash };
  return await withSecret(deps, input, (state, grant) => decideRotateCredential(state, { ...command, ...grant }));
}

export async function deleteCredential(
  { loop, vaults, secrets }: VaultDeps,
  { ref, actsFor, credentialId, ...meta }: VaultInput & { readonly credentialId: string },
): Promise<VaultChanged<null> | Rejection> {
  const decide = (state: VaultState) => decideDeleteCredential(state, { actsFor, credentialId });
  const outcome = await loop.execute(vaults, ref, { ...meta, decide });
  if (outcome.kind === 'rejected') return outcome;
  await secrets.remove({ tenant: ref.tenant, vaultId: ref.id }, outcome.reply.superseded);
  return { kind: 'done', of: null, position: outcome.position };
}

type WithSecret = VaultInput & { readonly credentialId: string; readonly sent: SentGrant };

/**
 * Stores a secret under a new id, records it, and removes what it supersedes. Each step is complete before the next
 * begins: wherever a crash comes in between, the secret that the log names exists. A crash may leave a secret that
 * nothing names; it is deleted with the tenant.
 */
async function withSecret(
  { loop, vaults, secrets }: VaultDeps,
  { ref, actsFor, credentialId, sent, actor, causation }: WithSecret,
  decide: (state: VaultState, grant: Grant) => Decision<VaultEvent, Superseding>,
): Promise<VaultChanged<Credential> | Rejection> {
  const place = { tenant: ref.tenant, vaultId: ref.id };
  // Before anything is stored: most refusals have this reason.
  const reached = reachVault((await vaults.refresh(ref)).state, actsFor);
  if (isRejection(reached)) return reached;
  const { secret, expiresAt, refresh } = sent;
  const secretId = secret === null ? null : newId('se');
  if (secret !== null && secretId !== null) await secrets.put(place, { credentialId, secretId }, secret);
  await faultPoint('credential.stored');
  const grant = { secretId, expiresAt, refresh };
  const outcome = await loop.execute(vaults, ref, { actor, causation, decide: (state) => decide(state, grant) });
  await faultPoint('credential.recorded');
  if (outcome.kind === 'rejected') {
    if (secretId !== null) await secrets.remove(place, [{ credentialId, secretId }]);
    return outcome;
  }
  await secrets.remove(place, outcome.reply.superseded);
  const of = reachCredential((await vaults.load(ref)).state, actsFor, credentialId);
  return isRejection(of) ? of : { kind: 'done', of, position: outcome.position };
}

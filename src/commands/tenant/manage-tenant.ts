import { randomBytes } from 'node:crypto';
import type { Rejection } from '../../domain/kernel/rejection.ts';
import { decideDeleteIssuer, decideDeleteKey, decideSaveIssuer, decideSaveKey } from '../../domain/tenant/decide.ts';
import type { Issuer } from '../../domain/tenant/events.ts';
import type { KnownTenant } from '../../domain/tenant/state.ts';
import { sha256Hex } from '../../lib/hash.ts';
import { changeTenant } from './change-tenant.ts';
import type { Changed, ChangeTenantInput, ChangeTenantDeps } from './change-tenant.ts';

export interface KeySecret {
  readonly rotated: boolean;
  /** Shown only once; null when the client supplied the hash of its own. */
  readonly key: string | null;
}

/** Saves a key: the Host makes it, or the client supplies the hash of its own. The old secret is invalid at once. */
export async function saveKey(
  deps: ChangeTenantDeps,
  input: ChangeTenantInput & {
    readonly keyId: string;
    readonly role: 'application' | 'management';
    readonly credentialHash: string | null;
  },
): Promise<Changed<KeySecret> | Rejection> {
  const { keyId, role, credentialHash } = input;
  const prefix = role === 'management' ? 'mk' : 'ak';
  const key = credentialHash === null ? `${prefix}_${randomBytes(32).toString('base64url')}` : null;
  const hash = credentialHash ?? sha256Hex(key ?? '');
  const changed = await changeTenant(deps, input, (state) => decideSaveKey(state, { keyId, role, hash }));
  return changed.kind === 'rejected' ? changed : { ...changed, reply: { ...changed.reply, key } };
}

export async function deleteKey(
  deps: ChangeTenantDeps,
  input: ChangeTenantInput & { readonly keyId: string },
): Promise<Changed<null> | Rejection> {
  return await changeTenant(deps, input, (state) => decideDeleteKey(state, input.keyId));
}

export async function saveIssuer(
  deps: ChangeTenantDeps,
  input: ChangeTenantInput & { readonly name: string; readonly issuer: Issuer },
): Promise<Changed<null> | Rejection> {
  return await changeTenant(deps, input, (state) => decideSaveIssuer(state, input.name, input.issuer));
}

export async function deleteIssuer(
  deps: ChangeTenantDeps,
  input: ChangeTenantInput & { readonly name: string },
): Promise<Changed<null> | Rejection> {
  return await changeTenant(deps, input, (state) => decideDeleteIssuer(state, input.name));
}

/** The tenant as this node folds it. */
export async function readTenant(deps: ChangeTenantDeps, tenantId: string): Promise<KnownTenant | null> {
  const { state } = await deps.tenants.refresh({ tenant: tenantId, kind: 'tenant', id: tenantId });
  return state.status === 'absent' ? null : state;
}

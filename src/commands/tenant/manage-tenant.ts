import { randomBytes } from 'node:crypto';
import type { Rejection } from '../../domain/kernel/rejection.ts';
import type { Decision } from '../../domain/kernel/decision.ts';
import {
  decideDeleteIssuer,
  decideDeleteKey,
  decideSaveIssuer,
  decideSaveKey,
  decideSeed,
} from '../../domain/tenant/decide.ts';
import type { Issuer, TenantEvent } from '../../domain/tenant/events.ts';
import type { KnownTenant, TenantState } from '../../domain/tenant/state.ts';
import { sha256Hex } from '../../lib/hash.ts';
import type { CommandLoop } from '../execute.ts';
import type { CommitMeta, Repository } from '../repository.ts';

export interface ManageTenantParts {
  readonly loop: CommandLoop;
  readonly tenants: Repository<TenantState, TenantEvent>;
  /** Makes the tenant's credentials known to every node; on this one they hold when it resolves. */
  readonly publish: (tenant: TenantState, position: number) => Promise<void>;
}

export interface ManageInput extends CommitMeta {
  readonly tenantId: string;
}

/** What a change left behind: the tenant as it is now, and where its commit stands (null: nothing was changed). */
export interface Changed<R> {
  readonly kind: 'done';
  readonly reply: R;
  readonly tenant: KnownTenant;
  readonly position: number | null;
}

export interface KeySecret {
  readonly rotated: boolean;
  /** Shown this once; null when the client brought the hash of its own. */
  readonly key: string | null;
}

/** Saves a key: the Host makes it, or the client brings the hash of its own. The old secret is dead at once. */
export async function saveKey(
  parts: ManageTenantParts,
  input: ManageInput & {
    readonly keyId: string;
    readonly role: 'application' | 'management';
    readonly credentialHash: string | null;
  },
): Promise<Changed<KeySecret> | Rejection> {
  const { keyId, role, credentialHash } = input;
  const prefix = role === 'management' ? 'mk' : 'ak';
  const key = credentialHash === null ? `${prefix}_${randomBytes(32).toString('base64url')}` : null;
  const hash = credentialHash ?? sha256Hex(key ?? '');
  const changed = await change(parts, input, (state) => decideSaveKey(state, { keyId, role, hash }));
  return changed.kind === 'rejected' ? changed : { ...changed, reply: { ...changed.reply, key } };
}

export async function deleteKey(
  parts: ManageTenantParts,
  input: ManageInput & { readonly keyId: string },
): Promise<Changed<null> | Rejection> {
  return await change(parts, input, (state) => decideDeleteKey(state, input.keyId));
}

export async function saveIssuer(
  parts: ManageTenantParts,
  input: ManageInput & { readonly name: string; readonly issuer: Issuer },
): Promise<Changed<null> | Rejection> {
  return await change(parts, input, (state) => decideSaveIssuer(state, input.name, input.issuer));
}

export async function deleteIssuer(
  parts: ManageTenantParts,
  input: ManageInput & { readonly name: string },
): Promise<Changed<null> | Rejection> {
  return await change(parts, input, (state) => decideDeleteIssuer(state, input.name));
}

/** Writes what is absent of a tenant's configuration. */
export async function seedTenant(
  parts: ManageTenantParts,
  input: ManageInput,
): Promise<Changed<{ applied: string[]; kept: string[] }> | Rejection> {
  return await change(parts, input, decideSeed);
}

/** The tenant as this node folds it. */
export async function readTenant(parts: ManageTenantParts, tenantId: string): Promise<KnownTenant | null> {
  const { state } = await parts.tenants.refresh({ tenant: tenantId, kind: 'tenant', id: tenantId });
  return state.status === 'absent' ? null : state;
}

async function change<R>(
  parts: ManageTenantParts,
  { tenantId, actor, causation }: ManageInput,
  decide: (state: TenantState) => Decision<TenantEvent, R>,
): Promise<Changed<R> | Rejection> {
  const ref = { tenant: tenantId, kind: 'tenant', id: tenantId } as const;
  const outcome = await parts.loop.execute(parts.tenants, ref, { actor, causation, decide });
  if (outcome.kind === 'rejected') return outcome;
  const { state, position } = await parts.tenants.load(ref);
  if (state.status === 'absent') throw new Error('a tenant vanished while it was being changed');
  await parts.publish(state, position);
  return { kind: 'done', reply: outcome.reply, tenant: state, position: outcome.position };
}

import { createHmac, randomBytes } from 'node:crypto';
import { reject } from '../../domain/kernel/rejection.ts';
import type { Rejection } from '../../domain/kernel/rejection.ts';
import { decideCreateTenant } from '../../domain/tenant/decide.ts';
import type { TenantEvent } from '../../domain/tenant/events.ts';
import type { TenantState } from '../../domain/tenant/state.ts';
import { canonicalJson } from '../../lib/canonical-json.ts';
import { sha256Hex } from '../../lib/hash.ts';
import { studioKey } from '../../lib/studio-key.ts';
import { newId } from '../../lib/ids.ts';
import type { CommandLoop } from '../execute.ts';
import type { CommitMeta, Repository } from '../repository.ts';

export interface CreateTenantBody {
  readonly name: string;
  readonly tenantId?: string | undefined;
  readonly principalId: string;
  readonly credentialHash?: string | undefined;
  readonly studioCredentialHash?: string | undefined;
}

export interface CreateTenantInput extends CommitMeta {
  readonly body: CreateTenantBody;
  readonly idempotencyKey: string | null;
}

export interface CreateTenantDeps {
  readonly loop: CommandLoop;
  readonly tenants: Repository<TenantState, TenantEvent>;
  /** The Host admin key: studio keys are derived from it. */
  readonly adminKey: string;
  /** The tenant that was created with this idempotency key, as far as this node knows. */
  readonly idOf: (idempotencyKey: string) => string | undefined;
  /** Makes the data key of a new tenant; false while another one with the same id is being deleted. */
  readonly prepare: (tenantId: string) => Promise<boolean>;
  /** Makes the tenant's credentials known to every node; called with the state that holds them. */
  readonly publish: (tenant: TenantState, position: number) => Promise<void>;
}

export interface TenantCreated {
  readonly kind: 'done';
  readonly tenant: Exclude<TenantState, { status: 'absent' }>;
  /** Shown only once; null on a repetition and when the client supplied its own. */
  readonly applicationKey: string | null;
  readonly replayed: boolean;
  readonly position: number;
}

const CROCKFORD = '0123456789abcdefghjkmnpqrstvwxyz';

/**
 * Creates a tenant with its first application key. Without a `tenantId` the id is derived from the idempotency key, so
 * that repetitions on any node meet in the same aggregate and the log lets one of them win.
 */
export async function createTenant(
  deps: CreateTenantDeps,
  input: CreateTenantInput,
): Promise<TenantCreated | Rejection> {
  const { body, idempotencyKey, actor, causation } = input;
  const earlier = idempotencyKey === null ? undefined : deps.idOf(idempotencyKey);
  if (earlier !== undefined && body.tenantId !== undefined && earlier !== body.tenantId) return usedKey();
  const tenantId = body.tenantId ?? earlier ?? generatedTenantId(deps.adminKey, idempotencyKey);
  const key = body.credentialHash === undefined ? `ak_${randomBytes(32).toString('base64url')}` : null;
  const credentialHash = body.credentialHash ?? sha256Hex(key ?? '');
  const studioCredentialHash = body.studioCredentialHash ?? sha256Hex(studioKey(deps.adminKey, tenantId));
  const bodyHash = sha256Hex(canonicalJson(body));
  const ref = { tenant: tenantId, kind: 'tenant', id: tenantId } as const;
  const { name, principalId } = body;
  const command = { tenantId, name, principalId, credentialHash, studioCredentialHash, bodyHash, idempotencyKey };
  if (!(await deps.prepare(tenantId))) {
    return reject('tenant_conflict', `Tenant ${tenantId} is being deleted. Try again later.`);
  }
  const outcome = await deps.loop.execute(deps.tenants, ref, {
    actor,
    causation,
    decide: (state) => decideCreateTenant(state, command),
  });
  if (outcome.kind === 'rejected') return outcome;
  const { state, position } = await deps.tenants.load(ref);
  if (state.status === 'absent') throw new Error('a tenant vanished while it was being created');
  await deps.publish(state, position);
  const { replayed } = outcome.reply;
  return { kind: 'done', tenant: state, applicationKey: replayed ? null : key, replayed, position };
}

function generatedTenantId(adminKey: string, idempotencyKey: string | null): string {
  if (idempotencyKey === null) return newId('tn');
  const digest = createHmac('sha256', adminKey).update(`tenant\0${idempotencyKey}`).digest();
  return `tn_${[...digest.subarray(0, 26)].map((byte) => CROCKFORD.charAt(byte & 31)).join('')}`;
}

function usedKey(): Rejection {
  return reject(
    'idempotency_conflict',
    'This idempotencyKey was used with another body. Use a new key for a new tenant.',
  );
}

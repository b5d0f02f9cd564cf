import type { Decision } from '../../domain/kernel/decision.ts';
import type { Rejection } from '../../domain/kernel/rejection.ts';
import type { TenantEvent } from '../../domain/tenant/events.ts';
import type { KnownTenant, TenantState } from '../../domain/tenant/state.ts';
import type { CommandLoop } from '../execute.ts';
import type { CommitMeta, Repository } from '../repository.ts';

export interface ChangeTenantDeps {
  readonly loop: CommandLoop;
  readonly tenants: Repository<TenantState, TenantEvent>;
  /** Makes the tenant's credentials and state known to every node; on this one they apply when it resolves. */
  readonly publish: (tenant: TenantState, position: number) => Promise<void>;
}

export interface ChangeTenantInput extends CommitMeta {
  readonly tenantId: string;
}

/** What a change left behind: the tenant as it is now, and the position of its commit (null: nothing was changed). */
export interface Changed<R> {
  readonly kind: 'done';
  readonly reply: R;
  readonly tenant: KnownTenant;
  readonly position: number | null;
}

/** Records a change of a tenant and publishes what it is now. */
export async function changeTenant<R>(
  deps: ChangeTenantDeps,
  { tenantId, actor, causation }: ChangeTenantInput,
  decide: (state: TenantState) => Decision<TenantEvent, R>,
): Promise<Changed<R> | Rejection> {
  const ref = { tenant: tenantId, kind: 'tenant', id: tenantId } as const;
  const outcome = await deps.loop.execute(deps.tenants, ref, { actor, causation, decide });
  if (outcome.kind === 'rejected') return outcome;
  const { state, position } = await deps.tenants.load(ref);
  if (state.status === 'absent') throw new Error('a tenant vanished while it was being changed');
  await deps.publish(state, position);
  return { kind: 'done', reply: outcome.reply, tenant: state, position: outcome.position };
}

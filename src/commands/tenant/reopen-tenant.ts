import { decideReopenOverdue } from '../../domain/tenant/decide.ts';
import type { Clock } from '../../lib/clock.ts';
import type { CommitMeta } from '../repository.ts';
import { changeTenant } from './change-tenant.ts';
import type { ChangeTenantDeps } from './change-tenant.ts';

export interface ReopenTenantDeps extends ChangeTenantDeps {
  readonly clock: Clock;
}

const SWEEP: CommitMeta = { actor: 'keeper', causation: 'drain interrupted' };

/** Opens a tenant whose deletion ended with its node before it began, once its time is over. */
export async function reopenOverdue(deps: ReopenTenantDeps, tenantId: string): Promise<void> {
  const nowMs = deps.clock();
  const { state } = await deps.tenants.load({ tenant: tenantId, kind: 'tenant', id: tenantId });
  if (decideReopenOverdue(state, nowMs).kind !== 'accepted') return;
  await changeTenant(deps, { tenantId, ...SWEEP }, (current) => decideReopenOverdue(current, nowMs));
}

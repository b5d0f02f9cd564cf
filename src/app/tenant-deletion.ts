import type { CommandLoop } from '../commands/execute.ts';
import type { Repository } from '../commands/repository.ts';
import type { DeleteTenantDeps } from '../commands/tenant/delete-tenant.ts';
import { reopenOverdue } from '../commands/tenant/reopen-tenant.ts';
import { decideCancel } from '../domain/session/decide.ts';
import type { SessionEvent } from '../domain/session/events.ts';
import type { SessionState } from '../domain/session/state.ts';
import type { TenantEvent } from '../domain/tenant/events.ts';
import type { TenantState } from '../domain/tenant/state.ts';
import type { ObjectStore } from '../drivers/objects/port.ts';
import { TenantDeletion } from '../engine/tenant-deletion.ts';
import { UnavailableError } from '../lib/unavailable.ts';
import type { Clock } from '../lib/clock.ts';
import type { OnRound } from '../lib/background-task.ts';
import type { Logger } from '../lib/logger.ts';
import type { Directory } from '../projections/directory/directory.ts';
import type { DirectoryTenant } from '../projections/directory/entries.ts';
import { eraseRows } from '../projections/erase.ts';
import type { ProjectionProgress } from '../projections/progress.ts';
import type { ReadStore } from '../projections/read-store/pool.ts';
import type { SessionQueries } from '../projections/sessions/queries.ts';
import { scrub } from '../projections/scrub.ts';
import type { LogPorts } from './log.ts';
import { PROJECTIONS } from './projectors.ts';

export interface DeletionDeps {
  readonly log: LogPorts;
  readonly pool: ReadStore;
  readonly directory: Directory;
  readonly progress: ProjectionProgress;
  readonly queries: SessionQueries;
  readonly loop: CommandLoop;
  readonly tenants: Repository<TenantState, TenantEvent>;
  readonly sessions: Repository<SessionState, SessionEvent>;
  readonly objects: ObjectStore;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly onRound: OnRound;
}

const CAUGHT_UP_WITHIN_MS = 30_000;

/** What deletes tenants, and what the Admin route needs to request it. */
export function tenantDeletion(deps: DeletionDeps): {
  readonly deletion: TenantDeletion;
  readonly remove: DeleteTenantDeps;
} {
  const { log, pool, directory, queries, loop, tenants, sessions, clock, logger } = deps;
  const publish: DeleteTenantDeps['publish'] = async (tenant, position) => await directory.publish(tenant, position);
  const deletion = new TenantDeletion({
    store: log.store,
    snapshots: log.snapshots,
    eraseSecrets: async (tenantId) => await log.secrets.eraseAll(tenantId),
    keys: {
      destroy: async (tenantId) => await log.keyring.destroy(tenantId),
      finish: async (tenantId) => await log.keyring.finish(tenantId),
    },
    directory: {
      deleting: () => [
        ...new Set([
          ...directory.tenants.flatMap((tenant) => (isLeaving(tenant) ? [tenant.id] : [])),
          ...log.keyring.unfinished,
        ]),
      ],
      draining: () => directory.tenants.flatMap(({ id, state }) => (state === 'draining' ? [id] : [])),
      remove: async (tenantId) => await directory.remove(tenantId),
    },
    reopenOverdue: async (tenantId) => await reopenOverdue({ loop, tenants, publish, clock }, tenantId),
    caughtUp: async () => await caughtUp(deps),
    eraseRows: async (tenantId, kinds) => await eraseRows(pool, PROJECTIONS, tenantId, kinds),
    scrubRows: async () => await scrub({ pool, logger }),
    eraseObjects: async (tenantId) => await deps.objects.eraseTenant(tenantId),
    logger,
    onRound: deps.onRound,
  });
  const remove: DeleteTenantDeps = {
    loop,
    tenants,
    publish,
    clock,
    activeSessions: async (tenantId) => {
      await caughtUp(deps);
      return await queries.active(tenantId);
    },
    cancelTurn: async (tenant, id, { actor, causation }) => {
      const command = { requestId: causation, subject: null, reason: 'the tenant is being deleted', withQueue: true };
      await loop.execute(
        sessions,
        { tenant, kind: 'session', id },
        {
          actor,
          causation,
          decide: (state) => decideCancel(state, command, { nowMs: clock(), jitter: 0, workerId: null }),
        },
      );
    },
    isErasing: (tenantId) => isLeaving(directory.tenant(tenantId)) || log.keyring.unfinished.includes(tenantId),
    erase: async (tenantId) => await deletion.erase(tenantId),
  };
  return { deletion, remove };
}

function isLeaving(tenant: DirectoryTenant | undefined): boolean {
  return tenant?.state === 'deleting';
}

async function caughtUp({ log, progress }: DeletionDeps): Promise<void> {
  for (const { schema, kinds } of PROJECTIONS) {
    for (let shard = 0; shard < log.source.shards; shard++) {
      const newest = await log.source.newest(shard, kinds);
      if (newest > 0 && !(await progress.reach(schema, shard, newest, CAUGHT_UP_WITHIN_MS))) {
        throw new UnavailableError('database', 'the read models do not catch up with the log');
      }
    }
  }
}

import { ActionPlaces } from '../commands/session/action-places.ts';
import type { EndedActions } from '../commands/session/action-places.ts';
import { ActionClaims } from '../commands/session/claim-actions.ts';
import { ClaimPlans } from '../commands/session/claim-plans.ts';
import { pendingActions } from '../commands/session/hold-action.ts';
import type { HoldActionParts } from '../commands/session/hold-action.ts';
import { ClaimLeases } from '../engine/claim-leases.ts';
import { delay } from '../lib/backoff.ts';
import { systemClock } from '../lib/clock.ts';
import type { Logger } from '../lib/logger.ts';
import { OpenActions } from '../projections/actions/open-actions.ts';
import type { ActionIndex } from '../projections/actions/queries.ts';
import { actionView } from '../projections/actions/views.ts';
import { ReadStoreUnavailableError } from '../projections/unavailable.ts';
import type { Config } from './config.ts';
import type { LogParts } from './log.ts';
import type { NodeRegistry } from './node-registry.ts';
import type { Stack } from '../lib/stack.ts';
import { WorkSignals } from './work-signals.ts';
import type { WorkSignalParts } from './work-signals.ts';

/** Of an action that has ended the database knows where it was; one that stands still is not waited for, ms. */
const ENDED_WITHIN_MS = 1_000;

interface LeaseOptions {
  readonly log: LogParts;
  readonly config: Config;
  readonly logger: Logger;
  readonly stack: Stack;
}

/** What is known of executors that hold claims; every node knows it. */
export async function openClaimLeases({ log, config, logger, stack }: LeaseOptions): Promise<ClaimLeases> {
  const { leases, source } = log;
  const ask = async (shard: number): Promise<number> => await source.newest(shard, ['session']);
  const options = { leases, clock: systemClock, logger, leaseMs: config.leaseMs, shards: source.shards, ask };
  const claims = new ClaimLeases(options);
  await claims.start();
  stack.defer('claim leases', async () => await claims.stop());
  return claims;
}

interface ExecutorOptions extends LeaseOptions {
  readonly actions: ActionIndex;
  readonly write: Pick<HoldActionParts, 'loop' | 'sessions'>;
  readonly leases: ClaimLeases;
  readonly registry: NodeRegistry;
}

/** How executors find their actions, take them, and keep them. None of it waits for the database. */
export async function executorParts({ log, config, logger, stack, actions, write, leases, registry }: ExecutorOptions) {
  const open = new OpenActions({ source: log.source, seed: async () => await actions.open(), logger });
  // A node without these roles has no route that asks for actions.
  if (config.roles.includes('commands') || config.roles.includes('reads')) await open.start();
  stack.defer('open actions', async () => await open.stop());
  const list = {
    reached: async () => await open.reached(),
    pending: open.pending.bind(open),
    find: open.find.bind(open),
    claimedUnder: open.claimedUnder.bind(open),
  };
  const { loop, sessions } = write;
  const places = new ActionPlaces(list, endedActions(actions));
  // 0.12 has taken heartbeats out of the history.
  const isHistoryAsked = (): boolean => registry.hasOlderThan([0, 12]);
  const holding: HoldActionParts = {
    ...{ loop, sessions, places, leases, clock: systemClock },
    ...{ leaseMs: config.leaseMs, isHistoryAsked },
  };
  const claims = new ActionClaims({ ...holding, open: list, plans: new ClaimPlans(log.leases) });
  const show: WorkSignalParts['show'] = async (executor, pending) => {
    places.remember(executor, pending);
    const found = await pendingActions(sessions, executor, pending);
    return found.map(({ ref, session, turnId, action }) => actionView(action, turnId, { ...session, id: ref.id }));
  };
  const work = new WorkSignals({ open, show, logger });
  stack.defer('work signals', () => work.stop());
  return { open: list, places, holding, claims, work };
}

function endedActions(actions: ActionIndex): EndedActions {
  return async (executor, actionId) => {
    const answered = new AbortController();
    try {
      const late = delay(ENDED_WITHIN_MS, answered.signal).then(() => undefined);
      return await Promise.race([actions.sessionOf(executor, actionId), late]);
    } catch (error) {
      if (error instanceof ReadStoreUnavailableError) return undefined;
      throw error;
    } finally {
      answered.abort();
    }
  };
}

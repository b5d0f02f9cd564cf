import { ActionLocator } from '../commands/session/action-locator.ts';
import type { EndedActions, OpenActionList } from '../commands/session/action-locator.ts';
import { ActionClaims } from '../commands/session/claim-actions.ts';
import { ClaimPlans } from '../commands/session/claim-plans.ts';
import { pendingActions } from '../commands/session/hold-action.ts';
import type { HoldActionDeps } from '../commands/session/hold-action.ts';
import { isUnavailableError } from '../lib/unavailable.ts';
import { delay } from '../lib/backoff.ts';
import { OpenActions } from '../projections/actions/open-actions.ts';
import { actionIndex } from '../projections/actions/queries.ts';
import type { ActionIndex } from '../projections/actions/queries.ts';
import { actionView } from '../projections/actions/views.ts';
import type { Services } from './services.ts';
import type { Stack } from '../lib/stack.ts';
import { WorkSignals } from './work-signals.ts';
import type { WorkSignalDeps } from './work-signals.ts';

/** The database knows where an ended action was; how long to wait for a stalled database, ms. */
const ENDED_WITHIN_MS = 1_000;

/** How executors find, take and keep their actions, and people find what they have to answer. */
export interface ExecutorWork {
  readonly index: ActionIndex;
  readonly open: OpenActionList;
  readonly places: ActionLocator;
  readonly holding: HoldActionDeps;
  readonly claims: ActionClaims;
  readonly work: WorkSignals;
}

/** Starts what knows the open actions of the log. Only for ended ones does it wait for the database. */
export async function openExecutorWork(services: Services, stack: Stack): Promise<ExecutorWork> {
  const { log, reads, write, leases, metrics } = services;
  const { config, logger, clock } = services.options;
  const actions = actionIndex(reads.sessions);
  const open = new OpenActions({
    source: log.source,
    seed: async () => await actions.open(),
    logger,
    onRound: metrics.onRound,
  });
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
  const places = new ActionLocator(list, endedActions(actions));
  const holding: HoldActionDeps = { loop, sessions, places, leases, clock, leaseMs: config.leaseMs };
  const claims = new ActionClaims({ ...holding, open: list, plans: new ClaimPlans(log.leases) });
  const show: WorkSignalDeps['show'] = async (executor, pending) => {
    places.remember(executor, pending);
    const found = await pendingActions(sessions, executor, pending);
    return found.map(({ ref, session, turnId, action }) => actionView(action, turnId, { ...session, id: ref.id }));
  };
  const work = new WorkSignals({ open, show, logger });
  stack.defer('work signals', () => work.stop());
  return { index: actions, open: list, places, holding, claims, work };
}

function endedActions(actions: ActionIndex): EndedActions {
  return async (executor, actionId) => {
    const answered = new AbortController();
    try {
      const late = delay(ENDED_WITHIN_MS, answered.signal).then(() => undefined);
      return await Promise.race([actions.sessionOf(executor, actionId), late]);
    } catch (error) {
      if (isUnavailableError(error, 'database')) return undefined;
      throw error;
    } finally {
      answered.abort();
    }
  };
}

import { Authenticator } from '../auth/authenticate.ts';
import { TokenVerifier } from '../auth/issuers.ts';
import { Fairness } from '../http/fairness.ts';
import type { GateOptions } from '../http/gate.ts';
import { RequestLog } from '../http/request-log.ts';
import { WorkShares } from '../http/work-shares.ts';
import { monotonicClock } from '../lib/clock.ts';
import type { Clock } from '../lib/clock.ts';
import { loopTurnMs } from '../lib/loop-turn.ts';
import { egressClient } from '../lib/egress-client.ts';
import type { Logger } from '../lib/logger.ts';
import type { Directory } from '../projections/directory/directory.ts';
import type { Config } from './config.ts';
import type { LogPorts } from './log.ts';
import type { Metrics } from './metrics/metrics.ts';
import type { Stack } from '../lib/stack.ts';

/** How long fetching a key set may take, ms; the verifier's is shorter. */
const KEY_SET_MS = 5_000;
/** How long a request waits for its tenant's others, ms, and how many of one tenant wait. */
const WORK_WAIT_MS = 20_000;
const WORK_WAITING_MAX = 1_000;

export interface GateDeps {
  readonly config: Config;
  readonly adminKey: string;
  readonly log: LogPorts;
  readonly directory: Directory;
  readonly metrics: Metrics;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly features: readonly string[];
  readonly stack: Stack;
}

/** What every request has to pass: whose credential it is, how often it may come, and whether the log can be reached. */
export function openGate(deps: GateDeps): GateOptions {
  const { config, adminKey, log, directory, metrics, clock, logger, features, stack } = deps;
  const keySets = egressClient({ policy: config.egress, connectMs: KEY_SET_MS, silenceMs: KEY_SET_MS });
  stack.defer('key sets', keySets.close);
  const tokens = new TokenVerifier(directory, keySets.fetch, clock);
  return {
    authenticator: new Authenticator({ index: directory, tokens, adminKey }),
    fairness: new Fairness(config.fairness, monotonicClock, (reason) => metrics.refusals.inc({ reason })),
    shares: sharesOf(metrics),
    requestLog: new RequestLog({ logger, clock: monotonicClock, all: config.accessLog }),
    features,
    logReachable: log.connected,
    bodyBytesMax: config.bodyBytesMax,
  };
}

function sharesOf(metrics: Metrics): WorkShares {
  return new WorkShares({
    clock: monotonicClock,
    measureTurn: loopTurnMs,
    waitMs: WORK_WAIT_MS,
    waitingMax: WORK_WAITING_MAX,
    onWaited: (ms) => metrics.workWaits.observe(ms / 1000),
    onRefused: () => metrics.refusals.inc({ reason: 'work' }),
  });
}

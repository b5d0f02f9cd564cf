import { ClaimLeases } from '../engine/claim-leases.ts';
import { systemClock } from '../lib/clock.ts';
import type { Clock } from '../lib/clock.ts';
import type { Logger } from '../lib/logger.ts';
import type { Stack } from '../lib/stack.ts';
import type { Config } from './config.ts';
import type { LogPorts } from './log.ts';
import type { Metrics } from './metrics/metrics.ts';

interface LeaseOptions {
  readonly log: LogPorts;
  readonly config: Config;
  readonly metrics: Metrics;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly stack: Stack;
}

/** What is known of executors that hold claims; every node knows it. */
export async function openClaimLeases({ log, config, stack, ...deps }: LeaseOptions): Promise<ClaimLeases> {
  const { leases, source } = log;
  const ask = async (shard: number): Promise<number> => await source.newest(shard, ['session']);
  const { onRound } = deps.metrics;
  const { clock, logger } = deps;
  const options = {
    leases,
    clock,
    steady: systemClock,
    logger,
    leaseMs: config.leaseMs,
    shards: source.shards,
    ask,
    onRound,
  };
  const claims = new ClaimLeases(options);
  await claims.start();
  stack.defer('claim leases', async () => await claims.stop());
  return claims;
}

import {
  agentType,
  artifactType,
  budgetType,
  quotaType,
  rosterType,
  sandboxType,
  sessionType,
  tenantType,
  vaultType,
} from '../commands/aggregate.ts';
import { CommandLoop } from '../commands/execute.ts';
import { Repository } from '../commands/repository.ts';
import { ReceiptArchive } from '../commands/session/receipt-archive.ts';
import { ROSTER_ID } from '../domain/sandbox/roster.ts';
import { InheritedConversations } from '../engine/inherited-conversations.ts';
import type { Clock } from '../lib/clock.ts';
import type { Logger } from '../lib/logger.ts';
import type { OwnWrites } from '../projections/own-writes.ts';
import type { Config } from './config.ts';
import type { LogPorts } from './log.ts';
import type { Metrics } from './metrics/metrics.ts';
import type { HeardWrites } from './read-models.ts';
import type { Recorded } from './traces.ts';

interface WriteSideDeps {
  readonly log: LogPorts;
  readonly config: Config;
  readonly clock: Clock;
  readonly metrics: Metrics;
  /** Null: traces are off. */
  readonly traced: Recorded | null;
  /** What lists of sessions are to show as soon as it is projected. */
  readonly ownWrites: OwnWrites;
  /** The same of other lists. What this node has recorded may come back by the live feed after it has been answered. */
  readonly heard: Pick<HeardWrites, 'sandboxes'>;
  readonly logger: Logger;
}

/**
 * The command loop, and the folds of every kind of aggregate, which the live feed keeps up to date; `caches` are all
 * that hold a tenant's data in memory.
 */
export function writeSide({ log, config, clock, metrics, traced, ownWrites, heard, logger }: WriteSideDeps) {
  const onSnapshotError = (error: unknown): void => {
    metrics.snapshotFailures.inc();
    logger.warn({ err: error }, 'a snapshot could not be written');
  };
  const small = Math.ceil(config.cacheBytes / 16);
  const tenants = new Repository({ type: tenantType, store: log.store, cacheBytes: small });
  const agents = new Repository({ type: agentType, store: log.store, cacheBytes: small });
  const snapshotted = { store: log.store, snapshots: log.folds, onSnapshotError };
  const budgets = new Repository({ type: budgetType, ...snapshotted, cacheBytes: small });
  const onAppended: Recorded = (before, stored) => {
    metrics.recorded(stored.commit);
    traced?.(before, stored);
    ownWrites.recorded(stored);
  };
  const receipts = new ReceiptArchive({
    store: log.store,
    snapshots: log.folds,
    cacheBytes: Math.ceil(config.cacheBytes / 8),
  });
  const sessions = new Repository({
    ...{ type: sessionType, ...snapshotted, cacheBytes: config.cacheBytes, onAppended },
    beforeSnapshot: async (ref, state) => {
      if (state.status === 'open') await receipts.prepare(ref, state.receipts);
    },
  });
  const artifacts = new Repository({ type: artifactType, ...snapshotted, cacheBytes: small });
  const quotas = new Repository({ type: quotaType, ...snapshotted, cacheBytes: small });
  const vaults = new Repository({ type: vaultType, ...snapshotted, cacheBytes: small });
  const sandboxes = new Repository({
    ...{ type: sandboxType, ...snapshotted, cacheBytes: small },
    onAppended: (_, stored) => heard.sandboxes.heard(stored),
  });
  const rosters = new Repository({ type: rosterType, ...snapshotted, cacheBytes: small });
  log.feed.listen({
    onCommit: (commit) => {
      if (commit.ref.kind === 'session') sessions.live(commit);
      else if (commit.ref.kind === 'agent') agents.live(commit);
      else if (commit.ref.kind === 'tenant') tenants.live(commit);
      else if (commit.ref.kind === 'budget') budgets.live(commit);
      else if (commit.ref.kind === 'artifact') artifacts.live(commit);
      else if (commit.ref.kind === 'quota') quotas.live(commit);
      else if (commit.ref.kind === 'vault') vaults.live(commit);
      else if (commit.ref.kind === 'sandbox') (commit.ref.id === ROSTER_ID ? rosters : sandboxes).live(commit);
    },
    onGap: ({ shard }) => {
      for (const one of [sessions, agents, tenants, budgets, artifacts, quotas, vaults, sandboxes, rosters])
        one.disrupted(shard);
    },
  });
  const conversations = new InheritedConversations(sessions, small);
  const loop = new CommandLoop(clock, log.codec.versionOf);
  const caches = {
    ...{ tenants, agents, sessions, budgets, artifacts, quotas, vaults, sandboxes, rosters },
    ...{ conversations, receipts },
  };
  return { loop, ...caches, caches };
}

import { readFile } from 'node:fs/promises';
import { openLog } from '#src/app/log.ts';
import { Metrics } from '#src/app/metrics/metrics.ts';
import { isCanonical } from '#src/domain/session/canonical.ts';
import type { SessionEvent } from '#src/domain/session/events.ts';
import { sealingKey } from '#src/lib/sealed-box.ts';
import { createLogger } from '#src/lib/logger.ts';
import type { StoredCommit } from '#src/streams/commit.ts';
import type { EventStore } from '#src/streams/event-store.ts';
import type { AggregateRef } from '#src/streams/subjects.ts';
import type { Cluster } from '../support/cluster/cluster.ts';
import type { LoggedEvent } from './checks.ts';

/** What the log itself has to say after a run, read by the checker's own connection. */

const BATCH = 500;

export interface LoggedSession {
  readonly events: readonly LoggedEvent[];
  /** Ids of the events that readers see, in the order of the log. */
  readonly canonical: readonly string[];
}

/** The log of these sessions, each in its own order; of a fork what it has itself, not what it inherits. */
export async function readSessions(
  cluster: Cluster,
  tenant: string,
  sessionIds: readonly string[],
): Promise<ReadonlyMap<string, LoggedSession>> {
  const env = cluster.environment();
  const hostKey = sealingKey(Buffer.from(await readFile(env['AGENT_HOST_KEK_FILE'] ?? '', 'utf8'), 'base64'));
  const log = await openLog({
    ...{ url: env['NATS_URL'] ?? '', name: 'checker', shards: 1, replicas: 3 },
    ...{ hostKey, metrics: new Metrics(), logger: createLogger({ level: 'silent', pretty: false }) },
  });
  try {
    const found = new Map<string, LoggedSession>();
    for (const id of sessionIds) found.set(id, await readSession(log.store, { tenant, kind: 'session', id }));
    return found;
  } finally {
    await log.close();
  }
}

async function readSession(store: EventStore, ref: AggregateRef): Promise<LoggedSession> {
  const commits: StoredCommit[] = [];
  for (let more = true; more;) {
    const page = await store.read(ref, { after: commits.at(-1)?.position ?? 0, limit: BATCH });
    commits.push(...page.commits);
    more = page.more;
  }
  const events = commits.flatMap(({ commit }) => commit.events);
  const isSeen = (type: string): boolean => isCanonical(type as SessionEvent['type']);
  return {
    events: events.map(({ type, data }) => ({ type, data: data as LoggedEvent['data'], isCanonical: isSeen(type) })),
    canonical: events.filter(({ type }) => isSeen(type)).map(({ id }) => id),
  };
}

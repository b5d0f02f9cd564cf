import { readFile } from 'node:fs/promises';
import { openLog } from '#src/app/log.ts';
import type { LogPorts } from '#src/app/log.ts';
import { Metrics } from '#src/app/metrics/metrics.ts';
import { createLogger } from '#src/lib/logger.ts';
import { sealingKey } from '#src/lib/sealed-box.ts';
import type { StoredCommit } from '#src/streams/commit.ts';
import type { EventStore } from '#src/streams/event-store.ts';
import type { AggregateRef } from '#src/streams/subjects.ts';

const BATCH = 500;

/** A checker's own connection to the log of nodes that have this environment, with the streams that it has. */
export async function openLogOf(
  environment: Readonly<Record<string, string | undefined>>,
  replicas: number,
): Promise<LogPorts> {
  const hostKey = sealingKey(Buffer.from(await readFile(environment['AGENT_HOST_KEK_FILE'] ?? '', 'utf8'), 'base64'));
  return await openLog({
    ...{ url: environment['NATS_URL'] ?? '', name: 'checker', shards: undefined, replicas, isLive: false },
    ...{ hostKey, metrics: new Metrics(), logger: await createLogger({ level: 'silent', pretty: false }) },
  });
}

/** An event with the position of its commit, and whose it is. */
export type PlacedEvent = StoredCommit['commit']['events'][number] & {
  readonly position: number;
  readonly actor: string;
};

/** Every commit of an aggregate that was acknowledged before, in its order: not what a replica has that is behind. */
export async function readCommits(store: EventStore, ref: AggregateRef): Promise<StoredCommit[]> {
  const commits: StoredCommit[] = [];
  const atLeast = await store.head(ref);
  for (let more = atLeast > 0; more;) {
    const page = await store.read(ref, { after: commits.at(-1)?.position ?? 0, limit: BATCH, atLeast });
    commits.push(...page.commits);
    more = page.more;
  }
  return commits;
}

/** The events of these. */
export async function readEvents(store: EventStore, ref: AggregateRef): Promise<PlacedEvent[]> {
  return (await readCommits(store, ref)).flatMap(({ commit, position }) =>
    commit.events.map((event) => ({ ...event, position, actor: commit.actor })),
  );
}

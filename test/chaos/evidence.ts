import { budgetsRef } from '#src/commands/tenant/budgets.ts';
import { vaultRef } from '#src/commands/vault/vaults.ts';
import { isCanonical } from '#src/domain/session/canonical.ts';
import type { SessionEvent } from '#src/domain/session/events.ts';
import { streamName } from '#src/streams/subjects.ts';
import type { Cluster } from '../support/cluster/cluster.ts';
import { readBoxes } from './box-evidence.ts';
import type { BoxEvidence, StoredAt } from './box-evidence.ts';
import { openLogOf, readEvents } from '../support/log-reader.ts';
import type { PlacedEvent } from '../support/log-reader.ts';
import { TURN_ENDS } from './checks.ts';
import type { Counted, LoggedEvent } from './checks.ts';
import { freshFolds } from './folds.ts';
import type { FreshFolds } from './folds.ts';
import type { World } from './world.ts';

/** What the log itself has to say after a run, read by the checker's own connection. */

export interface LoggedSession {
  readonly events: readonly LoggedEvent[];
  /** Ids of the events that readers see, in the order of the log. */
  readonly canonical: readonly string[];
  /** Of a fork that inherits something; else null. */
  readonly parent: string | null;
  /** Null: it has none. */
  readonly sandboxId: string | null;
  /** When the ends of its turns were stored, µs since 1970. */
  readonly turnEnds: ReadonlyMap<string, number>;
}

export interface Evidence {
  readonly sessions: ReadonlyMap<string, LoggedSession>;
  /** What the tenant's budgets have counted, in that order. */
  readonly settled: readonly Counted[];
  /** Of the vault with the credential for the tool server. */
  readonly vault: readonly LoggedEvent[];
  readonly folds: FreshFolds;
  readonly sandboxes: BoxEvidence;
}

/** The log of the sessions, each in its own order, of the budgets and of the vault. A fork has what is its own, not what it inherits. */
export async function readLog(cluster: Cluster, world: World): Promise<Evidence> {
  const { sessions: sessionIds, vaultId } = world;
  const tenant = world.tenant.tenantId;
  const log = await openLogOf(cluster.environment(), 3);
  const storedAt: StoredAt = async (ref, position) =>
    await cluster.nats.storedAt(streamName(log.store.shardOf(ref)), position);
  try {
    const sessions = new Map<string, LoggedSession>();
    for (const id of sessionIds) {
      const ref = { tenant, kind: 'session', id } as const;
      const events = await readEvents(log.store, ref);
      const ends = events.filter(({ type }) => TURN_ENDS.has(type));
      const timed = await Promise.all(
        ends.map(async ({ data, position }) => [String(data['turnId']), await storedAt(ref, position)] as const),
      );
      sessions.set(id, { ...sessionOf(events), turnEnds: new Map(timed) });
    }
    const budgets = await readEvents(log.store, budgetsRef(tenant));
    const settled = budgets
      .filter(({ type }) => type === 'spend.settled')
      .map(({ data }) => {
        return { callId: String(data['callId']), tokens: Number(data['tokens']) };
      });
    const vault = sessionOf(await readEvents(log.store, vaultRef(tenant, vaultId))).events;
    const sandboxIds = [...sessions].flatMap(([id, { sandboxId }]) =>
      sandboxId === null ? [] : [[id, sandboxId] as const],
    );
    const sandboxes = await readBoxes({ store: log.store, storedAt }, world.tenant, new Map(sandboxIds));
    return { sessions, settled, vault, folds: await freshFolds(log, tenant, sessionIds), sandboxes };
  } finally {
    await log.close();
  }
}

function sessionOf(events: readonly PlacedEvent[]): Omit<LoggedSession, 'turnEnds'> {
  const isSeen = (type: string): boolean => isCanonical(type as SessionEvent['type']);
  return {
    events: events.map(({ type, data }) => ({ type, data: data as LoggedEvent['data'], isCanonical: isSeen(type) })),
    canonical: events.filter(({ type }) => isSeen(type)).map(({ id }) => id),
    parent: parentOf(events[0]?.data),
    sandboxId: sandboxOf(events[0]?.data),
  };
}

function parentOf(created: Readonly<Record<string, unknown>> | undefined): string | null {
  const origin = created?.['origin'] as { ancestry: readonly { sessionId: string }[] } | undefined;
  return origin?.ancestry.at(-1)?.sessionId ?? null;
}

function sandboxOf(created: Readonly<Record<string, unknown>> | undefined): string | null {
  const sandbox = created?.['sandbox'] as { sandboxId: string } | undefined;
  return sandbox?.sandboxId ?? null;
}

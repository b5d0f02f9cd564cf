import type { LogPorts } from '#src/app/log.ts';
import type { AggregateType } from '#src/commands/aggregate.ts';
import { budgetType, sessionType } from '#src/commands/aggregate.ts';
import { Repository } from '#src/commands/repository.ts';
import { budgetsRef } from '#src/commands/tenant/budgets.ts';
import type { DomainEvent } from '#src/domain/kernel/decision.ts';
import type { OpenSession } from '#src/domain/session/state.ts';
import { session as sessionSchema } from '#src/http/wire/schemas.ts';
import { stateToResponse } from '#src/http/wire/session.ts';
import { canonicalJson } from '#src/lib/canonical-json.ts';
import type { AggregateRef } from '#src/streams/subjects.ts';
import type { TenantClient } from '../support/client.ts';
import type { Cluster } from '../support/cluster/cluster.ts';
import { checkFolds } from './checks.ts';
import type { SeenFold } from './checks.ts';
import { until } from '../support/wait-until.ts';
import type { RunRecord } from './sender.ts';

/** What nodes have folded and kept, against a fold of the log as it is. */

const CACHE_BYTES = 1_000_000;
/** Commands of each session that are sent to each node once more. */
const REPEATED = 40;

export interface FreshFolds {
  /** Each session as it is shown, in one form of text. */
  readonly shown: ReadonlyMap<string, string>;
  /** What each session is opened with. */
  readonly openings: ReadonlyMap<string, object>;
  /** Snapshots that differ from what they are to stand for. */
  readonly problems: readonly string[];
}

/** Folds every session and the budgets from the first commit on, and from what nodes have put by. */
export async function freshFolds(log: LogPorts, tenant: string, ids: readonly string[]): Promise<FreshFolds> {
  const problems: string[] = [];
  const shown = new Map<string, string>();
  const openings = new Map<string, object>();
  for (const id of ids) {
    const ref = { tenant, kind: 'session', id } as const;
    const { state, differs } = await bothFolds(log, sessionType, ref);
    if (differs !== null) problems.push(`the snapshot of ${id}: ${differs}`);
    if (state.status !== 'open') continue;
    openings.set(id, openingOf(state, openings));
    shown.set(id, textOf(JSON.parse(JSON.stringify(stateToResponse(ref, log.store.shardOf(ref), state)))));
  }
  const budgets = await bothFolds(log, budgetType, budgetsRef(tenant));
  if (budgets.differs !== null) problems.push(`the snapshot of the budgets: ${budgets.differs}`);
  return { shown, openings, problems };
}

/**
 * What a session is opened with. A fork stands for what its parent was opened with, although it has a sandbox of its own, and
 * also where it inherits nothing: then its ancestry does not name the parent.
 */
export function openingOf(
  { agentId, vaultIds, sandbox, origin }: Pick<OpenSession, 'agentId' | 'vaultIds' | 'sandbox' | 'origin'>,
  openings: ReadonlyMap<string, object>,
): object {
  const shared = sandbox?.own === false ? { sandbox: { id: sandbox.sandboxId } } : {};
  return openings.get(origin?.parent.sessionId ?? '') ?? { agentId, vaultIds, ...shared };
}

async function bothFolds<S, E extends DomainEvent>(log: LogPorts, type: AggregateType<S, E>, ref: AggregateRef) {
  const { store, folds: snapshots } = log;
  // A node may still record something of its own accord, such as an allotment that it gives back, between the two.
  const { fresh, kept } = await until(`both folds of ${ref.kind} end at the same commit`, async () => {
    const fold = await new Repository({ type, store, cacheBytes: CACHE_BYTES }).load(ref);
    const put = await new Repository({ type, store, snapshots, cacheBytes: CACHE_BYTES }).load(ref);
    return fold.position === put.position && { fresh: fold, kept: put };
  });
  const [truth, other] = [fresh, kept].map(({ state, position, rev, hash }) => {
    return canonicalJson(JSON.parse(JSON.stringify({ state, position, rev, hash })));
  });
  return { state: fresh.state, differs: truth === other ? null : `it makes ${other}, the log makes ${truth}` };
}

function textOf(session: unknown): string {
  return canonicalJson(sessionSchema.parse(session));
}

/** What each node that folds or reads says of each session: a session that is opened once more is answered from the fold. */
export async function checkNodeFolds(
  cluster: Cluster,
  tenant: TenantClient,
  { shown, openings }: FreshFolds,
): Promise<readonly string[]> {
  const problems: string[] = [];
  const seen: SeenFold[] = [];
  for (const { name, role, url } of cluster.nodes) {
    if (role !== 'commands' && role !== 'reads') continue;
    for (const sessionId of shown.keys()) {
      const path = `/v1/sessions/${encodeURIComponent(sessionId)}`;
      const again = { method: 'PUT', path, body: openings.get(sessionId) };
      const answer = await tenant.at({ url }).request(role === 'commands' ? again : { path });
      if (answer.status === 200) seen.push({ who: name, sessionId, fold: textOf(answer.json) });
      else problems.push(`${name} does not show ${sessionId}: ${answer.status} ${answer.text}`);
    }
  }
  return [...problems, ...checkFolds(shown, seen)];
}

/** The newest accepted commands of each session once more, at every node that takes commands: they are known there. */
export async function checkReceipts(
  cluster: Cluster,
  tenant: TenantClient,
  record: RunRecord,
): Promise<readonly string[]> {
  const bySession = Map.groupBy(record.sent, ({ sessionId }) => sessionId);
  const newest = [...bySession.values()].flatMap((sent) =>
    sent.filter(({ outcome }) => outcome.kind === 'accepted').slice(-REPEATED),
  );
  const problems: string[] = [];
  for (const { name, url } of cluster.of('commands')) {
    for (const { sessionId, requestId, outcome } of newest) {
      const raw = record.requests.get(requestId) ?? { path: sessionId };
      const answer = await tenant.at({ url }).request(raw);
      const { turnId, cursor } = Object(answer.json) as { turnId?: unknown; cursor?: unknown };
      const isKnown = outcome.kind === 'accepted' && turnId === outcome.turnId && cursor === outcome.cursor;
      if (answer.status === 202 && isKnown) continue;
      problems.push(`${name} does not know ${sessionId} ${requestId} any more: ${answer.status} ${answer.text}`);
    }
  }
  return problems;
}

import { expect, test } from 'vitest';
import { periodStart } from '#src/domain/budget/opening.ts';
import type { SessionEvent } from '#src/domain/session/events.ts';
import { addUsage, isUsageKnown, NO_USAGE, ZERO_TOTAL } from '#src/domain/turn/usage.ts';
import type { Usage } from '#src/domain/turn/usage.ts';
import { ProjectionProgress } from '#src/projections/progress.ts';
import { usageQueries } from '#src/projections/usage/queries.ts';
import type { UsageQueries } from '#src/projections/usage/queries.ts';
import type { UsageGrouping, UsageTotal } from '#src/projections/usage/report.ts';
import { refKey } from '#src/streams/subjects.ts';
import type { StoredCommit } from '#src/streams/commit.ts';
import { seededRandom } from '../support/random.ts';
import { randomHistory } from '../support/random-sessions.ts';
import { asInLog, groupOf, project, unshared } from '../support/read-side.ts';
import { useServers } from '../support/servers.ts';

const random = seededRandom('usage');
const servers = useServers({ postgres: true });

interface Call {
  readonly tenant: string;
  readonly turn: string;
  readonly keys: Readonly<Record<UsageGrouping, string>>;
  readonly at: string;
  readonly usage: Usage;
  readonly end: 'none' | 'failed' | 'other';
}

/** What became of each call, told by the events alone. */
function callsIn(stored: readonly StoredCommit[]): Call[] {
  const agents = new Map<string, string>();
  const calls = new Map<string, Call>();
  for (const { ref, commit } of stored) {
    for (const { type, data } of commit.events as unknown as readonly SessionEvent[]) {
      if (type === 'session.created') agents.set(refKey(ref), data.agentId);
      if (!('callId' in data)) continue;
      // Call ids are of their session: what tests make up repeats them in another.
      const callId = `${refKey(ref)} ${String(data.callId)}`;
      const known = calls.get(callId);
      if (type === 'model.requested') {
        const agent = data.agent?.id ?? agents.get(refKey(ref)) ?? '';
        const model = `${data.provider}/${data.model}`;
        const keys = { agent, model, session: ref.id, day: commit.at.slice(0, 10) };
        const of = { tenant: ref.tenant, turn: data.turnId, at: commit.at };
        calls.set(callId, { ...of, keys, usage: NO_USAGE, end: 'none' });
      } else if (known === undefined) continue;
      else if (type === 'model.withheld') calls.delete(callId);
      else if (type === 'effect.uncertain') calls.set(callId, { ...known, end: 'other' });
      else if (type === 'model.failed') calls.set(callId, { ...known, end: 'failed', usage: data.usage });
      else if (type === 'model.reported') calls.set(callId, { ...known, usage: data.usage });
      else if (type === 'model.completed') calls.set(callId, { ...known, end: 'other', usage: data.usage });
    }
  }
  return [...calls.values()].filter(({ end }) => end !== 'none');
}

function sumOf(calls: readonly Call[]): UsageTotal {
  const counted = calls.filter(({ end, usage }) => end !== 'failed' || isUsageKnown(usage));
  const usage = counted.map((call) => call.usage).reduce(addUsage, ZERO_TOTAL);
  const duplicates = calls.filter((call) => call.usage.duplicate).length;
  // Decimals do not add up as binary fractions do.
  return { usage: { ...usage, costUsd: Number(usage.costUsd.toFixed(9)) }, calls: calls.length, duplicates };
}

const rounded = <T extends UsageTotal>(total: T): T => ({
  ...total,
  usage: { ...total.usage, costUsd: Number(total.usage.costUsd.toFixed(9)) },
});

test('whatever sessions do, the sums are those of their calls: failed, lost, cancelled, late and repeated ones', async () => {
  const { store, source } = servers.log;
  const made = randomHistory(random, { sessions: 12, commits: 900 });
  const heads = new Map<string, number>();
  const stored: StoredCommit[] = [];
  for (const { ref, commit } of made.commits) {
    const result = await store.append(ref, heads.get(refKey(ref)) ?? 0, commit);
    if (result.kind !== 'appended') throw new Error('a conflict with nobody');
    heads.set(refKey(ref), result.position);
    stored.push({ ref, commit, shard: 0, position: result.position, hash: result.hash });
  }
  await using database = await servers.postgres.migrated();
  const pool = await database.pool();
  await project(pool, groupOf('sessions'), {
    from: 0,
    commits: await asInLog(servers.log, stored),
    seals: servers.log.seals,
  });
  const queries = usageQueries({ reads: unshared(pool), store, source, progress: new ProjectionProgress(pool) });
  const calls = callsIn(stored);
  for (const { ref } of made.sessions) {
    const own = calls.filter(({ tenant, keys }) => tenant === ref.tenant && keys.session === ref.id);
    expect(rounded(await queries.session(ref, null))).toEqual({ ...sumOf(own), completeTo: null });
    const turn = own[random.int(0, Math.max(0, own.length - 1))]?.turn ?? 'tu_none';
    const ofTurn = sumOf(own.filter((call) => call.turn === turn));
    expect(rounded(await queries.session(ref, turn))).toEqual({ ...ofTurn, completeTo: null });
  }
  const times = calls.map(({ at }) => at).toSorted();
  const [from = '', to = ''] = [times[Math.floor(times.length / 4)], times[Math.floor((times.length * 3) / 4)]];
  for (const tenant of new Set(made.sessions.map(({ ref }) => ref.tenant))) {
    const within = calls.filter((call) => call.tenant === tenant && call.at >= from && call.at < to);
    for (const groupBy of ['agent', 'model', 'session', 'day'] as const) {
      const report = await queries.tenant(tenant, { from, to, groupBy, limit: 1_000, after: null });
      const keys = [...new Set(within.map((call) => call.keys[groupBy]))].toSorted();
      const groups = keys.map((key) => ({ key, ...sumOf(within.filter((call) => call.keys[groupBy] === key)) }));
      expect(report.groups.map(rounded)).toEqual(groups);
      expect(rounded(report.total)).toEqual(sumOf(within));
    }
  }
  for (const tenant of new Set(made.sessions.map(({ ref }) => ref.tenant))) await expectLedger(queries, tenant, calls);
  const shown = { ends: new Set(calls.map(({ end }) => end)).size, duplicates: sumOf(calls).duplicates };
  expect(shown.ends).toBe(2);
  expect(shown.duplicates, 'the random sessions repeat calls').toBeGreaterThan(0);
});

/** What budgets that begin have spent: of the tenant, of an agent, of a session; today, this month and ever. */
async function expectLedger(queries: UsageQueries, tenant: string, calls: readonly Call[]): Promise<void> {
  const own = calls.filter((call) => call.tenant === tenant);
  const [{ at, keys } = { at: '2026-01-31T10:00:00.000Z', keys: { agent: 'none', session: 'none' } }] = own.slice(-1);
  const budgets = (['day', 'month', 'total'] as const).flatMap((period) => [
    { id: `t ${period}`, scope: 'tenant', period } as const,
    { id: `a ${period}`, scope: 'agent', agentId: keys.agent, period } as const,
    { id: `s ${period}`, scope: 'session', sessionId: keys.session, period } as const,
  ]);
  const reading = await queries.ledger(tenant, { budgets, at, settled: async () => await Promise.resolve([]) });
  const expected = budgets.map((budget) => {
    const counted = own.filter(
      (call) =>
        call.at >= periodStart(budget.period, at) &&
        (budget.scope !== 'agent' || call.keys.agent === budget.agentId) &&
        (budget.scope !== 'session' || call.keys.session === budget.sessionId),
    );
    const costUsd = counted.reduce((sum, { usage }) => sum + usage.costUsd, 0);
    const tokens = counted.reduce((sum, { usage }) => sum + usage.totalTokens, 0);
    const used = counted.filter(({ usage }) => usage.totalTokens > 0 || usage.costUsd > 0).length;
    return { budgetId: budget.id, costUsd: Number(costUsd.toFixed(9)), tokens, calls: used };
  });
  const spent = reading.spent.map((one) => ({ ...one, costUsd: Number(one.costUsd.toFixed(9)) }));
  const byId = (a: { budgetId: string }, b: { budgetId: string }): number => (a.budgetId < b.budgetId ? -1 : 1);
  expect(spent.toSorted(byId)).toEqual(expected.toSorted(byId));
}

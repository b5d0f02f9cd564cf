import { expect, test } from 'vitest';
import { PROJECTIONS } from '#src/app/projectors.ts';
import { actionIndex } from '#src/projections/actions/queries.ts';
import type { ActionIndex } from '#src/projections/actions/queries.ts';
import { agentQueries } from '#src/projections/agents/queries.ts';
import type { AgentQueries } from '#src/projections/agents/queries.ts';
import { artifactQueries, FIRST_PLACE } from '#src/projections/artifacts/queries.ts';
import type { ArtifactQueries } from '#src/projections/artifacts/queries.ts';
import { ProjectionProgress } from '#src/projections/progress.ts';
import type { ReadStore, Statement } from '#src/projections/read-store/pool.ts';
import { sandboxQueries } from '#src/projections/sandboxes/queries.ts';
import type { SandboxQueries } from '#src/projections/sandboxes/queries.ts';
import { FIRST_USE, workspaceQueries } from '#src/projections/workspaces/queries.ts';
import type { WorkspaceQueries } from '#src/projections/workspaces/queries.ts';
import { labelText, subjectText } from '#src/projections/sessions/digests.ts';
import { sessionQueries } from '#src/projections/sessions/queries.ts';
import type { SessionQueries } from '#src/projections/sessions/queries.ts';
import { tenantQueries } from '#src/projections/tenants/queries.ts';
import type { TenantQueries } from '#src/projections/tenants/queries.ts';
import { usageQueries } from '#src/projections/usage/queries.ts';
import type { UsageQueries } from '#src/projections/usage/queries.ts';
import { sandboxUsageQueries } from '#src/projections/usage/sandbox-usage.ts';
import type { SandboxUsageQueries } from '#src/projections/usage/sandbox-usage.ts';
import { vaultQueries } from '#src/projections/vaults/queries.ts';
import type { VaultQueries } from '#src/projections/vaults/queries.ts';
import type { StoredCommit } from '#src/streams/commit.ts';
import type { AggregateRef } from '#src/streams/subjects.ts';
import type { TestDatabase } from '../support/postgres.ts';
import { seededRandom } from '../support/random.ts';
import { randomHistory } from '../support/random-sessions.ts';
import { asInLog, groupOf, project, unshared } from '../support/read-side.ts';
import { believedLarge, growing, planOf } from '../support/read-plans.ts';
import { useServers } from '../support/servers.ts';

const TENANT = 'tn_large';
const servers = useServers({ postgres: true });

/** Every function of a set of queries, with each of its filters: a new one is missing here until it is asked. */
type Asked<Q> = { readonly [K in keyof Q]: readonly (() => Promise<unknown>)[] };

const LABELS = [{ name: 'team', value: 'red' }];
const COMMON_LABELS = [{ name: 'env', value: 'blue' }];
const AGENTS = ['agents/1', 'agents/2'];
const RARE_AGENTS = ['agents/rare', 'agents/absent'];
const PAGE = { limit: 100, after: null };
const NEXT = { limit: 100, after: ['2026-01-04T00:00:00.000Z', 'x_5'] };

function sessionsAsked(queries: SessionQueries, ref: AggregateRef): Asked<SessionQueries> {
  const all = { agents: null, labels: [] };
  const filters = [
    all,
    ...[{ agentId: 'agents/1' }, { status: 'running' }, { subject: 'ada' }, { agents: AGENTS }, { labels: LABELS }],
    ...[{ labels: COMMON_LABELS }, { labels: [...LABELS, ...COMMON_LABELS] }, { agents: RARE_AGENTS }],
    ...[
      { status: 'running', agentId: 'agents/1' },
      { subject: 'ada', labels: LABELS },
      { agents: RARE_AGENTS, status: 'idle' },
    ],
  ].map((filter) => ({ ...all, ...filter }));
  const history = { limit: 100, from: null, agent: null, order: 'asc' } as const;
  return {
    get: [null, 'ada'].map((subject) => async () => await queries.get(ref, subject)),
    reach: [async () => await queries.reach(ref, null)],
    list: filters.flatMap((filter) => [PAGE, NEXT].map((page) => async () => await queries.list(TENANT, filter, page))),
    history: [
      history,
      { ...history, order: 'desc' } as const,
      { ...history, from: { position: 3, index: 0 } },
      { ...history, agent: 'helper' },
    ].map((request) => async () => await queries.history(ref, request)),
    calls: [
      { limit: 100, turnId: null, after: null },
      { limit: 100, turnId: 'tu_1', after: { position: 3, index: 0 } },
    ].map((page) => async () => await queries.calls(ref, page)),
    active: [async () => await queries.active(TENANT)],
  };
}

function artifactsAsked(queries: ArtifactQueries): Asked<ArtifactQueries> {
  const all = { subject: null, agents: null };
  const session = { id: 'x_5', createdPosition: 1_000_025 };
  const parent = { sessionId: 'x_6', position: 9 };
  const ancestry = [{ ...parent, shard: 0, createdPosition: 1, index: 0 }];
  const origin = { parent, ancestry, last: { ancestor: 0, position: 2, index: 0 } };
  const more = [{}, { session }, { session: { ...session, origin } }, { subject: 'ada' }, { agents: AGENTS }];
  const filters = [...more, { agents: RARE_AGENTS }, { session, subject: 'ada', agents: AGENTS }].map((filter) => ({
    ...all,
    ...filter,
  }));
  return {
    list: filters.flatMap((filter) => [PAGE, NEXT].map((page) => async () => await queries.list(TENANT, filter, page))),
    ofSessionId: [async () => await queries.ofSessionId(TENANT, 'x_5', 100)],
    overdue: [async () => await queries.overdue('2026-01-02T00:00:00.000Z')],
    orphans: [FIRST_PLACE, { tenant: 'tn_3', id: 'x_5' }].map((place) => async () => await queries.orphans(place)),
    unnamed: [async () => await queries.unnamed([{ tenant: TENANT, owner: 'x_5', name: 'x_5' }])],
  };
}

function tenantsAsked(queries: TenantQueries): Asked<TenantQueries> {
  return {
    list: [PAGE, NEXT].map((page) => async () => await queries.list(page)),
    get: [async () => await queries.get(TENANT)],
    counts: [async () => await queries.counts(TENANT)],
    totals: [async () => await queries.totals()],
    audit: [PAGE, NEXT].map((page) => async () => await queries.audit(TENANT, page)),
  };
}

function usageAsked(queries: UsageQueries, ref: AggregateRef): Asked<UsageQueries> {
  const whole = { from: '2026-02-01T00:00:00.000Z', to: '2026-03-01T00:00:00.000Z' };
  const ragged = { from: '2026-02-01T09:59:58.765Z', to: '2026-02-03T17:01:02.345Z' };
  const requests = [whole, ragged].flatMap((times) => [null, 'x_5'].map((after) => ({ ...times, limit: 100, after })));
  const periods = (['day', 'month', 'total'] as const).map((period) => ({ period, limitUsd: 10 }));
  const budgets = periods.flatMap((limits, n) => [
    { ...limits, id: `t${n}`, scope: 'tenant' } as const,
    { ...limits, id: `a${n}`, scope: 'agent', agentId: 'agents/1' } as const,
    { ...limits, id: `s${n}`, scope: 'session', sessionId: 'x_5' } as const,
  ]);
  const ledger = { budgets, at: '2026-12-01T00:00:00.000Z', settled: async () => await Promise.resolve([]) };
  return {
    session: [null, 'tu_1'].map((turn) => async () => await queries.session(ref, turn)),
    tenant: (['agent', 'model', 'session', 'day'] as const).flatMap((groupBy) =>
      requests.map((request) => async () => await queries.tenant(TENANT, { ...request, groupBy })),
    ),
    ledger: [async () => await queries.ledger(TENANT, ledger)],
  };
}

function interactionsAsked(queries: ActionIndex): Asked<ActionIndex> {
  const all = { agents: null, budgets: 'too' } as const;
  const filters = [{}, { agentId: 'agents/1' }, { subject: 'ada' }, { agents: AGENTS }, { agents: RARE_AGENTS }];
  return {
    open: [async () => await queries.open()],
    sessionOf: [async () => await queries.sessionOf({ tenantId: TENANT, agentId: 'agents/1' }, 'x_5')],
    interactions: filters.flatMap((filter) =>
      [PAGE, NEXT].map((page) => async () => await queries.interactions(TENANT, { ...all, ...filter }, page)),
    ),
  };
}

function agentsAsked(queries: AgentQueries): Asked<AgentQueries> {
  return {
    list: [null, AGENTS].map((agents) => async () => await queries.list(TENANT, { limit: 100, after: 'x_5', agents })),
    get: [async () => await queries.get(TENANT, 'x_5')],
    versions: [async () => await queries.versions(TENANT, 'agents/1')],
  };
}

function vaultsAsked(queries: VaultQueries): Asked<VaultQueries> {
  return {
    list: [null, 'ada'].flatMap((subject) =>
      [PAGE, NEXT].map((page) => async () => await queries.list(TENANT, subject, page)),
    ),
  };
}

function workspacesAsked(queries: WorkspaceQueries): Asked<WorkspaceQueries> {
  const later = { tenant: 'tn_3', workspace: 'x_5', sandboxId: 'x_5', sessionId: null };
  return {
    unrecorded: [async () => await queries.unrecorded([{ tenant: TENANT, name: 'x_5' }])],
    usesOf: [async () => await queries.usesOf({ tenant: TENANT, name: 'x_5' })],
    hasParked: [async () => await queries.hasParked()],
    walk: [FIRST_USE, later].map((place) => async () => await queries.walk(place, '2026-12-01T00:00:00.000Z')),
  };
}

function sandboxesAsked(queries: SandboxQueries): Asked<SandboxQueries> {
  const all = { labels: [], subject: null, granted: null };
  const filters = [all, { ...all, state: 'stopped' } as const];
  return {
    list: filters.flatMap((filter) => [PAGE, NEXT].map((page) => async () => await queries.list(TENANT, filter, page))),
    count: [async () => await queries.count(TENANT)],
  };
}

function sandboxUsageAsked(queries: SandboxUsageQueries, ref: AggregateRef): Asked<SandboxUsageQueries> {
  const range = { from: '2026-01-01T10:20:30.000Z', to: '2026-01-31T10:20:30.000Z', limit: 100 };
  const groupings = ['agent', 'model', 'session', 'day'] as const;
  return {
    session: [null, 'tu_1'].map((turn) => async () => await queries.session(ref, turn, range.from)),
    tenant: groupings.flatMap((groupBy) =>
      [null, 'x_5'].map((after) => async () => await queries.tenant(TENANT, { ...range, groupBy, after })),
    ),
  };
}

/** What grows for all that, with what, and why it may. */
const GROWS: Readonly<Record<string, string>> = {
  'tenants.totals': 'a row of each tenant, for the operator: none of its sessions, calls or actions',
  'actions.open': 'what is open in the whole installation, when a node starts: it keeps that in memory from then on',
};

test('a read takes no more from a tenant of a million sessions, as Postgres plans it', async () => {
  const { seals } = servers.log;
  await using database = await servers.postgres.migrated();
  const statements = await statementsOf(database);
  await believedLarge(database, PROJECTIONS, {
    tenant: TENANT,
    subject: seals.digest(TENANT, subjectText('ada')),
    label: seals.digest(TENANT, labelText('team', 'red')),
    commonLabel: seals.digest(TENANT, labelText('env', 'blue')),
    rareAgent: 'agents/rare',
  });
  const found = new Map<string, string[]>();
  for (const { of, ...statement } of statements) {
    const reasons = growing(await planOf(database, statement), statement.values.includes(TENANT));
    if (reasons.length > 0) found.set(of, [...(found.get(of) ?? []), ...reasons]);
  }
  const unexpected = [...found].filter(([of]) => !(of in GROWS));
  expect(unexpected).toEqual([]);
  expect([...found.keys()].toSorted(), 'of what grows nothing has been mended').toEqual(Object.keys(GROWS).toSorted());
});

/** What the database is asked by each function of each set of queries, over a short history. */
async function statementsOf(database: TestDatabase): Promise<(Statement & { readonly of: string })[]> {
  const { store, source, seals } = servers.log;
  let told: Statement[] = [];
  const pool = await database.pool(5, (statement) => void told.push(statement));
  const ref = await shortHistory(pool);
  const group = { pool, reads: unshared(pool), seals };
  const deps = { ...group, store, source, progress: new ProjectionProgress(pool), clock: Date.now };
  const asked = {
    sessions: sessionsAsked(sessionQueries(deps), ref),
    artifacts: artifactsAsked(artifactQueries(group)),
    tenants: tenantsAsked(tenantQueries(group)),
    usage: usageAsked(usageQueries(deps), ref),
    actions: interactionsAsked(actionIndex(group)),
    sandboxUsage: sandboxUsageAsked(sandboxUsageQueries(deps), ref),
    agents: agentsAsked(agentQueries(group)),
    vaults: vaultsAsked(vaultQueries(group)),
    sandboxes: sandboxesAsked(sandboxQueries(group)),
    workspaces: workspacesAsked(workspaceQueries(group)),
  };
  const statements: (Statement & { readonly of: string })[] = [];
  for (const [name, functions] of Object.entries(asked)) {
    for (const [query, calls] of Object.entries(functions)) {
      for (const call of calls) {
        told = [];
        await call();
        const selects = told.filter(({ sql }) => /^\s*(select|with)\b/.test(sql));
        expect(selects.length, `${name}.${query} asks the database`).toBeGreaterThan(0);
        statements.push(...selects.map((statement) => ({ ...statement, of: `${name}.${query}` })));
      }
    }
  }
  return statements;
}

/** A session in the log and in the rows, for functions that ask the log first. */
async function shortHistory(pool: ReadStore): Promise<AggregateRef> {
  const { log } = servers;
  const made = randomHistory(seededRandom('plans'), { sessions: 1, commits: 40, tenant: TENANT });
  const stored: StoredCommit[] = [];
  for (const { ref, commit } of made.commits) {
    const result = await log.store.append(ref, stored.at(-1)?.position ?? 0, commit);
    if (result.kind !== 'appended') throw new Error('a conflict with no other writer');
    stored.push({ ref, commit, shard: 0, position: result.position, hash: result.hash });
  }
  await project(pool, groupOf('sessions'), { from: 0, commits: await asInLog(log, stored), seals: log.seals });
  const [first] = stored;
  if (first === undefined) throw new Error('the history is empty');
  return first.ref;
}

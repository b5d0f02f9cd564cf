import { agentHost } from '../support/agent-host.ts';
import { ArtifactClient } from '../support/artifacts.ts';
import type { EventRecord, TenantClient } from '../support/client.ts';
import type { Cluster } from '../support/cluster/cluster.ts';
import type { Random } from '../support/random.ts';
import { until } from '../support/wait-until.ts';
import { artifactList } from '#src/http/wire/artifacts.ts';
import { budgetList } from '#src/http/wire/budgets.ts';
import { canonicalJson } from '#src/lib/canonical-json.ts';
import {
  checkCommands,
  checkFiles,
  checkInherited,
  checkProvider,
  checkSession,
  checkSpending,
  compareOrder,
} from './checks.ts';
import type { CommandCheck, Counted, LedgerCall, StoredCommand, StoredFile } from './checks.ts';
import { callsOfBoxes, checkBoxes } from './box-checks.ts';
import type { Box } from './box-checks.ts';
import { checkLeaks, historyOf } from './box-evidence.ts';
import type { Seen } from './box-evidence.ts';
import { readLog } from './evidence.ts';
import type { Evidence, LoggedSession } from './evidence.ts';
import { checkNodeFolds, checkReceipts } from './folds.ts';
import { checkPausedTurns } from './paused.ts';
import type { PausedTurns } from './paused.ts';
import { messageIn } from './provider.ts';
import { StreamReader } from './readers.ts';
import type { Rest } from './run.ts';
import { callsOfServers, checkGrant, checkTools } from './tool-checks.ts';
import { READ_ONLY_TOOLS } from './tool-server.ts';
import { isRemote } from './world.ts';
import type { World } from './world.ts';

/** What a run has shown. It is good when there are no problems; `lost`, `doubled` and `reordered` count them by kind. */
export interface Verdict {
  readonly faults: ReadonlyMap<string, number>;
  readonly figures: Readonly<Record<string, number>>;
  readonly lost: number;
  readonly doubled: number;
  readonly reordered: number;
  readonly problems: readonly string[];
  /** What people need who look into a problem. */
  readonly evidence: readonly string[];
}

interface Run extends Rest {
  readonly cluster: Cluster;
  readonly world: World;
  readonly paused: PausedTurns;
  readonly random: Random;
  readonly faults: ReadonlyMap<string, number>;
  /** Hosts that ended although nobody ended them. */
  readonly exits: readonly string[];
  /** What Hosts had started when they were killed. */
  readonly orphans: Seen;
}

const FRESH_MS = 60_000;
const FILES_PAGE = 50;

export async function verdictOf(run: Run): Promise<Verdict> {
  const { cluster, world, record, readers, restless, exits, faults } = run;
  const { tenant } = world;
  // Before the log is read: what they do to it has to be seen there.
  const known = await checkReceipts(cluster, tenant, record);
  const paused = await checkPausedTurns(run.paused, run.random);
  const evidence = await readLog(cluster, world);
  const logged = evidence.sessions;
  const commands = checkCommands(record.sent, storedCommands(logged, run.pages));
  const { sandboxes } = evidence;
  const files = await checkedFiles(tenant, run);
  const readings = checkReaders(run, logged);
  const { executions, auth } = world.tools;
  const tools = checkTools(
    executions,
    [...logged.values()].flatMap(({ events }) => callsOfServers(events)),
    READ_ONLY_TOOLS,
  );
  const told = {
    calls: new Map([...logged].flatMap(([id, { events }]) => [...callsOfBoxes(id, events)])),
    turnEnds: new Map([...logged.values()].flatMap(({ turnEnds }) => [...turnEnds])),
    acts: record.acts,
  };
  const boxes = checkBoxes(sandboxes.boxes, told);
  const isWrong = ({ sandboxId }: Box): boolean => boxes.problems.some((problem) => problem.includes(sandboxId));
  const problems = [
    ...restless.map((session) => `does not come to rest: ${session}`),
    ...record.broken,
    ...exits.map((exit) => `a Host ended by itself: ${exit}`),
    ...commands.problems,
    ...files.problems,
    ...readings.problems,
    ...[...logged].flatMap(([id, { events }]) => checkSession(id, events)),
    ...known,
    ...paused,
    ...evidence.folds.problems,
    ...(await checkNodeFolds(cluster, tenant, evidence.folds)),
    ...(await checkLedger(tenant, evidence)),
    ...(await checkCalls(run)),
    ...tools.problems,
    ...checkGrant(auth, evidence.vault),
    ...sandboxes.problems,
    ...boxes.problems,
    ...(await audited(cluster)),
    // At the end, as it deletes them.
    ...(await checkLeaks(tenant, { pods: world.pods, sessions: world.sessions, orphans: run.orphans })),
  ];
  const accepted = record.sent.filter(({ outcome }) => outcome.kind === 'accepted').length;
  const figures = {
    'commands sent': record.sent.length,
    'commands accepted': accepted,
    'commands refused': record.sent.length - accepted,
    'requests sent again': record.retries,
    'files accepted': record.files.filter(({ outcome }) => outcome === 'accepted').length,
    sessions: world.sessions.length,
    'events in the log': sum([...logged.values()], ({ events }) => events.length),
    'events that readers see': sum([...run.pages.values()], ({ length }) => length),
    'SSE readers': readers.filter(({ kind }) => kind === 'stream').length,
    'SSE reconnects': sum(readers, (reader) => (reader instanceof StreamReader ? reader.reconnects : 0)),
    'calls to the provider': world.provider.calls.length,
    'calls of MCP tools': executions.length,
    'refreshes of OAuth tokens': auth.used.length,
    'calls in sandboxes': boxes.calls,
    ...actsDone(record.acts),
    'paused turns': run.paused.sessions.length,
    'page readers': readers.filter(({ kind }) => kind === 'pages').length,
  };
  return {
    faults,
    figures,
    lost: commands.lost + files.lost + readings.lost + boxes.lost,
    doubled: commands.doubled + files.doubled + readings.doubled + tools.doubled + boxes.doubled,
    reordered: readings.reordered,
    problems,
    evidence: sandboxes.boxes.filter(isWrong).map((box) => historyOf(box, told)),
  };
}

/** Commands that the log has, with the cursor by which readers know their place. */
function storedCommands(logged: ReadonlyMap<string, LoggedSession>, pages: Rest['pages']): StoredCommand[] {
  return [...logged].flatMap(([sessionId, { canonical }]) => {
    const own = new Set(canonical);
    const items = (pages.get(sessionId) ?? []).filter(
      ({ eventId, type }) => own.has(eventId) && type.startsWith('command.'),
    );
    return items.map(({ turnId, cursor, payload }) => {
      return { sessionId, turnId, cursor, requestId: String(Reflect.get(Object(payload), 'requestId')) };
    });
  });
}

/** Streams and pages against the log: each record once, in its order, and the same text for everyone. */
function checkReaders({ readers, pages }: Run, logged: ReadonlyMap<string, LoggedSession>) {
  const total = { lost: 0, doubled: 0, reordered: 0 };
  const problems: string[] = [];
  const compare = (what: string, truth: readonly string[], seen: readonly string[]): void => {
    const { lost, doubled, reordered, invented } = compareOrder(truth, seen);
    total.lost += lost;
    total.doubled += doubled;
    total.reordered += reordered;
    if (lost + doubled + reordered + invented === 0) return;
    problems.push(`${what}: ${lost} lost, ${doubled} doubled, ${reordered} reordered, ${invented} that nobody wrote`);
  };
  for (const [sessionId, items] of pages) {
    const { canonical = [], parent = null } = logged.get(sessionId) ?? {};
    const own = new Set(canonical);
    // What a fork inherits lies in the logs of its ancestors, and comes before everything of its own.
    const begins = items.findIndex(({ eventId }) => own.has(eventId));
    const inherited = ids(begins < 0 ? items : items.slice(0, begins));
    compare(`the history of ${sessionId}`, [...inherited, ...canonical], ids(items));
    problems.push(...checkInherited(sessionId, inherited, parent === null ? [] : ids(pages.get(parent) ?? [])));
  }
  for (const { kind, sessionId, records } of readers) {
    const items = pages.get(sessionId) ?? [];
    compare(`a reader (${kind}) of ${sessionId}`, ids(items), ids(records));
    // Pages are parsed by their schema, which sorts members; a stream's records are as they came.
    const texts = new Map(items.map((item) => [item.eventId, canonicalJson(item)]));
    const other = records.filter((item) => texts.get(item.eventId) !== canonicalJson(item));
    if (other.length > 0)
      problems.push(`a reader (${kind}) of ${sessionId} was told ${other.length} records differently`);
  }
  return { ...total, problems };
}

const ids = (items: readonly EventRecord[]): string[] => items.map(({ eventId }) => eventId);

/** What was reserved for uploads that died comes back by itself, within the bound of an operation. */
async function checkedFiles(tenant: TenantClient, { record }: Run): Promise<CommandCheck> {
  const client = new ArtifactClient(tenant);
  const look = async (): Promise<CommandCheck> => {
    const stored = await storedFiles(client);
    return checkFiles(record.files, stored, await client.bytes());
  };
  const rightLook = async (): Promise<CommandCheck | false> => {
    const check = await look();
    return check.problems.length === 0 && check;
  };
  const right = await until('the files are right', rightLook, FRESH_MS).catch(() => null);
  return right ?? (await look());
}

/** Every file of the tenant, with the bytes that a download of it gives. */
async function storedFiles(client: ArtifactClient): Promise<StoredFile[]> {
  const files: StoredFile[] = [];
  for (let cursor: string | null = null; ;) {
    const query: string = cursor === null ? '' : `&cursor=${encodeURIComponent(cursor)}`;
    const answer = await client.tenant.request({ path: `/v1/artifacts?limit=${FILES_PAGE}${query}` });
    const page = artifactList.parse(answer.json);
    const sizes = page.artifacts.map(async ({ artifactId, name }) => {
      const { bytes } = await client.content(artifactId);
      return { name, size: bytes.length };
    });
    files.push(...(await Promise.all(sizes)));
    if (page.nextCursor === null) return files;
    cursor = page.nextCursor;
  }
}

/** The ledger shows every call that the log has, and the budgets have counted what it shows. */
async function checkLedger(tenant: TenantClient, { sessions, settled }: Evidence): Promise<string[]> {
  const problems: string[] = [];
  const ledger: Counted[] = [];
  const lost = new Set<string>();
  for (const [sessionId, { events }] of sessions) {
    const withheld = new Set(events.filter(({ type }) => type === 'model.withheld').map(({ data }) => data['callId']));
    const asked = events.filter(({ type, data }) => type === 'model.requested' && !withheld.has(data['callId']));
    const shown = await tenant.allCalls(sessionId);
    if (shown.length !== asked.length) {
      problems.push(`${sessionId}: the ledger has ${shown.length} calls, the log ${asked.length}`);
    }
    for (const { id: callId, outcome, usage } of shown) {
      if (usage.tokensReported) ledger.push({ callId, tokens: usage.totalTokens });
      else if (outcome === 'lost' || outcome === 'cancelled') lost.add(callId);
      // A provider that refuses, or hangs up, has said nothing that could be counted.
      else ledger.push({ callId, tokens: 0 });
    }
  }
  const answer = await tenant.request({ path: '/v1/tenant/budgets' });
  const spent = budgetList.parse(answer.json).budgets.find(({ id }) => id === 'all')?.spentTokens;
  const counted = sum(settled, ({ tokens }) => tokens);
  if (spent !== counted) problems.push(`the budget shows ${spent} tokens, and has counted ${counted}`);
  return [...problems, ...checkSpending(settled, ledger, lost)];
}

/** The provider's count against the ledger of the sessions that it answers. */
async function checkCalls({ world, pages }: Run): Promise<readonly string[]> {
  const turns = new Map<string, string | null>();
  const ledger: LedgerCall[] = [];
  for (const sessionId of world.sessions.filter(isRemote)) {
    for (const { type, turnId, payload } of pages.get(sessionId) ?? []) {
      const message = type === 'command.message' ? messageIn(Reflect.get(Object(payload), 'content')) : null;
      if (message !== null) turns.set(message, turnId);
    }
    for (const { id: callId, turnId, outcome, usage } of await world.tenant.allCalls(sessionId)) {
      ledger.push({ callId, turnId, outcome, answer: usage.tokensReported ? usage.outputTokens : null });
    }
  }
  const received = world.provider.calls.map(({ id, message }) => ({ id, turnId: turns.get(message) ?? null }));
  return checkProvider(received, ledger);
}

async function audited(cluster: Cluster): Promise<string[]> {
  const problems: string[] = [];
  for (const what of ['verify', 'replay'] as const) {
    const { code, text } = await agentHost(cluster.environment(), 'audit', what);
    if (code !== 0) problems.push(`audit ${what}: ${text.slice(-2_000)}`);
  }
  return problems;
}

/** How often clients did what to sandboxes. */
function actsDone(acts: Rest['record']['acts']): Readonly<Record<string, number>> {
  const done = Map.groupBy(
    acts.filter(({ outcome }) => outcome === 'accepted'),
    ({ what }) => what,
  );
  return Object.fromEntries([...done].map(([what, { length }]) => [`sandboxes: ${what}, by clients`, length]));
}

function sum<T>(list: readonly T[], of: (one: T) => number): number {
  return list.reduce((total, one) => total + of(one), 0);
}

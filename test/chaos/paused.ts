import { randomBytes } from 'node:crypto';
import { interactionList } from '#src/http/wire/interactions.ts';
import { delay } from '#src/lib/backoff.ts';
import { genesisOf } from '#src/streams/chain.ts';
import type { Commit } from '#src/streams/commit.ts';
import type { EventStore } from '#src/streams/event-store.ts';
import { AdminClient } from '../support/client.ts';
import type { TenantClient } from '../support/client.ts';
import type { Cluster } from '../support/cluster/cluster.ts';
import type { Random } from '../support/random.ts';
import { until } from '../support/wait-until.ts';
import { openLogOf, readCommits } from '../support/log-reader.ts';
import { checkPaused, TURN_ENDS } from './checks.ts';

/** Turns of another tenant that wait for a person all through a run, as most turns of a large installation do. */
export interface PausedTurns {
  readonly tenant: TenantClient;
  readonly sessions: readonly string[];
}

const TOOLS = [{ name: 'careful', inputSchema: { type: 'object' }, approval: 'always' }];
const SCRIPT = JSON.stringify({
  fixture: [{ text: 'may I', toolCalls: [{ name: 'careful', input: {} }] }, { text: 'done' }],
});
const AT_ONCE = 256;
const ANSWERED = 50;
const LIST_PAGE = 200;
const AGAIN_MS = 200;
const FRESH_MS = 120_000;
/** 48 bits of time and 80 of chance. What is derived from an id differs from it in the last characters. */
const ULID = /\b([a-z]{2}_)([0-7][0-9a-hjkmnp-tv-z]{9})[0-9a-hjkmnp-tv-z]{10}([0-9a-hjkmnp-tv-z]{6})\b/g;
const DIGITS = '0123456789abcdefghjkmnpqrstvwxyz';

/**
 * One turn is paused as a client does it, and its log written again for each other session, with ids of its own and as
 * one commit: a request and a turn of each would take longer than the run.
 */
export async function pauseTurns(cluster: Cluster, count: number): Promise<PausedTurns> {
  const tenant = await new AdminClient(cluster).createTenant();
  await tenant.saveAgent('agent', { tools: TOOLS });
  const template = 'paused/0';
  await tenant.openSession(template);
  await tenant.message(template, SCRIPT);
  await until('the first turn waits', async () => (await tenant.session(template)).waits.length > 0, FRESH_MS);
  const sessions = [template, ...Array.from({ length: count - 1 }, (_, n) => `paused/${n + 1}`)];
  const log = await openLogOf(cluster.environment(), 3);
  try {
    const commits = await readCommits(log.store, { tenant: tenant.tenantId, kind: 'session', id: template });
    const [first] = commits;
    if (first === undefined) throw new Error('the first turn has no log');
    const events = commits.flatMap(({ commit }) => commit.events);
    const receipt = commits.find(({ commit }) => commit.receipt !== undefined)?.commit.receipt;
    const text = JSON.stringify({ ...first.commit, events, ...(receipt === undefined ? {} : { receipt }) });
    const rest = sessions.slice(1).values();
    const write = async (): Promise<void> => {
      for (const id of rest) await writeCopy(log.store, { tenant: tenant.tenantId, id }, text);
    };
    await Promise.all(Array.from({ length: AT_ONCE }, write));
  } finally {
    await log.close();
  }
  return { tenant, sessions };
}

async function writeCopy(
  store: EventStore,
  { tenant, id }: { tenant: string; id: string },
  text: string,
): Promise<void> {
  const ref = { tenant, kind: 'session', id } as const;
  const own = Array.from(randomBytes(10), (byte) => DIGITS[byte % DIGITS.length]).join('');
  // The time and the last characters stay, so that ids that were derived from one another still are.
  const commit = JSON.parse(text.replaceAll(ULID, `$1$2${own}$3`)) as Commit;
  for (;;) {
    try {
      const result = await store.append(ref, 0, { ...commit, rev: 1, prev: genesisOf(ref) });
      if (result.kind !== 'appended') throw new TypeError(`${id} is there already`);
      return;
    } catch (error) {
      if (error instanceof TypeError) throw error;
      await delay(AGAIN_MS);
    }
  }
}

/** When everything is at rest: some are answered and end, all others wait as they did. Returns what is wrong. */
export async function checkPausedTurns({ tenant, sessions }: PausedTurns, random: Random): Promise<readonly string[]> {
  const problems: string[] = [];
  const answered = new Set<string>();
  for (let n = 0; n < Math.min(ANSWERED, sessions.length); n++) {
    answered.add(sessions[random.int(0, sessions.length - 1)] ?? '');
  }
  for (const id of answered) {
    const wait = (await tenant.session(id)).waits[0];
    const answer = await tenant.command(id, { type: 'approve', interactionId: wait?.id, approved: false });
    if (answer.status !== 202)
      problems.push(`the paused turn of ${id} cannot be answered: ${answer.status} ${answer.text}`);
  }
  const isIdle = async (id: string): Promise<boolean> => (await tenant.session(id)).status === 'idle';
  for (const id of answered) {
    await until(`the turn of ${id} ends`, async () => await isIdle(id), FRESH_MS).catch(async () => {
      problems.push(`the paused turn of ${id} does not end: ${JSON.stringify(await tenant.session(id))}`);
    });
    const ends = (await tenant.items(id)).filter(({ type }) => TURN_ENDS.has(type));
    if (ends.length !== 1 || ends[0]?.type !== 'turn.completed') {
      problems.push(`the paused turn of ${id} has the ends ${ends.map(({ type }) => type).join(', ')}`);
    }
  }
  return [...problems, ...checkPaused(sessions, answered, await waiting(tenant))];
}

async function waiting(tenant: TenantClient): Promise<string[]> {
  const found: string[] = [];
  for (let cursor: string | null = null; ;) {
    const after: string = cursor === null ? '' : `&cursor=${encodeURIComponent(cursor)}`;
    const answer = await tenant.request({ path: `/v1/interactions?limit=${LIST_PAGE}${after}` });
    const page = interactionList.parse(answer.json);
    found.push(...page.interactions.map(({ sessionId }) => sessionId));
    if (page.nextCursor === null) return found;
    cursor = page.nextCursor;
  }
}

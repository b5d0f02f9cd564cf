import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, expect, test, vi } from 'vitest';
import { FillThreads } from '#src/cli/fill-threads.ts';
import { StartError } from '#src/lib/start-error.ts';
import { newId } from '#src/lib/ids.ts';
import { audit } from '#src/projections/audit.ts';
import { rebuild } from '#src/projections/rebuild.ts';
import type { RebuildOptions } from '#src/projections/rebuild.ts';
import type { FillThread } from '#src/projections/fill.ts';
import { TEST_HOST_KEY } from '../support/host-keys.ts';
import { openLog } from '../support/jetstream.ts';
import type { TestLog } from '../support/jetstream.ts';
import { capturedLog } from '../support/logger.ts';
import { TestNats } from '../support/nats.ts';
import type { TestDatabase } from '../support/postgres.ts';
import { seededRandom } from '../support/random.ts';
import { randomHistory } from '../support/random-sessions.ts';
import { groupOf } from '../support/read-side.ts';
import { useServers } from '../support/servers.ts';

const random = seededRandom('fill-threads');
const sessions = groupOf('sessions');
const servers = useServers({ postgres: true });
const PROGRAM = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
const SHARDS = 4;

afterEach(() => vi.unstubAllEnvs());

interface Ground {
  readonly log: TestLog;
  readonly database: TestDatabase;
  /** How many the log has. */
  readonly commits: number;
}

/** Servers of an installation with commits in each stream, and the environment of a command beside it. */
async function ground(stack: AsyncDisposableStack): Promise<Ground> {
  const nats = stack.use(await TestNats.start());
  const log = stack.use(await openLog(nats.url, { shards: SHARDS }));
  const database = stack.use(await servers.postgres.migrated());
  const directory = await mkdtemp(join(tmpdir(), 'agent-host-rebuild-'));
  stack.defer(async () => await rm(directory, { recursive: true, force: true }));
  const kek = join(directory, 'kek');
  await writeFile(kek, TEST_HOST_KEY.export().toString('base64'));
  const env = { NATS_URL: nats.url, DATABASE_URL: database.url, AGENT_HOST_KEK_FILE: kek };
  for (const [name, value] of Object.entries(env)) vi.stubEnv(name, value);
  let commits = 0;
  for (const shards = new Set<number>(); shards.size < SHARDS;) {
    const appended = await append(log);
    shards.add(appended.shard);
    commits += appended.commits;
  }
  return { log, database, commits };
}

/** A session, which is in any of the streams. */
async function append({ store }: TestLog): Promise<{ readonly shard: number; readonly commits: number }> {
  const { commits } = randomHistory(random, { sessions: 1, commits: 20, tenant: newId('tn') });
  let [head, shard] = [0, 0];
  for (const { ref, commit } of commits) {
    const result = await store.append(ref, head, commit);
    if (result.kind !== 'appended') throw new Error('a conflict with nobody');
    [head, shard] = [result.position, store.shardOf(ref)];
  }
  return { shard, commits: commits.length };
}

async function optionsOf({ log, database }: Ground): Promise<RebuildOptions> {
  const { logger } = capturedLog();
  const pool = await database.pool();
  return { pool, source: log.source, seals: log.seals, group: sessions, logger, onProgress: () => undefined };
}

function threadsOf(stack: AsyncDisposableStack, count: number): FillThreads {
  return stack.adopt(new FillThreads(PROGRAM, count), async (threads) => await threads.end());
}

const rowsOf = async ({ database }: Ground) =>
  await database.rows(sessions.schema, [...sessions.tables, 'checkpoint', 'parked']);

test('threads fill streams beside the one that rebuilds or audits, and the rows are the same', async () => {
  await using stack = new AsyncDisposableStack();
  const at = await ground(stack);
  const options = await optionsOf(at);
  await rebuild(options);
  const alone = await rowsOf(at);
  const { all } = threadsOf(stack, 2);
  await Promise.all(all.map(async ({ ready }) => await ready));
  const filled: number[] = [];
  const threads = all.map((thread): FillThread => ({
    ready: thread.ready,
    fill: async (stream) => {
      filled.push(stream.shard);
      await thread.fill(stream);
    },
  }));
  const reached = new Map<number, boolean>();
  await rebuild({
    ...{ ...options, threads },
    onProgress: ({ shard, position, newest }) => void reached.set(shard, position >= newest),
  });
  expect(filled.length).toBeGreaterThanOrEqual(2);
  expect(await rowsOf(at)).toEqual(alone);
  let commits = 0;
  const audited = await audit({
    ...{ ...options, threads, until: null, version: '1', shownMax: 0, onDifference: () => undefined },
    onProgress: (applied) => void (commits += applied.commits),
  });
  expect(audited).toEqual({ deletedSessions: 0, rows: Object.values(alone).flat().length - SHARDS, differences: 0 });
  expect(commits).toBe(at.commits);
  expect(filled.length).toBeGreaterThanOrEqual(4);
  // What a thread does is told of, too.
  expect([...reached.entries()].toSorted(([a], [b]) => a - b)).toEqual([0, 1, 2, 3].map((shard) => [shard, true]));
});

test('a thread that fails ends the rebuild with its reason, and nothing is swapped', async () => {
  await using stack = new AsyncDisposableStack();
  const at = await ground(stack);
  const options = await optionsOf(at);
  await rebuild(options);
  const before = await rowsOf(at);
  for (let n = 0; n < SHARDS; n++) await append(at.log);
  const { all } = threadsOf(stack, 1);
  const [thread] = all;
  await thread?.ready;
  const ready = Promise.resolve();
  // Ended by the failure of another, which comes after it.
  const ended: FillThread['fill'] = async ({ signal }) => {
    if (!signal.aborted) await once(signal, 'abort');
    throw new Error('ended with the others');
  };
  const nowhere: FillThread['fill'] = async (stream) => await thread?.fill({ ...stream, schema: 'nowhere' });
  const threads = [ended, nowhere].map((fill) => ({ ready, fill }));
  await expect(rebuild({ ...options, threads })).rejects.toThrow(/nowhere/);
  expect(await rowsOf(at)).toEqual(before);
  // It fills nothing after that.
  await expect(rebuild({ ...options, threads: all })).rejects.toThrow(/nowhere/);
  expect(await rowsOf(at)).toEqual(before);
  await rebuild(options);
  expect(await rowsOf(at)).not.toEqual(before);
});

test('who is told of progress may end it', async () => {
  await using stack = new AsyncDisposableStack();
  const at = await ground(stack);
  const options = await optionsOf(at);
  const { all } = threadsOf(stack, 1);
  const [thread] = all;
  await thread?.ready;
  const onProgress = (): void => {
    throw new Error('enough');
  };
  const alone: FillThread = {
    ready: Promise.resolve(),
    fill: async (stream) => await thread?.fill({ ...stream, onProgress }),
  };
  await expect(rebuild({ ...options, threads: [alone] })).rejects.toThrow('enough');
  // It has ended, too, and does not fill what the next one swaps.
  await expect(rebuild({ ...options, threads: all })).rejects.toThrow('enough');
});

test('a thread is ended in the middle of a stream', async () => {
  await using stack = new AsyncDisposableStack();
  await ground(stack);
  const { all } = threadsOf(stack, 1);
  const [thread] = all;
  await thread?.ready;
  const ending = new AbortController();
  const stream = { group: sessions, schema: sessions.schema, shard: 0, onProgress: () => undefined };
  const filled = thread?.fill({ ...stream, signal: ending.signal });
  ending.abort();
  await expect(filled).rejects.toThrow('has ended');
});

test('a thread that cannot start says what to do', async () => {
  await using stack = new AsyncDisposableStack();
  await ground(stack);
  vi.stubEnv('AGENT_HOST_KEK_FILE', '/nowhere');
  const { all } = threadsOf(stack, 1);
  await expect(all[0]?.ready).rejects.toThrow(StartError);
  await expect(all[0]?.ready).rejects.toThrow('AGENT_HOST_KEK_FILE');
});

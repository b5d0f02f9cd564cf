import type { NatsConnection } from '@nats-io/transport-node';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import type { AppendResult, EventStore } from '#src/streams/event-store.ts';
import { appendAll, hashOf, newCommit, newCommits, newRef } from '../support/commits.ts';
import { openLog } from '../support/jetstream.ts';
import type { TestLog } from '../support/jetstream.ts';
import { TestNats } from '../support/nats.ts';
import { seededRandom } from '../support/random.ts';
import { TcpProxy } from '../support/tcp-proxy.ts';
import { until } from '../support/wait-until.ts';

const random = seededRandom('event-store-faults');
const disposables = new AsyncDisposableStack();
let nats: TestNats;
let proxy: TcpProxy;
/** The log as everybody else sees it, and through the proxy. */
let direct: TestLog;
let faulty: TestLog;
let retries = 0;
let reconnects = 0;

beforeAll(async () => {
  nats = disposables.use(await TestNats.start());
  proxy = disposables.use(await TcpProxy.start(nats.port));
  direct = disposables.use(await openLog(nats.url));
  faulty = disposables.use(
    await openLog(nats.urlThrough(proxy.port), {
      codec: direct.codec,
      publishTimeoutMs: 150,
      onRetry: () => {
        retries++;
      },
    }),
  );
  void countReconnects(faulty.connections.appends);
});

async function countReconnects(connection: NatsConnection): Promise<void> {
  for await (const status of connection.status()) if (status.type === 'reconnect') reconnects++;
}

afterAll(async () => {
  proxy.pass();
  await disposables.disposeAsync();
});

/** Nothing is lost any more, and the store is connected again. */
async function restored(): Promise<void> {
  const before = reconnects;
  proxy.cutAll();
  proxy.pass();
  await until('the store is connected', () => reconnects > before);
}

const isStored = async (ref: ReturnType<typeof newRef>, expected: number): Promise<boolean> =>
  (await direct.store.head(ref)) > expected;

async function idsOf(ref: ReturnType<typeof newRef>): Promise<{ position: number; commitId: string }[]> {
  const page = await direct.store.read(ref, { after: 0, limit: 1_000 });
  return page.commits.map(({ position, commit }) => ({ position, commitId: commit.commitId }));
}

describe('lost acknowledgements', () => {
  test('an append whose reply is cut anywhere is stored once and is `appended` at its place', async () => {
    const before = retries;
    const refs = Array.from({ length: 4 }, () => newRef());
    const heads = refs.map(() => 0);
    const expected = refs.map((): { position: number; commitId: string }[] => []);
    for (let round = 1; round <= 14; round++) {
      // An acknowledgement is some 100 bytes: the cut is before, inside, or between the four of them.
      proxy.dropReplies(random.int(0, 300));
      const appends = refs.map(async (ref, n) => {
        const commit = newCommit(round);
        const result = await faulty.store.append(ref, heads[n] ?? 0, commit);
        return { commit, result };
      });
      await until('all are stored', async () => {
        const stored = await Promise.all(refs.map(async (ref, n) => await isStored(ref, heads[n] ?? 0)));
        return stored.every(Boolean);
      });
      await restored();
      for (const [n, { commit, result }] of (await Promise.all(appends)).entries()) {
        if (result.kind !== 'appended') throw new Error(`round ${round}: the store took its own commit for a rival's`);
        heads[n] = result.position;
        expected[n]?.push({ position: result.position, commitId: commit.commitId });
      }
    }
    for (const [n, ref] of refs.entries()) expect(await idsOf(ref)).toEqual(expected[n]);
    expect(retries - before).toBeGreaterThan(10);
  });

  test('a request that never arrived is sent again', async () => {
    const ref = newRef();
    proxy.dropRequests();
    const commit = newCommit(1);
    const before = retries;
    const append = faulty.store.append(ref, 0, commit);
    await until('it was tried again', () => retries > before);
    expect(await isStored(ref, 0)).toBe(false);
    await restored();
    const result = await append;
    expect(await idsOf(ref)).toEqual([
      { position: result.kind === 'appended' && result.position, commitId: commit.commitId },
    ]);
  });

  test('a rival who builds on the stored commit does not make it a conflict', async () => {
    for (let round = 0; round < 5; round++) {
      const ref = newRef();
      const [start = 0] = await appendAll(direct.store, ref, newCommits(1));
      proxy.dropReplies(random.int(0, 60));
      const mine = newCommit(2);
      const append = faulty.store.append(ref, start, mine);
      await until('mine is stored', async () => await isStored(ref, start));
      const rivals = await appendAll(direct.store, ref, newCommits(random.int(1, 3)));
      await restored();
      const result = await append;
      const stored = await idsOf(ref);
      expect(result).toEqual({ kind: 'appended', position: stored[1]?.position, hash: hashOf(mine) });
      expect(stored[1]?.commitId).toBe(mine.commitId);
      expect(stored).toHaveLength(2 + rivals.length);
    }
  });

  test('a rival with the same expectation: one commit at that place, and only its writer hears `appended`', async () => {
    let lost = 0;
    for (let round = 0; round < 20; round++) {
      const ref = newRef();
      const [start = 0] = await appendAll(direct.store, ref, newCommits(1));
      const [mine, rival] = [newCommit(2), newCommit(2)];
      // Which of the two comes first is left to chance, and for some to us.
      if (round % 3 === 0) proxy.dropRequests();
      else proxy.dropReplies(random.int(0, 60));
      const rivalAppends = async (): Promise<AppendResult> => {
        if (round % 3 === 1) await until('mine is stored', async () => await isStored(ref, start));
        return await direct.store.append(ref, start, rival);
      };
      const appends = [faulty.store.append(ref, start, mine), rivalAppends()];
      await until('one is stored', async () => await isStored(ref, start));
      await restored();
      const results = await Promise.all(appends);
      const stored = await idsOf(ref);
      expect(stored).toHaveLength(2);
      const winner = stored[1];
      expect(results).toEqual(
        [mine, rival].map((commit) =>
          commit.commitId === winner?.commitId
            ? { kind: 'appended', position: winner.position, hash: hashOf(commit) }
            : { kind: 'conflict' },
        ),
      );
      if (winner?.commitId === rival.commitId) lost++;
    }
    expect(lost).toBeGreaterThanOrEqual(7);
    expect(lost).toBeLessThanOrEqual(13);
  });

  test('reads whose answer is lost fail in time, and never show half a page as the whole', async () => {
    const ref = newRef();
    const refs = Array.from({ length: 20 }, () => newRef());
    await appendAll(direct.store, ref, newCommits(50));
    for (const each of refs) await appendAll(direct.store, each, newCommits(1));
    // Both answers are longer: something of the one or of both is lost, wherever the cut falls.
    proxy.dropReplies(random.int(0, 4_000));
    const reads = await Promise.allSettled([
      faulty.store.read(ref, { after: 0, limit: 100 }),
      faulty.store.heads(refs),
    ]);
    await restored();
    for (const read of reads) {
      expect(read.status === 'rejected' ? read.reason : null).toMatchObject({ dependency: 'streams' });
    }
    expect((await faulty.store.read(ref, { after: 0, limit: 100 })).commits).toHaveLength(50);
    expect((await faulty.store.heads(refs)).size).toBe(20);
  });

  test.each([
    ['back', -1],
    ['on', 1],
  ])('the clock of the machine is set an hour %s: an append is tried for as long as ever', async (_, direction) => {
    const deadlineMs = 1_500;
    let tries = 0;
    const options = { codec: direct.codec, publishTimeoutMs: 150, appendDeadlineMs: deadlineMs };
    const log = disposables.use(
      await openLog(nats.urlThrough(proxy.port), { ...options, onRetry: () => void tries++ }),
    );
    proxy.dropReplies();
    const began = performance.now();
    const append = log.store.append(newRef(), 0, newCommit(1)).catch((error: unknown) => error);
    await until('it was tried again', () => tries > 0);
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + direction * 3_600_000 });
    try {
      expect(await append).toMatchObject({ dependency: 'streams' });
    } finally {
      vi.useRealTimers();
      await restored();
    }
    const tookMs = performance.now() - began;
    expect(tookMs).toBeGreaterThanOrEqual(deadlineMs);
    // An hour would be far from it.
    expect(tookMs).toBeLessThan(deadlineMs + 25_000);
  });

  test('a slow network is no error', async () => {
    proxy.delayBy(100);
    const ref = newRef();
    const slow = disposables.use(await openLog(nats.urlThrough(proxy.port)));
    expect(await slow.store.append(ref, 0, newCommit(1))).toMatchObject({ kind: 'appended' });
    expect((await slow.store.read(ref, { after: 0, limit: 1 })).commits).toHaveLength(1);
    proxy.pass();
  });
});

describe('refusals', () => {
  test('a commit larger than the server takes fails at once, not after the deadline', async () => {
    const before = retries;
    const tooLarge = newCommit(1, { text: 'x'.repeat(9 * 1024 * 1024) });
    await expect(faulty.store.append(newRef(), 0, tooLarge)).rejects.toThrow('max_payload');
    expect(retries).toBe(before);
  });
});

describe('kill -9 of the server', () => {
  test('nothing acknowledged is lost, nothing is stored twice', async () => {
    const refs = Array.from({ length: 6 }, () => newRef());
    const killsAt = [random.int(30, 90), random.int(140, 200), random.int(250, 310)];
    let acknowledged = 0;
    const writing = refs.map(async (ref, n) => {
      const store: EventStore = n % 2 === 0 ? direct.store : faulty.store;
      const mine: { position: number; commitId: string }[] = [];
      for (let rev = 1; rev <= 80; rev++) {
        const commit = newCommit(rev);
        const result = await store.append(ref, mine.at(-1)?.position ?? 0, commit);
        if (result.kind !== 'appended') throw new Error('a conflict with nobody');
        mine.push({ position: result.position, commitId: commit.commitId });
        acknowledged++;
      }
      return mine;
    });
    for (const count of killsAt) {
      await until(`${count} appends`, () => acknowledged >= count);
      await nats.kill();
      await nats.restart();
    }
    const expected = await Promise.all(writing);
    for (const [n, ref] of refs.entries()) expect(await idsOf(ref)).toEqual(expected[n]);
  });

  test('an append gives up with UnavailableError (streams) only when its deadline has passed', async () => {
    const deadlineMs = 700;
    const options = { codec: direct.codec, publishTimeoutMs: 200, appendDeadlineMs: deadlineMs };
    const log = disposables.use(await openLog(nats.url, options));
    const ref = newRef();
    const [start = 0] = await appendAll(direct.store, ref, newCommits(1));
    const [commit, second] = [newCommit(2), newCommit(2)];
    await nats.kill();
    const began = performance.now();
    const failures = await Promise.allSettled([
      log.store.append(ref, start, commit),
      log.store.append(ref, start, second),
    ]);
    const tookMs = performance.now() - began;
    await nats.restart();
    for (const failure of failures) {
      expect(failure.status === 'rejected' ? failure.reason : null).toMatchObject({ dependency: 'streams' });
    }
    expect(tookMs).toBeGreaterThanOrEqual(deadlineMs);
    // A publish and a pause longer, on a busy machine.
    expect(tookMs).toBeLessThan(deadlineMs + 25_000);
    // What the client still had in its hands may arrive after the restart; at most one of the two can stand there.
    const again = await until(
      'the log answers',
      async () => await direct.store.append(ref, start, commit).catch(() => undefined),
    );
    const stored = await idsOf(ref);
    expect(stored).toHaveLength(2);
    expect(again.kind).toBe(stored[1]?.commitId === commit.commitId ? 'appended' : 'conflict');
  });
});

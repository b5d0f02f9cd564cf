import { createHash } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { genesisOf } from '#src/streams/chain.ts';
import type { Commit } from '#src/streams/commit.ts';
import type { CommitSource, EventStore, LiveCommit, LiveFeed } from '#src/streams/event-store.ts';
import { refKey } from '#src/streams/subjects.ts';
import type { AggregateRef } from '#src/streams/subjects.ts';
import { appendAll, hashOf, newCommit, newCommits, newRef } from '../support/commits.ts';
import { until } from '../support/wait-until.ts';
import { commitSourceConformance, followTo } from './commit-source.ts';

/** One node on a log of its own. */
export interface EventStoreFixture extends AsyncDisposable {
  readonly store: EventStore;
  readonly feed: LiveFeed;
  readonly source: CommitSource;
  /** Another node's store on the same log. */
  another(): Promise<EventStore>;
  /** Puts bytes that are no commit into the history of an aggregate. */
  garbage(ref: AggregateRef): Promise<void>;
}

/** What every implementation of the ports in src/streams/event-store.ts promises. */
export function eventStoreConformance(name: string, makeFixture: () => Promise<EventStoreFixture>): void {
  describe(`the log ${name}`, () => {
    let fixture: EventStoreFixture;
    let store: EventStore;

    beforeAll(async () => {
      fixture = await makeFixture();
      ({ store } = fixture);
    });

    afterAll(async () => {
      await fixture[Symbol.asyncDispose]();
    });

    describe('append and read', () => {
      appendAndRead(() => store);
    });
    describe('pages', () => {
      pages(() => store);
    });
    describe('heads', () => {
      heads(() => store);
    });
    describe('hashes', () => {
      hashes(() => fixture);
    });
    describe('races', () => {
      races(() => fixture);
    });
    describe('live feed', () => {
      liveFeed(() => fixture);
    });
    describe('commit source', () => {
      commitSourceConformance(() => fixture);
    });
  });
}

function appendAndRead(store: () => EventStore): void {
  test('what was appended is read back, and head names the newest', async () => {
    const ref = newRef();
    const commits = newCommits(3);
    const positions = await appendAll(store(), ref, commits);
    const page = await store().read(ref, { after: 0, limit: 10 });
    const shard = store().shardOf(ref);
    expect(page).toEqual({
      commits: commits.map((commit, n) => ({ ref, shard, position: positions[n], hash: hashOf(commit), commit })),
      more: false,
    });
    expect(await store().head(ref)).toBe(positions[2]);
    expect(positions).toEqual(positions.toSorted((a, b) => a - b));
  });

  test('an aggregate without a commit has head 0 and an empty page', async () => {
    const ref = newRef();
    expect(await store().head(ref)).toBe(0);
    expect(await store().read(ref, { after: 0, limit: 10 })).toEqual({ commits: [], more: false });
  });

  test('the first append needs the expectation 0', async () => {
    const ref = newRef();
    expect(await store().append(ref, 0, newCommit(1))).toMatchObject({ kind: 'appended' });
    expect(await store().append(ref, 0, newCommit(2))).toEqual({ kind: 'conflict' });
    expect((await store().read(ref, { after: 0, limit: 10 })).commits).toHaveLength(1);
  });

  test('a stale expectation conflicts, with the first and with a later one', async () => {
    const ref = newRef();
    const [first = 0, second = 0] = await appendAll(store(), ref, newCommits(3));
    for (const expected of [0, first, second]) {
      expect(await store().append(ref, expected, newCommit(4))).toEqual({ kind: 'conflict' });
    }
    expect((await store().read(ref, { after: 0, limit: 10 })).commits).toHaveLength(3);
  });

  test('the same commit a second time is one commit, at its place', async () => {
    const ref = newRef();
    const commit = newCommit(1);
    const first = await store().append(ref, 0, commit);
    expect(await store().append(ref, 0, commit)).toEqual(first);
    await appendAll(store(), ref, newCommits(1));
    expect(await store().append(ref, 0, commit)).toEqual(first);
    expect((await store().read(ref, { after: 0, limit: 10 })).commits).toHaveLength(2);
  });

  test('the same commit id in two aggregates is two commits', async () => {
    const [a, b] = [newRef(), newRef()];
    const commit = newCommit(1);
    const results = [await store().append(a, 0, commit), await store().append(b, 0, commit)];
    expect(results.map(({ kind }) => kind)).toEqual(['appended', 'appended']);
    expect((await store().read(b, { after: 0, limit: 2 })).commits).toHaveLength(1);
  });

  test('a commit holds one event or many, in order', async () => {
    const ref = newRef();
    const commits = [newCommit(1), newCommit(2, { events: 2 }), newCommit(3, { events: 200 })];
    await appendAll(store(), ref, commits);
    const page = await store().read(ref, { after: 0, limit: 10 });
    expect(page.commits.map(({ commit }) => commit)).toEqual(commits);
  });

  test('a commit of more than 1 MiB survives byte for byte', async () => {
    const ref = newRef();
    const commit = newCommit(1, { text: 'ä€😀'.repeat(120_000) });
    expect(JSON.stringify(commit).length).toBeGreaterThan(400_000);
    expect(Buffer.byteLength(JSON.stringify(commit))).toBeGreaterThan(1024 * 1024);
    await appendAll(store(), ref, [commit]);
    expect((await store().read(ref, { after: 0, limit: 1 })).commits[0]?.commit).toEqual(commit);
  });

  test.each([
    ['every character of a client id', 'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/x'],
    ['the longest client id', `${'a/'.repeat(99)}bc`],
    ['what means something in a subject', 'a.*.>.$JS =%20 b'],
    ['no ASCII at all', 'ä€😀中'],
  ])('an id with %s', async (_, id) => {
    const ref = { ...newRef(), id };
    const positions = await appendAll(store(), ref, newCommits(2));
    const page = await store().read(ref, { after: 0, limit: 10 });
    expect(page.commits.map((stored) => [stored.ref, stored.position])).toEqual(positions.map((at) => [ref, at]));
    expect(await store().head(ref)).toBe(positions[1]);
    expect((await store().heads([ref])).get(refKey(ref))).toBe(positions[1]);
  });

  test('aggregates do not see each other, however alike their names', async () => {
    const ref = newRef();
    const alike: AggregateRef[] = [
      ref,
      { ...ref, kind: 'sandbox' },
      { ...ref, id: `${ref.id}/1` },
      { ...ref, id: ref.id.toUpperCase() },
      { ...ref, tenant: newRef().tenant },
    ];
    const commits = alike.map((_, n) => newCommit(n + 1));
    for (const [n, each] of alike.entries()) {
      expect(await store().append(each, 0, commits[n] ?? newCommit(0))).toMatchObject({ kind: 'appended' });
    }
    for (const [n, each] of alike.entries()) {
      const page = await store().read(each, { after: 0, limit: 10 });
      expect(page.commits.map(({ commit }) => commit)).toEqual([commits[n]]);
    }
  });
}

function pages(store: () => EventStore): void {
  test('pages by `after` and `limit` give every commit once, and `more` until the last', async () => {
    const ref = newRef();
    const noise = newRef();
    const commits = newCommits(25);
    for (const commit of commits) {
      await appendAll(store(), ref, [commit]);
      await appendAll(store(), noise, newCommits(1));
    }
    const seen: string[] = [];
    const more: boolean[] = [];
    for (let after = 0, page; ;) {
      page = await store().read(ref, { after, limit: 10 });
      seen.push(...page.commits.map(({ commit }) => commit.commitId));
      more.push(page.more);
      if (!page.more) break;
      after = page.commits.at(-1)?.position ?? 0;
    }
    expect(seen).toEqual(commits.map(({ commitId }) => commitId));
    expect(more).toEqual([true, true, false]);
  });

  test('a page that ends exactly at the newest commit has no more', async () => {
    const ref = newRef();
    const positions = await appendAll(store(), ref, newCommits(4));
    expect((await store().read(ref, { after: 0, limit: 4 })).more).toBe(false);
    expect((await store().read(ref, { after: 0, limit: 3 })).more).toBe(true);
    expect(await store().read(ref, { after: positions[3] ?? 0, limit: 3 })).toEqual({ commits: [], more: false });
  });

  test('a page of a thousand', async () => {
    const ref = newRef();
    await appendAll(store(), ref, newCommits(1_001));
    const page = await store().read(ref, { after: 0, limit: 1_000 });
    expect([page.commits.length, page.more]).toEqual([1_000, true]);
    expect(page.commits.map(({ commit }) => commit.rev)).toEqual(Array.from({ length: 1_000 }, (_, n) => n + 1));
  });

  test('a page of large commits is shorter than asked for, and those after it are in the next ones', async () => {
    const ref = newRef();
    const commits = Array.from({ length: 40 }, (_, n) => newCommit(n + 1, { text: 'x'.repeat(100_000) }));
    const positions = await appendAll(store(), ref, commits);
    const seen: number[] = [];
    for (let [after, more] = [0, true]; more;) {
      const page = await store().read(ref, { after, limit: 1_000, atLeast: positions.at(-1) ?? 0 });
      expect(page.commits.length).toBeGreaterThan(0);
      expect(page.commits.length).toBeLessThanOrEqual(20);
      seen.push(...page.commits.map(({ position }) => position));
      after = seen.at(-1) ?? 0;
      ({ more } = page);
    }
    expect(seen).toEqual(positions);
  });

  test('`atLeast` reaches the position right after the acknowledgement, at the end and inside a page', async () => {
    const ref = newRef();
    const positions = await appendAll(store(), ref, newCommits(5));
    for (const [n, atLeast] of positions.entries()) {
      const page = await store().read(ref, { after: 0, limit: 10, atLeast });
      expect(page.commits.length).toBeGreaterThan(n);
    }
    const rest = await store().read(ref, { after: positions[3] ?? 0, limit: 10, atLeast: positions[4] ?? 0 });
    expect(rest.commits).toHaveLength(1);
    // A page that is full before the position is not a page that is behind.
    const full = await store().read(ref, { after: 0, limit: 2, atLeast: positions[4] ?? 0 });
    expect([full.commits.length, full.more]).toEqual([2, true]);
  });
}

function heads(store: () => EventStore): void {
  test('1,500 aggregates at once, those without a commit left out', async () => {
    const refs = Array.from({ length: 1_500 }, () => newRef());
    const written = refs.filter((_, n) => n % 15 !== 0);
    const expected = new Map<string, number>();
    const writing = written.values();
    // A hundred at a time: on a slow disk, keys and commits of 1,400 would wait for each other past their time limit.
    const write = async (): Promise<void> => {
      for (const ref of writing) {
        const [position = 0] = await appendAll(store(), ref, newCommits(1));
        expected.set(refKey(ref), position);
      }
    };
    await Promise.all(Array.from({ length: 100 }, write));
    expect(written).toHaveLength(1_400);
    expect(new Map(await store().heads(refs))).toEqual(expected);
  });

  test('none, and only absent ones', async () => {
    expect((await store().heads([])).size).toBe(0);
    expect((await store().heads([newRef(), newRef()])).size).toBe(0);
  });
}

function hashes(fixture: () => EventStoreFixture): void {
  test('a commit has one hash: at its append and the next time it is sent, in a page, in the stream, on the feed', async () => {
    const { store, feed, source } = fixture();
    const ref = newRef('key');
    const heard: string[] = [];
    const stop = feed.listen({
      onCommit: (commit) => void (commit.key === refKey(ref) && heard.push(commit.stored().hash)),
      onDisruption: () => undefined,
    });
    const appended: string[] = [];
    let [expected, prev] = [0, genesisOf(ref)];
    for (const [n, text] of ['a', 'ä€😀\u2028"', 'x'.repeat(50_000)].entries()) {
      const commit: Commit = { ...newCommit(n + 1, { text }), prev };
      const result = await store.append(ref, expected, commit);
      if (result.kind !== 'appended') throw new Error('a conflict with nobody');
      // A retry after an outcome that was not known is the same bytes, so whoever follows it names the same predecessor.
      expect(await (await fixture().another()).append(ref, expected, commit)).toEqual(result);
      expect(result.hash).toBe(hashOf(commit));
      appended.push(result.hash);
      ({ position: expected, hash: prev } = result);
    }
    const { commits } = await store.read(ref, { after: 0, limit: 10 });
    expect(commits.map(({ hash }) => hash)).toEqual(appended);
    expect(commits.map(({ commit }) => commit.prev)).toEqual([genesisOf(ref), ...appended.slice(0, -1)]);
    const first = commits[0]?.position ?? 0;
    const followed = await followTo(source, { shard: store.shardOf(ref), kinds: 'all', after: first - 1 }, expected);
    const inStream = followed.flat().flatMap((one) => (one.kind === 'commit' ? [one.stored] : []));
    expect(inStream.filter((stored) => refKey(stored.ref) === refKey(ref)).map(({ hash }) => hash)).toEqual(appended);
    await until('all are heard', () => heard.length === appended.length);
    expect(heard).toEqual(appended);
    stop();
  });

  test('aggregates begin with a genesis of their own', () => {
    const ref = newRef();
    const alike = [ref, newRef(), { ...ref, kind: 'agent' as const }, { ...ref, tenant: newRef().tenant }];
    expect(new Set(alike.map(genesisOf)).size).toBe(alike.length);
    // Frozen: it is part of every history.
    expect(genesisOf({ tenant: 'tn_1', kind: 'session', id: 'a/b' })).toBe(
      createHash('sha256').update('agent-host genesis evt.17.tn_1.session.a=2fb').digest('hex'),
    );
  });
}

const ROUNDS = 300;

function races(fixture: () => EventStoreFixture): void {
  test('300 rounds of six writers with one expectation: one wins, five conflict', async () => {
    const stores = [fixture().store, await fixture().another(), await fixture().another()];
    const ref = newRef();
    const winners: { position: number; commitId: string }[] = [];
    let expected = 0;
    for (let round = 1; round <= ROUNDS; round++) {
      const tries = await Promise.all(
        [...stores, ...stores].map(async (store) => {
          const commit = newCommit(round);
          return { commit, result: await store.append(ref, expected, commit) };
        }),
      );
      const won = tries.flatMap(({ commit, result }) => (result.kind === 'appended' ? [{ commit, result }] : []));
      expect(won).toHaveLength(1);
      for (const { commit, result } of won) {
        expect(result.position).toBeGreaterThan(expected);
        expected = result.position;
        winners.push({ position: result.position, commitId: commit.commitId });
      }
    }
    const page = await fixture().store.read(ref, { after: 0, limit: 1_000 });
    expect(page.commits.map(({ position, commit }) => ({ position, commitId: commit.commitId }))).toEqual(winners);
    expect(page.commits.map(({ commit }) => commit.rev)).toEqual(Array.from({ length: ROUNDS }, (_, n) => n + 1));
  });
}

function liveFeed(fixture: () => EventStoreFixture): void {
  test('every stored commit comes once, chained by `previous`; refused ones never come', async () => {
    const { store, feed } = fixture();
    const refs = Array.from({ length: 5 }, () => newRef());
    const keys = new Set(refs.map(refKey));
    const seen: LiveCommit[] = [];
    const stop = feed.listen({
      onCommit: (commit) => void (keys.has(commit.key) && seen.push(commit)),
      onDisruption: () => undefined,
    });
    const other = await fixture().another();
    const stored = await Promise.all(
      refs.map(async (ref) => {
        const positions: number[] = [];
        for (let rev = 1; rev <= 20; rev++) {
          const expected = positions.at(-1) ?? 0;
          const results = await Promise.all(
            [store, other].map(async (each) => await each.append(ref, expected, newCommit(rev))),
          );
          for (const result of results) if (result.kind === 'appended') positions.push(result.position);
        }
        return positions;
      }),
    );
    await until('the newest of each aggregate has come', () =>
      refs.every((ref, n) => seen.some(({ key, position }) => key === refKey(ref) && position === stored[n]?.at(-1))),
    );
    // A commit that was refused, or sent twice, would have come before this one.
    const [last = newRef()] = refs;
    const [marker = 0] = await appendAll(store, last, newCommits(1));
    await until('the marker has come', () =>
      seen.some(({ position, key }) => key === refKey(last) && position === marker),
    );
    stop();
    stored[0]?.push(marker);
    for (const [n, ref] of refs.entries()) {
      const mine = seen.filter(({ key }) => key === refKey(ref));
      expect(mine.map(({ position }) => position)).toEqual(stored[n]);
      expect(mine.map(({ previous }) => previous)).toEqual([0, ...(stored[n] ?? []).slice(0, -1)]);
      const page = await store.read(ref, { after: 0, limit: 100 });
      expect(mine.map((commit) => commit.stored())).toEqual(page.commits);
      expect(mine.every((commit) => commit.shard === store.shardOf(ref))).toBe(true);
    }
  });

  test('all listeners hear, until they stop', async () => {
    const { store, feed } = fixture();
    const ref = newRef();
    const heard: string[] = [];
    const listen = (name: string): (() => void) =>
      feed.listen({
        onCommit: (commit) => void (commit.key === refKey(ref) && heard.push(`${name}${commit.stored().commit.rev}`)),
        onDisruption: () => undefined,
      });
    const [stopA, stopB] = [listen('a'), listen('b')];
    const [first = 0] = await appendAll(store, ref, [newCommit(1)]);
    await until('both have heard', () => heard.length === 2);
    stopA();
    await store.append(ref, first, newCommit(2));
    await until('the other has heard', () => heard.includes('b2'));
    stopB();
    expect(heard).toEqual(['a1', 'b1', 'b2']);
  });
}

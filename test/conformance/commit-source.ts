import { expect, test } from 'vitest';
import type { CommitSource, EventStore, FollowedCommit, FollowOptions } from '#src/streams/event-store.ts';
import type { AggregateRef } from '#src/streams/subjects.ts';
import { appendAll, newCommit, newCommits, newRef } from '../support/commits.ts';
import { seededRandom } from '../support/random.ts';

interface Fixture {
  readonly store: EventStore;
  readonly source: CommitSource;
  garbage(ref: AggregateRef): Promise<void>;
}

const BOUND_MS = 20_000;

export const placeOf = (followed: FollowedCommit): number =>
  followed.kind === 'commit' ? followed.stored.position : followed.position;

/** Follows until the position has come, at most 20 s; the batches as they came. */
export async function followTo(
  source: CommitSource,
  options: Omit<FollowOptions, 'signal' | 'buffer'> & { buffer?: number },
  position: number,
): Promise<(readonly FollowedCommit[])[]> {
  const batches: (readonly FollowedCommit[])[] = [];
  const signal = AbortSignal.timeout(BOUND_MS);
  for await (const batch of source.follow({ buffer: 100, ...options, signal })) {
    batches.push(batch);
    if (batch.some((followed) => placeOf(followed) >= position)) break;
  }
  return batches;
}

/** An aggregate of the kind in the given shard. */
function refIn(store: EventStore, shard: number, kind: AggregateRef['kind'] = 'session'): AggregateRef {
  for (;;) {
    const ref = newRef(kind);
    if (store.shardOf(ref) === shard) return ref;
  }
}

/** Part of `eventStoreConformance`. */
export function commitSourceConformance(fixture: () => Fixture): void {
  test('each stream gives its commits of the wanted kinds, in order, from the wanted position on', async () => {
    const { store, source } = fixture();
    for (const shard of new Set([0, source.shards - 1])) {
      const [session, sandbox, agent] = [
        refIn(store, shard),
        refIn(store, shard, 'sandbox'),
        refIn(store, shard, 'agent'),
      ] as const;
      const expected: { position: number; commitId: string }[] = [];
      for (let n = 0; n < 30; n++) {
        for (const ref of [session, sandbox, agent]) {
          const commit = newCommit(n + 1);
          const [position = 0] = await appendAll(store, ref, [commit]);
          expected.push(...(ref === sandbox ? [] : [{ position, commitId: commit.commitId }]));
        }
      }
      const [from, newest] = [expected[19], expected.at(-1)];
      const options = { shard, kinds: ['session', 'agent'], after: from?.position ?? 0 } as const;
      const batches = await followTo(source, options, newest?.position ?? 0);
      const got = batches
        .flat()
        .map((followed) =>
          followed.kind === 'commit'
            ? { position: followed.stored.position, commitId: followed.stored.commit.commitId }
            : followed,
        );
      expect(got).toEqual(expected.slice(20));
      expect(await source.newest(shard, ['agent'])).toBe(newest?.position);
      expect(await source.newest(shard, ['issuer'])).toBe(0);
    }
  });

  test('the newest of some kinds is known, whatever came after it and whatever was erased', async () => {
    const { store, source } = fixture();
    const random = seededRandom('newest commits');
    const kinds = ['session', 'sandbox', 'budget', 'agent'] as const;
    const asked = [...kinds.map((kind) => [kind]), ['session', 'agent'], ['sandbox', 'budget']] as const;
    // One of each kind stays, so that something is there to be found.
    const there = new Map(kinds.map((kind) => [refIn(store, 0, kind), 0]));
    for (const ref of there.keys()) there.set(ref, (await appendAll(store, ref, [newCommit(1)]))[0] ?? 0);
    const kept = new Set(there.keys());
    for (let round = 0; round < 40; round++) {
      // Long stretches of one kind, so that the newest of another is far back.
      const kind = kinds[random.int(0, kinds.length - 1)] ?? 'session';
      const refs = Array.from({ length: random.int(0, 14) }, () => refIn(store, 0, kind));
      const positions = await Promise.all(refs.map(async (ref) => await appendAll(store, ref, [newCommit(1)])));
      for (const [n, ref] of refs.entries()) there.set(ref, positions[n]?.[0] ?? 0);
      const doomed = [...there.keys()].filter((ref) => !kept.has(ref)).slice(-random.int(0, 3));
      for (const { tenant, kind: its } of random.int(0, 2) === 0 ? doomed : []) await store.erase(tenant, [its]);
      if ((await store.heads(doomed)).size === 0) for (const ref of doomed) there.delete(ref);
      for (const wanted of random.int(0, 1) === 0 ? asked : asked.slice(0, 2)) {
        const newest = Math.max(...[...there].map(([ref, at]) => (wanted.some((one) => one === ref.kind) ? at : 0)));
        expect(await source.newest(0, wanted)).toBe(newest);
      }
    }
  });

  test('what is stored while it follows comes too, in batches no larger than the buffer', async () => {
    const { store, source } = fixture();
    const ref = refIn(store, 0, 'vault');
    const sizes: number[] = [];
    const revs: number[] = [];
    const signal = AbortSignal.timeout(BOUND_MS);
    let writing: Promise<unknown> | null = null;
    await appendAll(store, ref, newCommits(30));
    for await (const batch of source.follow({ shard: 0, kinds: ['vault'], after: 0, buffer: 7, signal })) {
      sizes.push(batch.length);
      for (const followed of batch) if (followed.kind === 'commit') revs.push(followed.stored.commit.rev);
      writing ??= appendAll(
        store,
        ref,
        newCommits(40).map((commit, n) => ({ ...commit, rev: 31 + n })),
      );
      if (revs.length >= 70) break;
    }
    await writing;
    expect(revs).toEqual(Array.from({ length: 70 }, (_, n) => n + 1));
    expect(Math.max(...sizes)).toBeLessThanOrEqual(7);
  });

  test('what cannot be decoded is reported at its place, and the following goes on', async () => {
    const { store, source } = fixture();
    const ref = refIn(store, 0, 'quota');
    const [before = 0] = await appendAll(store, ref, [newCommit(1)]);
    await fixture().garbage(ref);
    const garbled = await store.head(ref);
    const after = await store.append(ref, garbled, newCommit(2));
    if (after.kind !== 'appended') throw new Error('the garbage was not at the head');
    const options = { shard: 0, kinds: ['quota'], after: before - 1 } as const;
    const got = (await followTo(source, options, after.position)).flat();
    expect(got.map((followed) => [followed.kind, placeOf(followed)])).toEqual([
      ['commit', before],
      ['undecodable', garbled],
      ['commit', after.position],
    ]);
    const [, bad] = got;
    expect(bad?.kind === 'undecodable' && bad.ref).toEqual(ref);
  });

  test('the commits of one aggregate come whole and in order up to a position, also what cannot be decoded', async () => {
    const { store, source } = fixture();
    for (const shard of new Set([0, source.shards - 1])) {
      const [ref, other] = [refIn(store, shard, 'agent'), refIn(store, shard, 'agent')];
      const expected: [kind: string, position: number][] = [];
      const note = (kind: string, positions: readonly number[]): void =>
        void expected.push(...positions.map((position): [string, number] => [kind, position]));
      note('commit', await appendAll(store, ref, newCommits(600)));
      await fixture().garbage(ref);
      const garbled = await store.head(ref);
      note('undecodable', [garbled]);
      await appendAll(store, other, newCommits(2));
      note('commit', await appendAll(store, ref, [newCommit(601), newCommit(602)]));
      const read = async (of: AggregateRef, upTo: number): Promise<[string, number][]> => {
        const found: [string, number][] = [];
        for await (const batch of source.commitsOf(of, shard, upTo)) {
          for (const followed of batch) found.push([followed.kind, placeOf(followed)]);
        }
        return found;
      };
      const newest = await store.head(ref);
      expect(await read(ref, newest)).toEqual(expected);
      expect(await read(ref, newest + 1_000)).toEqual(expected);
      // A position of another aggregate's: what comes before it.
      expect(await read(ref, await store.head(other))).toEqual(expected.slice(0, 601));
      expect(await read(refIn(store, shard, 'agent'), newest)).toEqual([]);
      expect(await source.commitAt(ref, shard, garbled)).toMatchObject({ kind: 'undecodable', position: garbled });
      expect(await source.commitAt(ref, shard, newest)).toMatchObject({ kind: 'commit', stored: { position: newest } });
      expect(await source.commitAt(ref, shard, await store.head(other))).toBeNull();
      expect(await source.commitAt(ref, shard, newest + 1)).toBeNull();
    }
  });

  test('an aborted follower ends, whether it waits or not', async () => {
    const { source } = fixture();
    const aborted = AbortSignal.abort();
    for await (const batch of source.follow({ shard: 0, kinds: ['issuer'], after: 0, buffer: 10, signal: aborted })) {
      expect(batch).toEqual([]);
    }
    const end = new AbortController();
    const waiting = (async () => {
      const batches: unknown[] = [];
      for await (const batch of source.follow({
        shard: 0,
        kinds: ['issuer'],
        after: 0,
        buffer: 10,
        signal: end.signal,
      })) {
        batches.push(batch);
      }
      return batches;
    })();
    await source.newest(0, ['issuer']);
    end.abort();
    expect(await waiting).toEqual([]);
  });
}

import { newId } from '#src/lib/ids.ts';
import { genesisOf, hashOfCommit } from '#src/streams/chain.ts';
import { createCodec } from '#src/streams/codec.ts';
import type { Commit } from '#src/streams/commit.ts';
import type { EventStore } from '#src/streams/event-store.ts';
import type { AggregateKind, AggregateRef } from '#src/streams/subjects.ts';

let made = 0;

/** An aggregate that no other test has. */
export function newRef(kind: AggregateKind = 'session'): AggregateRef {
  return { tenant: newId('tn'), kind, id: `aggregate/${++made}` };
}

/** A commit of `events` events, with a commit id of its own. */
export function newCommit(rev: number, { events = 1, text = 'a text' } = {}): Commit {
  return {
    v: 1,
    rev,
    commitId: newId('co'),
    at: '2026-01-01T00:00:00.000Z',
    actor: 'application:test',
    causation: `r-${rev}`,
    events: Array.from({ length: events }, (_, n) => ({
      id: newId('ev'),
      type: 'note.taken',
      v: 1,
      data: { n, text },
    })),
  };
}

const codec = createCodec({});

/** What its append answers. */
export function hashOf(commit: Commit): string {
  return hashOfCommit(codec.encode(commit));
}

/** Appends to an aggregate that nobody else writes to; returns the positions. */
export async function appendAll(store: EventStore, ref: AggregateRef, commits: readonly Commit[]): Promise<number[]> {
  const positions: number[] = [];
  let expected = await store.head(ref);
  for (const commit of commits) {
    const result = await store.append(ref, expected, commit);
    if (result.kind !== 'appended') throw new Error('somebody else wrote to the aggregate');
    expected = result.position;
    positions.push(expected);
  }
  return positions;
}

export function newCommits(count: number): Commit[] {
  return Array.from({ length: count }, (_, n) => newCommit(n + 1));
}

/** The numbers of all commits of an aggregate. @throws when they are no chain from its genesis on */
export async function chainedRevs(store: EventStore, ref: AggregateRef): Promise<number[]> {
  const revs: number[] = [];
  let [after, prev] = [0, genesisOf(ref)];
  for (let more = true; more;) {
    const page = await store.read(ref, { after, limit: 500 });
    for (const { commit, hash, position } of page.commits) {
      if (commit.prev !== prev) throw new Error(`commit ${commit.rev} names another predecessor`);
      revs.push(commit.rev);
      [after, prev] = [position, hash];
    }
    more = page.more;
  }
  return revs;
}

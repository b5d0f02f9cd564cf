import { UnavailableError } from '../../lib/unavailable.ts';
import type { StoredCommit } from '../../streams/commit.ts';
import type { CommitPage, EventStore } from '../../streams/event-store.ts';
import type { AggregateRef } from '../../streams/subjects.ts';
import { decodable } from './parked.ts';

/** Maximum commits that a page is topped up with; further behind, it waits for the projection instead. */
const TOP_UP_MAX = 2_000;
const TOP_UP_BATCH = 500;

/** What came after the rows, from the log. @throws UnavailableError (database) when that is too much, ParkedCommitError */
export async function topUp(
  store: EventStore,
  ref: AggregateRef,
  range: { after: number; atLeast: number },
): Promise<StoredCommit[]> {
  const commits: StoredCommit[] = [];
  let page: CommitPage;
  let { after } = range;
  do {
    page = await decodable(async () => await store.read(ref, { after, limit: TOP_UP_BATCH, atLeast: range.atLeast }));
    commits.push(...page.commits);
    after = page.commits.at(-1)?.position ?? after;
    if (commits.length > TOP_UP_MAX)
      throw new UnavailableError('database', 'the read models are too far behind the log');
  } while (page.more);
  return commits;
}

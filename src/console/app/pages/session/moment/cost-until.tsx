import { useInfiniteQuery } from '@tanstack/react-query';
import { useEffect } from 'react';
import type { ReactNode } from 'react';
import type { ModelCall } from '../../../../../client/client.ts';
import { useClient } from '../../../api/host.tsx';
import { count, usd } from '../../../lib/format.ts';
import { AsCode } from '../../../parts/as-code.tsx';
import { Loaded } from '../../../parts/page.tsx';
import { CHANGE_EVERY_MS, useAtMostEvery } from '../../../parts/use-at-most-every.ts';

const PAGE = 200;
/** The ledger is read from its beginning: of a very long session no more than its first calls. */
const PAGES_MAX = 25;

interface CostUntilProps {
  readonly sessionId: string;
  /** Time of the record. */
  readonly until: string;
  /** The ledger is read again when it changes. */
  readonly changedAt: string;
}

/** The model calls that had returned by then, and what they cost. */
export function CostUntil({ sessionId, until, changedAt }: CostUntilProps): ReactNode {
  const client = useClient();
  const params = { sessionId };
  const operation = 'GET /v1/sessions/{sessionId}/calls/model';
  const query = useInfiniteQuery({
    queryKey: ['calls', sessionId, useAtMostEvery(changedAt, CHANGE_EVERY_MS)],
    initialPageParam: '',
    queryFn: async ({ pageParam, signal }) =>
      await client.request(operation, { params, query: { limit: PAGE, cursor: pageParam || undefined }, signal }),
    getNextPageParam: (page) => page.nextCursor,
    placeholderData: (before) => before,
  });
  const { data, hasNextPage, isFetching, fetchNextPage } = query;
  const pages = data?.pages ?? [];
  const isShort = hasNextPage && (pages.at(-1)?.calls.at(-1)?.at ?? '') <= until;
  const isMore = isShort && pages.length < PAGES_MAX;
  useEffect(() => {
    if (isMore && !isFetching) void fetchNextPage();
  }, [isMore, isFetching, fetchNextPage]);
  const { calls, tokens, costUsd, isKnown } = spent(
    pages.flatMap((page) => page.calls),
    until,
  );
  return (
    <section aria-label="Cost until then">
      <div className="row">
        <h2>Cost until then</h2>
        <span className="spread" />
        <AsCode calls={[{ operation, params, query: { limit: PAGE } }]} />
      </div>
      <Loaded query={query}>
        {() => (
          <p>
            {isShort && 'more than '}
            {usd(costUsd)}
            {isKnown ? '' : ' ?'}, {count(tokens)} tokens in {count(calls)} model calls
          </p>
        )}
      </Loaded>
    </section>
  );
}

function spent(calls: readonly ModelCall[], until: string) {
  const untilMs = Date.parse(until);
  const had = calls.filter(({ at, latencyMs = 0 }) => Date.parse(at) + latencyMs <= untilMs);
  return {
    calls: had.length,
    tokens: had.reduce((sum, { usage }) => sum + usage.totalTokens, 0),
    costUsd: had.reduce((sum, { usage }) => sum + usage.costUsd, 0),
    isKnown: had.every(({ usage }) => usage.costKnown),
  };
}

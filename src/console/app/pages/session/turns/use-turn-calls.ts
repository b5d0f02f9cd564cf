import { useInfiniteQuery } from '@tanstack/react-query';
import { useEffect, useMemo } from 'react';
import type { EventRecord, ModelCall } from '../../../../../client/client.ts';
import { useClient } from '../../../api/host.tsx';
import type { TurnHead } from '../../../fold/waterfall.ts';

export interface TurnCalls {
  readonly calls: readonly ModelCall[];
  /** All of them are here. */
  readonly isWhole: boolean;
  readonly error: Error | null;
  readonly onRetry: () => void;
}

const PAGE = 200;
const PAGES_MAX = 5;
const EVERY_MS = 1_000;
/** So often more is asked for answers whose calls are not there: those that a fork inherited never are. */
const TRIES_MAX = 8;

/** The model calls of a turn, of the ledger; read again until each answer of an ended turn has its call. */
export function useTurnCalls(
  sessionId: string,
  { turnId, toMs }: TurnHead,
  records: readonly EventRecord[],
): TurnCalls {
  const client = useClient();
  const answers = useMemo(
    () =>
      records.flatMap((one) =>
        one.turnId === turnId && one.type === 'message.assistant' ? [one.payload.modelCallId ?? ''] : [],
      ),
    [records, turnId],
  );
  const query = useInfiniteQuery({
    queryKey: ['calls', sessionId, 'turn', turnId],
    initialPageParam: '',
    queryFn: async ({ pageParam, signal }) =>
      await client.request('GET /v1/sessions/{sessionId}/calls/model', {
        params: { sessionId },
        query: { turnId, limit: PAGE, cursor: pageParam || undefined },
        signal,
      }),
    getNextPageParam: (page) => page.nextCursor,
    refetchInterval: ({ state: { data, dataUpdateCount } }) => {
      const ids = new Set(data?.pages.flatMap(({ calls }) => calls.map(({ id }) => id)));
      const isDone = toMs !== null && (dataUpdateCount > TRIES_MAX || answers.every((id) => ids.has(id)));
      return isDone ? false : EVERY_MS;
    },
  });
  const { data, error, hasNextPage, isFetching, fetchNextPage, refetch } = query;
  const pages = data?.pages.length ?? 0;
  const isMore = hasNextPage && pages < PAGES_MAX && error === null;
  useEffect(() => {
    if (isMore && !isFetching) void fetchNextPage();
  }, [isMore, isFetching, fetchNextPage]);
  const calls = useMemo(() => data?.pages.flatMap((page) => page.calls) ?? [], [data]);
  return { calls, isWhole: !hasNextPage, error, onRetry: () => void refetch() };
}

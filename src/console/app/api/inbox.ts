import { useInfiniteQuery } from '@tanstack/react-query';
import { useClient } from './host.tsx';

export const INBOX_KEY = ['inbox'] as const;
/** Entries of a page. */
export const INBOX_PAGE = 50;
const EVERY_MS = 5_000;

/** What waits for a person over all sessions, oldest first; it is asked for again while something shows it. */
export function useInbox() {
  const client = useClient();
  return useInfiniteQuery({
    queryKey: INBOX_KEY,
    initialPageParam: '',
    queryFn: async ({ pageParam, signal }) =>
      await client.request('GET /v1/interactions', {
        query: { limit: INBOX_PAGE, cursor: pageParam || undefined },
        signal,
      }),
    getNextPageParam: (page) => page.nextCursor,
    refetchInterval: EVERY_MS,
  });
}

import { useQuery } from '@tanstack/react-query';
import { useClient } from './host.tsx';

/** The agents' ids, for choosing one. */
export function useAgentIds(): readonly string[] {
  const client = useClient();
  const { data } = useQuery({
    queryKey: ['agents', 'ids'],
    queryFn: async ({ signal }) => await client.request('GET /v1/agents', { query: {}, signal }),
    staleTime: 30_000,
  });
  return data?.agents.filter(({ archived }) => !archived).map(({ agentId }) => agentId) ?? [];
}

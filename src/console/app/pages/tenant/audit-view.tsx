import { useInfiniteQuery } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { useClient } from '../../api/host.tsx';
import { oneLine } from '../../lib/plain-text.ts';
import { Button } from '../../parts/button.tsx';
import { Loaded } from '../../parts/page.tsx';
import { Ago } from '../../parts/time.tsx';
import { Section, Table } from './section.tsx';

const LIMIT = 50;
const CHARS = 300;

/** Who changed what, newest first. */
export function AuditView(): ReactNode {
  const client = useClient();
  const trail = useInfiniteQuery({
    queryKey: ['tenant', 'audit'],
    initialPageParam: '',
    queryFn: async ({ pageParam, signal }) =>
      await client.request('GET /v1/tenant/audit', { query: { limit: LIMIT, cursor: pageParam || undefined }, signal }),
    getNextPageParam: ({ nextCursor }) => nextCursor,
  });
  return (
    <Section
      title="Audit trail"
      about="Who changed what, newest first."
      call={{ operation: 'GET /v1/tenant/audit', query: { limit: LIMIT } }}
    >
      <Loaded query={trail}>
        {({ pages }) => (
          <Table
            empty="Nothing was changed yet."
            head={[
              <th key="at">When</th>,
              <th key="who">Who</th>,
              <th key="what">What</th>,
              <th key="of">Of</th>,
              <th key="details" className="wide">
                Details
              </th>,
            ]}
            rows={pages
              .flatMap(({ entries }) => entries)
              .map(({ at, actor, action, resource, details, requestId }, place) => (
                // Entries have no identity: one request may change several things.
                <tr key={place} title={`request ${requestId}`}>
                  <td className="muted">
                    <Ago at={at} />
                  </td>
                  <td>
                    <bdi>{oneLine(actor, CHARS)}</bdi>
                  </td>
                  <td>
                    <code>{action}</code>
                  </td>
                  <td className="cut">
                    <bdi>{oneLine(resource, CHARS)}</bdi>
                  </td>
                  <td className="cut wide small muted">
                    {Object.keys(details).length > 0 && <code>{oneLine(JSON.stringify(details), CHARS)}</code>}
                  </td>
                </tr>
              ))}
          />
        )}
      </Loaded>
      {trail.hasNextPage && (
        <div className="row">
          <Button disabled={trail.isFetchingNextPage} onClick={() => void trail.fetchNextPage()}>
            Older entries
          </Button>
        </div>
      )}
    </Section>
  );
}

import { useQuery } from '@tanstack/react-query';
import type { UseQueryResult } from '@tanstack/react-query';
import { getRouteApi, useNavigate } from '@tanstack/react-router';
import { useMemo, useState } from 'react';
import type { ReactNode } from 'react';
import type { GetTenantUsageResponse } from '../../../../client/client.ts';
import { useClient } from '../../api/host.tsx';
import { daysAgo, daysBetween } from '../../lib/days.ts';
import { MEASURES, measureOf } from '../../lib/measures.ts';
import type { Measure } from '../../lib/measures.ts';
import type { UsageSearch } from '../../searches.ts';
import { AsCode } from '../../parts/as-code.tsx';
import { BarTable, Columns } from '../../parts/charts.tsx';
import { Empty, Loaded, Page } from '../../parts/page.tsx';
import { Ago } from '../../parts/time.tsx';
import { Budgets } from './budgets.tsx';
import './usage.css';

const route = getRouteApi('/usage');

type GroupBy = 'agent' | 'model' | 'day';

const RANGES = [7, 30, 90, 365] as const;
const DEFAULT_DAYS = 30;
/** Groups of an answer; of agents and models those that cost most are shown. */
const LIMIT = 1_000;
const SHOWN_MAX = 20;
const EVERY_MS = 30_000;

/** What model calls and sandboxes of the tenant took, and what they may cost. */
export function UsagePage(): ReactNode {
  const search = route.useSearch();
  const days = RANGES.find((one) => one === search.days) ?? DEFAULT_DAYS;
  const measure = measureOf(search.measure);
  const [openedMs] = useState(() => Date.now());
  const from = daysAgo(days, openedMs);
  const call = { operation: 'GET /v1/tenant/usage', query: { from, groupBy: 'day', limit: LIMIT } };
  return (
    <Page
      title="Usage"
      about="What model calls cost and sandboxes took. Days are in UTC; what was deleted with its session is not in it."
      actions={<AsCode calls={[call]} />}
    >
      <Choices days={days} measure={measure} search={search} />
      <Loaded query={useUsage('day', from)}>{(report) => <ByDay report={report} measure={measure} />}</Loaded>
      <div className="grid">
        <Groups title="By agent" named="Agent" query={useUsage('agent', from)} measure={measure} />
        <Groups title="By model" named="Model" query={useUsage('model', from)} measure={measure} />
      </div>
      <Budgets />
    </Page>
  );
}

interface ChoicesProps {
  readonly days: number;
  readonly measure: Measure;
  readonly search: UsageSearch;
}

function Choices({ days, measure, search }: ChoicesProps): ReactNode {
  const navigate = useNavigate();
  const change = (more: UsageSearch): void =>
    void navigate({ to: '/usage', search: { ...search, ...more }, replace: true });
  return (
    <div className="filters">
      <select
        className="input"
        aria-label="Time"
        value={days}
        onChange={(event) => change({ days: Number(event.target.value) })}
      >
        {RANGES.map((one) => (
          <option key={one} value={one}>
            The last {one} days
          </option>
        ))}
      </select>
      <select
        className="input"
        aria-label="What is shown"
        value={measure.id}
        onChange={(event) => change({ measure: event.target.value })}
      >
        {MEASURES.map(({ id, name }) => (
          <option key={id} value={id}>
            {name}
          </option>
        ))}
      </select>
    </div>
  );
}

function useUsage(groupBy: GroupBy, from: string): UseQueryResult<GetTenantUsageResponse> {
  const client = useClient();
  return useQuery({
    queryKey: ['usage', groupBy, from],
    queryFn: async ({ signal }) =>
      await client.request('GET /v1/tenant/usage', { query: { from, groupBy, limit: LIMIT }, signal }),
    refetchInterval: EVERY_MS,
    placeholderData: (before) => before,
  });
}

interface ReportProps {
  readonly report: GetTenantUsageResponse;
  readonly measure: Measure;
}

function ByDay({ report, measure }: ReportProps): ReactNode {
  const { from, to, groups, total, asOf } = report;
  const bars = useMemo(() => {
    const found = new Map(groups.map((group) => [group.key, measure.of(group)]));
    return daysBetween(from, to).map((name) => ({ name, value: found.get(name) ?? 0 }));
  }, [from, to, groups, measure]);
  return (
    <section className="card" aria-label="By day">
      <div className="card-head">
        <h2>By day</h2>
        <span className="spread small muted">
          as of <Ago at={asOf} />
        </span>
      </div>
      <div className="card-body stack">
        <dl className="figures">
          {MEASURES.map((one) => (
            <div key={one.id}>
              <dt>{one.name}</dt>
              <dd>
                {one.shown(one.of(total))}
                {one.id === 'cost' && !total.usage.costKnown && ' ?'}
              </dd>
            </div>
          ))}
        </dl>
        {!total.usage.costKnown && (
          <p className="small muted">The price of a model is not known: its calls are not in the cost.</p>
        )}
        <Columns title={`${measure.name} by day`} bars={bars} shown={measure.shown} />
        <details>
          <summary>As a table</summary>
          {/* A scrolling region has to be reachable by keyboard. */}
          {/* oxlint-disable-next-line jsx-a11y/no-noninteractive-tabindex */}
          <section className="usage-table" aria-label={`${measure.name}, as a table`} tabIndex={0}>
            <BarTable title={measure.name} named="Day" bars={bars.toReversed()} shown={measure.shown} />
          </section>
        </details>
      </div>
    </section>
  );
}

interface GroupsProps {
  readonly title: string;
  readonly named: string;
  readonly query: UseQueryResult<GetTenantUsageResponse>;
  readonly measure: Measure;
}

function Groups({ title, named, query, measure }: GroupsProps): ReactNode {
  return (
    <section className="stack" aria-label={title}>
      <h2>{title}</h2>
      <Loaded query={query}>
        {({ groups, nextCursor }) => {
          const bars = groups
            .map((group) => ({ name: group.key, value: measure.of(group) }))
            .toSorted((a, b) => b.value - a.value);
          const left = bars.length - SHOWN_MAX;
          if (bars.length === 0)
            return (
              <div className="card">
                <Empty title="Nothing in this time" />
              </div>
            );
          return (
            <>
              <BarTable title={measure.name} named={named} bars={bars.slice(0, SHOWN_MAX)} shown={measure.shown} />
              {(left > 0 || nextCursor !== null) && (
                <p className="small muted">
                  {left} more{nextCursor === null ? '' : ' of the first 1,000 by name'}; the API has all of them.
                </p>
              )}
            </>
          );
        }}
      </Loaded>
    </section>
  );
}

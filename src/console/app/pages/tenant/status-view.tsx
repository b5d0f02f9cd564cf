import { useQuery } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import type { Operations } from '../../../../client/client.ts';
import { useClient } from '../../api/host.tsx';
import { bytes, count } from '../../lib/format.ts';
import { Loaded } from '../../parts/page.tsx';
import { PlainText } from '../../parts/plain-text.tsx';
import { Status } from '../../parts/status.tsx';
import { Ago } from '../../parts/time.tsx';
import { Checks } from '../../parts/checks.tsx';
import { Section, Table } from './section.tsx';

type Tenant = Operations['GET /v1/tenant']['answer'];

const EVERY_MS = 10_000;

/** Whether the tenant is served, and what it has of what is limited. */
export function StatusView(): ReactNode {
  const client = useClient();
  const tenant = useQuery({
    queryKey: ['tenant', 'status'],
    queryFn: async ({ signal }) => await client.request('GET /v1/tenant', { signal }),
    refetchInterval: EVERY_MS,
  });
  return (
    <Section title="State" call={{ operation: 'GET /v1/tenant' }}>
      <Loaded query={tenant}>{(data) => <Shown tenant={data} />}</Loaded>
    </Section>
  );
}

function Shown({ tenant: { tenant, checks, model, counts, limits } }: { readonly tenant: Tenant }): ReactNode {
  const numbers: readonly (readonly [string, string, string])[] = [
    ['Agents', count(counts.agents), ''],
    ['Sessions', count(counts.sessions), ''],
    ['Open turns', count(counts.activeTurns), ''],
    ['Actions for executors', count(counts.pendingActions), ''],
    ['Keys', count(counts.keys), count(limits.keys)],
    ['Issuers', count(counts.issuers), count(limits.issuers)],
    ['Executors', count(counts.executors), count(limits.executors)],
    ['Artifacts', bytes(counts.artifactBytes), bytes(limits.totalBytes)],
    ['A file of an artifact', '', bytes(limits.fileBytes)],
    ['The body of a request', '', bytes(limits.bodyBytes)],
    ['Streams at once, on a node', '', count(limits.streams)],
  ];
  return (
    <>
      <dl className="facts">
        <dt>Name</dt>
        <dd>
          <PlainText text={tenant.name} />
        </dd>
        <dt>Id</dt>
        <dd>
          <code>{tenant.id}</code>
        </dd>
        <dt>State</dt>
        <dd>
          <Status of={tenant.state} tone={tenant.state === 'open' ? 'ok' : 'warn'} />
        </dd>
        <dt>Model</dt>
        <dd>{model.configured ? `${model.provider}/${model.model}` : 'none is selected'}</dd>
        <dt>Made</dt>
        <dd>
          <Ago at={tenant.createdAt} />
        </dd>
      </dl>
      <Checks checks={checks} />
      <Table
        empty=""
        head={[
          <th key="what">What</th>,
          <th key="has" className="number">
            There
          </th>,
          <th key="max" className="number">
            At most
          </th>,
        ]}
        rows={numbers.map(([name, has, max]) => (
          <tr key={name}>
            <td>{name}</td>
            <td className="number">{has}</td>
            <td className="number muted">{max}</td>
          </tr>
        ))}
      />
    </>
  );
}

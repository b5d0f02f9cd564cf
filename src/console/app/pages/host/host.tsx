import { useInfiniteQuery, useQuery } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import type { Operations } from '../../../../client/client.ts';
import { useHost } from '../../api/host.tsx';
import { count, duration } from '../../lib/format.ts';
import { oneLine } from '../../lib/plain-text.ts';
import { AsCode } from '../../parts/as-code.tsx';
import { Button } from '../../parts/button.tsx';
import { Checks } from '../../parts/checks.tsx';
import { Empty, Loaded, Page } from '../../parts/page.tsx';
import { Status } from '../../parts/status.tsx';
import { Ago } from '../../parts/time.tsx';
import './host.css';

type HostStatus = Operations['GET /v1/admin/status']['answer'];
type Projection = HostStatus['projections'][number];

const EVERY_MS = 3_000;
const TENANTS = 50;
/** Read models that are this far behind are worth a look. */
const LATE_MS = 5_000;

/** The installation: its nodes, what it depends on, and how far its read models are. For those with the key of the Host. */
export function HostPage(): ReactNode {
  const { client, door } = useHost();
  const status = useQuery({
    queryKey: ['host', 'status'],
    queryFn: async ({ signal }) => await client.request('GET /v1/admin/status', { signal }),
    refetchInterval: EVERY_MS,
    enabled: door.host,
  });
  if (!door.host)
    return (
      <Page title="Host">
        <div className="card">
          <Empty title="This console has the key of one tenant">
            <p>
              The Host is shown by the console that it opens itself: <code>npx agent-host console --link</code>
            </p>
          </Empty>
        </div>
      </Page>
    );
  return (
    <Page title="Host" actions={<AsCode calls={[{ operation: 'GET /v1/admin/status' }]} />}>
      <Loaded query={status}>
        {(data) => (
          <>
            <Whole status={data} />
            <Nodes nodes={data.nodes} />
            <Projections projections={data.projections} />
          </>
        )}
      </Loaded>
      <Tenants />
    </Page>
  );
}

function Whole({ status }: { readonly status: HostStatus }): ReactNode {
  const { version, protocol, ready, checks, tenants, activeTurns, pendingActions, projections } = status;
  const streams = new Set(projections.map(({ shard }) => shard)).size;
  return (
    <>
      <dl className="facts">
        <dt>State</dt>
        <dd>
          <Status of={ready ? 'ready' : 'not ready'} tone={ready ? 'ok' : 'bad'} />
        </dd>
        <dt>Version</dt>
        <dd>
          {version}, protocol {protocol.min === protocol.max ? protocol.max : `${protocol.min} to ${protocol.max}`}
        </dd>
        <dt>Open turns</dt>
        <dd>{count(activeTurns)}</dd>
        <dt>Actions for executors</dt>
        <dd>{count(pendingActions)}</dd>
        <dt>Streams of the log</dt>
        <dd>{count(streams)}</dd>
        <dt>Tenants</dt>
        <dd>
          {count(tenants.open)} open, {count(tenants.draining)} draining, {count(tenants.deleting)} being deleted
        </dd>
      </dl>
      <Checks checks={checks} />
    </>
  );
}

function Nodes({ nodes }: { readonly nodes: HostStatus['nodes'] }): ReactNode {
  return (
    <section className="stack" aria-label="Nodes">
      <h2>Nodes</h2>
      <div className="table-wrap">
        <table>
          <thead>
            <tr>
              <th>Node</th>
              <th className="wide">Roles</th>
              <th className="wide">Version</th>
              <th className="number wide">Started</th>
              <th className="number">Seen</th>
            </tr>
          </thead>
          <tbody>
            {nodes.map(({ nodeId, roles, version, startedAt, lastSeenAt }) => (
              <tr key={nodeId}>
                <td className="node">
                  <bdi>{nodeId}</bdi>
                </td>
                <td className="wide small muted">{roles.join(', ')}</td>
                <td className="wide">{version}</td>
                <td className="number wide muted">
                  <Ago at={startedAt} />
                </td>
                <td className="number muted">
                  <Ago at={lastSeenAt} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function stateOf({ built, parked, lagMs }: Projection): ReactNode {
  if (parked > 0) return <Status of="parked" tone="bad">{`${count(parked)} parked`}</Status>;
  if (!built) return <Status of="being built" tone="run" />;
  return lagMs > LATE_MS ? <Status of="behind" tone="warn" /> : <Status of="ok" />;
}

function Projections({ projections }: { readonly projections: readonly Projection[] }): ReactNode {
  return (
    <section className="stack" aria-label="Read models">
      <h2>Read models</h2>
      <div className="table-wrap">
        <table>
          <thead>
            <tr>
              <th>Read model</th>
              <th className="number wide">Stream</th>
              <th className="number wide">Position</th>
              <th className="number">Behind</th>
              <th>State</th>
            </tr>
          </thead>
          <tbody>
            {projections.map((projection) => {
              const { name, schema, shard, position, lagEvents, lagMs } = projection;
              return (
                <tr key={`${schema} ${name} ${shard}`}>
                  <td>
                    {name} <span className="small muted">{schema}</span>
                  </td>
                  <td className="number wide">{shard}</td>
                  <td className="number wide">{count(position)}</td>
                  <td className="number">
                    {count(lagEvents)}
                    {lagEvents > 0 && `, ${duration(lagMs)}`}
                  </td>
                  <td>{stateOf(projection)}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </section>
  );
}

const TONES = { open: 'ok', draining: 'warn', deleting: 'bad' } as const;

function Tenants(): ReactNode {
  const { client } = useHost();
  const tenants = useInfiniteQuery({
    queryKey: ['host', 'tenants'],
    initialPageParam: '',
    queryFn: async ({ pageParam, signal }) =>
      await client.request('GET /v1/admin/tenants', {
        query: { limit: TENANTS, cursor: pageParam || undefined },
        signal,
      }),
    getNextPageParam: ({ nextCursor }) => nextCursor,
  });
  return (
    <section className="stack" aria-label="Tenants">
      <div className="row">
        <h2>Tenants</h2>
        <span className="spread">
          <AsCode calls={[{ operation: 'GET /v1/admin/tenants', query: { limit: TENANTS } }]} />
        </span>
      </div>
      <Loaded query={tenants}>
        {({ pages }) => (
          <div className="table-wrap">
            <table>
              <thead>
                <tr>
                  <th>Tenant</th>
                  <th>State</th>
                  <th className="number">Made</th>
                </tr>
              </thead>
              <tbody>
                {pages
                  .flatMap((page) => page.tenants)
                  .map(({ id, name, state, createdAt }) => (
                    <tr key={id}>
                      <td className="node">
                        <bdi>{oneLine(name, 100)}</bdi> <code className="small muted">{id}</code>
                      </td>
                      <td>
                        <Status of={state} tone={TONES[state]} />
                      </td>
                      <td className="number muted">
                        <Ago at={createdAt} />
                      </td>
                    </tr>
                  ))}
              </tbody>
            </table>
          </div>
        )}
      </Loaded>
      {tenants.hasNextPage && (
        <div className="row">
          <Button disabled={tenants.isFetchingNextPage} onClick={() => void tenants.fetchNextPage()}>
            Older tenants
          </Button>
        </div>
      )}
    </section>
  );
}

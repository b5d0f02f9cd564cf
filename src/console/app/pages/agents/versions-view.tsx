import { useQuery } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { useMemo } from 'react';
import type { ReactNode } from 'react';
import type { Manifest, Operations } from '../../../../client/client.ts';
import { useClient } from '../../api/host.tsx';
import { beginning, marked, oneLine } from '../../lib/plain-text.ts';
import { textDiff } from '../../lib/text-diff.ts';
import { AsCode } from '../../parts/as-code.tsx';
import { Empty, Loaded } from '../../parts/page.tsx';
import { Pre } from '../../parts/plain-text.tsx';
import { Ago } from '../../parts/time.tsx';

type Version = Operations['GET /v1/agents/{agentId}/versions']['answer']['versions'][number];

interface VersionsViewProps {
  readonly agentId: string;
  /** Versions that are compared; without them the newest with the one before it. */
  readonly from: number | undefined;
  readonly to: number | undefined;
}

/** All versions of an agent, newest first, and what differs between two of them. */
export function VersionsView({ agentId, from, to }: VersionsViewProps): ReactNode {
  const client = useClient();
  const versions = useQuery({
    queryKey: ['agents', 'versions', agentId],
    queryFn: async ({ signal }) =>
      await client.request('GET /v1/agents/{agentId}/versions', { params: { agentId }, signal }),
  });
  return (
    <Loaded query={versions}>
      {({ versions: all }) => {
        const newest = all.at(-1)?.version ?? 1;
        const pair = { from: from ?? Math.max(1, newest - 1), to: to ?? newest };
        return (
          <div className="versions">
            <VersionTable agentId={agentId} versions={all.toReversed()} {...pair} />
            <Difference agentId={agentId} {...pair} />
          </div>
        );
      }}
    </Loaded>
  );
}

interface Pair {
  readonly agentId: string;
  readonly from: number;
  readonly to: number;
}

function VersionTable({ versions, ...pair }: Pair & { readonly versions: readonly Version[] }): ReactNode {
  const navigate = useNavigate();
  const { agentId, from, to } = pair;
  const choose = (more: { readonly from?: number; readonly to?: number }): void =>
    void navigate({
      to: '/agents/$agentId',
      params: { agentId },
      search: { view: 'versions', from, to, ...more },
      replace: true,
    });
  return (
    <div className="table-wrap">
      <table>
        <thead>
          <tr>
            <th className="pick">Before</th>
            <th className="pick">After</th>
            <th>Version</th>
            <th className="number">Saved</th>
          </tr>
        </thead>
        <tbody>
          {versions.map(({ version, implementationVersion, createdAt }) => (
            <tr key={version}>
              <td>
                <input
                  type="radio"
                  name="from"
                  aria-label={`Before: version ${version}`}
                  checked={version === from}
                  onChange={() => choose({ from: version })}
                />
              </td>
              <td>
                <input
                  type="radio"
                  name="to"
                  aria-label={`After: version ${version}`}
                  checked={version === to}
                  onChange={() => choose({ to: version })}
                />
              </td>
              <td>
                {version}
                {implementationVersion !== null && (
                  <bdi className="small muted"> {oneLine(implementationVersion, 60)}</bdi>
                )}
              </td>
              <td className="number muted">
                <Ago at={createdAt} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Difference({ agentId, from, to }: Pair): ReactNode {
  const [before, after] = [useManifest(agentId, from), useManifest(agentId, to)];
  const lines = useMemo(
    () => (before.data === undefined || after.data === undefined ? [] : textDiff(before.data, after.data)),
    [before.data, after.data],
  );
  const name = `From version ${from} to version ${to}`;
  const operation = 'GET /v1/agents/{agentId}/versions/{version}';
  return (
    <section className="card" aria-label={name}>
      <div className="card-head">
        <h2>{name}</h2>
        <span className="actions">
          <AsCode calls={[{ operation, params: { agentId, version: String(to) } }]} />
        </span>
      </div>
      <Loaded query={before}>
        {() => (
          <Loaded query={after}>
            {() =>
              lines.length === 0 ? (
                <Empty title={from === to ? 'The same version' : 'The definitions are the same'} />
              ) : (
                <Pre className="diff">
                  {lines.map(({ sign, text }, index) => (
                    // Lines have no identity but their place.
                    <span key={index} data-sign={sign}>{`${sign} ${marked(beginning(text, LINE_CHARS))}\n`}</span>
                  ))}
                </Pre>
              )
            }
          </Loaded>
        )}
      </Loaded>
    </section>
  );
}

const LINE_CHARS = 2_000;

/** Instructions line by line, as they were written, and the rest as JSON. */
function asText({ instructions, ...rest }: Manifest): string {
  return `${instructions}\n\n${JSON.stringify(rest, null, 2)}`;
}

/** A saved version never changes. Its members come in the order in which they are documented. */
function useManifest(agentId: string, version: number) {
  const client = useClient();
  return useQuery({
    queryKey: ['agent-version', agentId, version],
    queryFn: async ({ signal }) => {
      const params = { agentId, version };
      const saved = await client.request('GET /v1/agents/{agentId}/versions/{version}', { params, signal });
      return asText(saved.manifest);
    },
    staleTime: Infinity,
  });
}

import { useInfiniteQuery, useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import type { ReactNode } from 'react';
import type { Artifact } from '../../../../../client/client.ts';
import { pathOf } from '../../../../../client/connection.ts';
import type { FileAddress } from '../../../api/file-text.ts';
import { useClient } from '../../../api/host.tsx';
import { dateTime } from '../../../lib/format.ts';
import { oneLine } from '../../../lib/plain-text.ts';
import { AsCode } from '../../../parts/as-code.tsx';
import { Button } from '../../../parts/button.tsx';
import { Fold } from '../../../parts/fold.tsx';
import { Empty, Loaded } from '../../../parts/page.tsx';
import { CHANGE_EVERY_MS, useAtMostEvery } from '../../../parts/use-at-most-every.ts';
import { FileBrowser } from './file-browser.tsx';
import type { BrowsedFile } from './file-browser.tsx';

const PAGE = 50;
const NAME_CHARS = 120;

interface ArtifactsProps {
  readonly sessionId: string;
  /** They are read again when it changes. */
  readonly changedAt: string;
}

/** The artifacts of a session with their versions: read, compared and downloaded. */
export function Artifacts({ sessionId, changedAt }: ArtifactsProps): ReactNode {
  const client = useClient();
  const operation = 'GET /v1/artifacts';
  const query = useInfiniteQuery({
    queryKey: ['artifacts', sessionId, useAtMostEvery(changedAt, CHANGE_EVERY_MS)],
    initialPageParam: '',
    queryFn: async ({ pageParam, signal }) =>
      await client.request(operation, { query: { sessionId, limit: PAGE, cursor: pageParam || undefined }, signal }),
    getNextPageParam: (page) => page.nextCursor,
    placeholderData: (before) => before,
  });
  return (
    <section aria-label="Artifacts" className="stack">
      <div className="row">
        <h2>Artifacts</h2>
        <span className="spread" />
        <AsCode calls={[{ operation, query: { sessionId } }]} />
      </div>
      <Loaded query={query}>
        {({ pages }) => {
          const artifacts = pages.flatMap((page) => page.artifacts);
          if (artifacts.length === 0) return <Empty title="The session has no artifacts">{null}</Empty>;
          return artifacts.map((artifact) => (
            <Fold
              key={artifact.artifactId}
              className="tool"
              summary={
                <summary>
                  <span className="tool-name">
                    <bdi>{oneLine(artifact.name, NAME_CHARS)}</bdi>
                  </span>
                  <span className="tool-gist">{artifact.kind}</span>
                  <span className="small muted">v{artifact.latestVersion}</span>
                </summary>
              }
            >
              {() => (
                <div className="tool-body">
                  <OneArtifact artifact={artifact} />
                </div>
              )}
            </Fold>
          ));
        }}
      </Loaded>
      {query.hasNextPage && (
        <Button isSmall disabled={query.isFetching} onClick={() => void query.fetchNextPage()}>
          Show more
        </Button>
      )}
    </section>
  );
}

type Version = NonNullable<Artifact['versions']>[number];

function OneArtifact({ artifact }: { readonly artifact: Artifact }): ReactNode {
  const client = useClient();
  const { artifactId, latestVersion } = artifact;
  const [version, setVersion] = useState<number | null>(null);
  const [from, setFrom] = useState<number | null>(null);
  const shown = version ?? latestVersion;
  const query = useQuery({
    queryKey: ['artifact', artifactId, latestVersion],
    queryFn: async ({ signal }) => await client.artifacts.get(artifactId, { signal }),
  });
  return (
    <Loaded query={query}>
      {({ kind, name, versions = [] }) => {
        const params = { artifactId, version: String(shown) };
        const operation = `GET /v1/artifacts/{artifactId}/versions/{version}/${kind === 'file' ? 'content' : 'zip'}`;
        return (
          <div className="stack">
            <div className="row">
              <VersionChoice label="Version" versions={versions} value={shown} onChange={setVersion} />
              <VersionChoice label="Compared with" none="nothing" versions={versions} value={from} onChange={setFrom} />
              <span className="spread" />
              <a href={`/api${pathOf(operation.slice('GET '.length), params)}`} download={name}>
                Download{kind === 'file' ? '' : ' as zip'}
              </a>
              <AsCode calls={[from === null ? { operation, params } : diffCall(params, from)]} />
            </div>
            <Content key={`${shown} ${from}`} artifact={artifact} version={shown} from={from} />
          </div>
        );
      }}
    </Loaded>
  );
}

const DIFF = 'GET /v1/artifacts/{artifactId}/versions/{version}/diff';

function diffCall(params: { readonly artifactId: string; readonly version: string }, from: number) {
  return { operation: DIFF, params, query: { from: String(from) } };
}

interface VersionChoiceProps {
  readonly label: string;
  readonly versions: readonly Version[];
  readonly value: number | null;
  /** What none is called; absent: one is chosen. */
  readonly none?: string | undefined;
  readonly onChange: (version: number | null) => void;
}

function VersionChoice({ label, versions, value, none, onChange }: VersionChoiceProps): ReactNode {
  return (
    <label className="row small">
      {label}
      <select
        className="input"
        value={value ?? ''}
        onChange={(event) => onChange(event.target.value === '' ? null : Number(event.target.value))}
      >
        {none !== undefined && <option value="">{none}</option>}
        {versions.map(({ version, createdAt }) => (
          <option key={version} value={version}>
            v{version}, {dateTime(createdAt)}
          </option>
        ))}
      </select>
    </label>
  );
}

interface ContentProps {
  readonly artifact: Artifact;
  readonly version: number;
  readonly from: number | null;
}

/** The files of a version, or what differs from another one. A file is shown as a tree of one. */
function Content({ artifact, version, from }: ContentProps): ReactNode {
  const client = useClient();
  const { artifactId, kind } = artifact;
  const params = { artifactId, version: String(version) };
  const query = useQuery({
    queryKey: ['artifact', artifactId, 'files', version, from],
    queryFn: async ({ signal }): Promise<readonly BrowsedFile[]> => {
      if (from === null) {
        const tree = await client.request('GET /v1/artifacts/{artifactId}/versions/{version}/tree', { params, signal });
        return tree.files.map((file) => ({ path: file.path, file: addressOf(kind, params, file) }));
      }
      const { added, removed, changed } = await client.request(DIFF, { params, query: { from: String(from) }, signal });
      const old = { artifactId, version: String(from) };
      return [
        ...added.map((file) => ({ path: file.path, file: addressOf(kind, params, file), before: null, mark: 'added' })),
        ...removed.map((file) => ({
          ...{ path: file.path, file: null, before: addressOf(kind, old, file), mark: 'removed' },
        })),
        ...changed.map((file) => ({
          ...{ path: file.path, file: addressOf(kind, params, file.to), before: addressOf(kind, old, file.from) },
          mark: 'changed',
        })),
      ];
    },
    staleTime: Infinity,
  });
  return <Loaded query={query}>{(files) => <FileBrowser label="Files of the artifact" files={files} />}</Loaded>;
}

function addressOf(
  kind: Artifact['kind'],
  params: { readonly artifactId: string; readonly version: string },
  { path, size, sha256 }: FileAddress,
): FileAddress {
  const base = '/v1/artifacts/{artifactId}/versions/{version}';
  const address =
    kind === 'file' ? pathOf(`${base}/content`, params) : pathOf(`${base}/files/{path}`, { ...params, path });
  return { path: address, size, sha256 };
}

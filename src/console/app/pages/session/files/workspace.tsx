import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import type { ReactNode } from 'react';
import type { GetSandboxTreeResponse } from '../../../../../client/client.ts';
import { pathOf } from '../../../../../client/connection.ts';
import type { FileAddress } from '../../../api/file-text.ts';
import { useClient } from '../../../api/host.tsx';
import { count } from '../../../lib/format.ts';
import { AsCode } from '../../../parts/as-code.tsx';
import { Empty, Loaded } from '../../../parts/page.tsx';
import { CHANGE_EVERY_MS, useAtMostEvery } from '../../../parts/use-at-most-every.ts';
import { FileBrowser } from './file-browser.tsx';
import type { BrowsedFile } from './file-browser.tsx';

interface WorkspaceProps {
  readonly sessionId: string;
  /** The record at which the files are shown; undefined: as they are now. */
  readonly cursor?: string | undefined;
  /** The files of now are read again when it changes. */
  readonly changedAt: string;
}

/** The files of the session's sandbox: as they are, or as they were at a record, and what has changed since. */
export function Workspace({ sessionId, cursor, changedAt }: WorkspaceProps): ReactNode {
  const client = useClient();
  const session = useQuery({
    queryKey: ['session', sessionId, 'agent'],
    queryFn: async ({ signal }) => await client.session(sessionId).get({ signal }),
    staleTime: Infinity,
  });
  // Beside a moment, what is not there is not spoken of.
  if (cursor !== undefined && (session.data?.sandboxId ?? null) === null) return null;
  return (
    <section aria-label={cursor === undefined ? 'Files of the sandbox' : 'Files as they were'} className="stack">
      <Loaded query={session}>
        {({ sandboxId }) =>
          sandboxId === null ? (
            <Empty title="The session has no sandbox">{null}</Empty>
          ) : (
            <Tree sandboxId={sandboxId} sessionId={sessionId} cursor={cursor} changedAt={changedAt} />
          )
        }
      </Loaded>
    </section>
  );
}

interface TreeProps extends WorkspaceProps {
  readonly sandboxId: string;
}

type Files = GetSandboxTreeResponse['files'];

function useTree({ sandboxId, sessionId, cursor, changedAt }: TreeProps, isWanted: boolean) {
  const client = useClient();
  const now = useAtMostEvery(changedAt, CHANGE_EVERY_MS);
  return useQuery({
    queryKey: ['tree', sandboxId, cursor ?? now, cursor === undefined],
    queryFn: async ({ signal }) =>
      await client.request('GET /v1/sandboxes/{sandboxId}/tree', {
        params: { sandboxId },
        query: cursor === undefined ? {} : { sessionId, cursor },
        signal,
      }),
    enabled: isWanted,
    placeholderData: (before) => before,
  });
}

function Tree(props: TreeProps): ReactNode {
  const { sandboxId, sessionId, cursor } = props;
  const [isCompared, setCompared] = useState(false);
  const then = useTree(props, true);
  const now = useTree({ ...props, cursor: undefined }, isCompared && cursor !== undefined);
  const query = cursor === undefined ? {} : { sessionId, cursor };
  const call = { operation: 'GET /v1/sandboxes/{sandboxId}/tree', params: { sandboxId }, query };
  const address = (isThen: boolean) => (file: Files[number]) => {
    const path = pathOf('/v1/sandboxes/{sandboxId}/files/{path}', { sandboxId, path: file.path }, isThen ? query : {});
    return { path, size: file.size, sha256: file.sha256 };
  };
  return (
    <Loaded query={then}>
      {({ files }) => (
        <>
          <div className="row">
            <h2>{cursor === undefined ? 'Files of the sandbox' : 'Files as they were'}</h2>
            <span className="small muted">{count(files.length)}</span>
            <span className="spread" />
            {cursor !== undefined && (
              <label className="row small">
                <input type="checkbox" checked={isCompared} onChange={(event) => setCompared(event.target.checked)} />
                Changes since
              </label>
            )}
            <AsCode calls={[call]} />
          </div>
          {isCompared && cursor !== undefined ? (
            <Loaded query={now}>
              {(newest) => (
                <FileBrowser
                  label="Files that have changed since"
                  files={changesOf(addresses(files, address(true)), addresses(newest.files, address(false)))}
                />
              )}
            </Loaded>
          ) : (
            <FileBrowser label="Files" files={files.map((file) => ({ path: file.path, file: address(true)(file) }))} />
          )}
        </>
      )}
    </Loaded>
  );
}

function addresses(files: Files, addressOf: (file: Files[number]) => FileAddress): ReadonlyMap<string, FileAddress> {
  return new Map(files.map((file) => [file.path, addressOf(file)]));
}

/** What was added, taken out and changed between two sets of files, by path. */
function changesOf(
  before: ReadonlyMap<string, FileAddress>,
  after: ReadonlyMap<string, FileAddress>,
): readonly BrowsedFile[] {
  const paths = [...new Set([...before.keys(), ...after.keys()])].toSorted();
  return paths.flatMap((path) => {
    const [old, file] = [before.get(path) ?? null, after.get(path) ?? null];
    if (old?.sha256 === file?.sha256) return [];
    return [{ path, file, before: old, mark: old === null ? 'added' : file === null ? 'removed' : 'changed' }];
  });
}

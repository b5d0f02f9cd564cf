import { useMemo } from 'react';
import type { ReactNode } from 'react';
import type { FeedSnapshot } from '../../../api/session-feed.ts';
import { lastOf } from '../../../fold/entries.ts';
import { Artifacts } from './artifacts.tsx';
import { Workspace } from './workspace.tsx';

interface FilesViewProps {
  readonly sessionId: string;
  readonly snapshot: FeedSnapshot;
}

/** What the session has made: the files of its sandbox as they are now, and its artifacts. */
export function FilesView({ sessionId, snapshot }: FilesViewProps): ReactNode {
  const { records } = snapshot;
  const ranAt = useMemo(() => lastOf(records, ['sandbox.exec', 'turn.completed']), [records]);
  const madeAt = useMemo(() => lastOf(records, ['artifact.created', 'artifact.deleted']), [records]);
  return (
    // A scrolling region has to be reachable by keyboard.
    // oxlint-disable-next-line jsx-a11y/no-noninteractive-tabindex
    <section className="files-view stack" aria-label="Files" tabIndex={0}>
      <Workspace sessionId={sessionId} changedAt={ranAt} />
      <Artifacts sessionId={sessionId} changedAt={madeAt} />
    </section>
  );
}

import type { ReactNode } from 'react';
import type { EndEntry, Entry, FileEntry, UserEntry } from '../../fold/entries.ts';
import type { Written } from '../../fold/writing.ts';
import { bytes, clock, dateTime, duration, short, usd } from '../../lib/format.ts';
import { PlainText, Value } from '../../parts/plain-text.tsx';
import { Status } from '../../parts/status.tsx';
import { AskView } from '../../parts/ask-view.tsx';
import { Fold } from '../../parts/fold.tsx';
import { ToolView } from './tool-view.tsx';

interface EntryProps {
  readonly sessionId: string;
  readonly entry: Entry;
  /** It is shown as it was then: what waited is not answered here. */
  readonly isPast?: boolean | undefined;
}

/** One part of the conversation. Everything that somebody wrote is shown as text. */
export function EntryView(props: EntryProps): ReactNode {
  const { entry } = props;
  return (
    <article className="entry" data-kind={entry.kind} aria-label={NAMES[entry.kind]}>
      {entry.agent !== undefined && <div className="small muted">{entry.agent.path}</div>}
      <EntryBody {...props} />
    </article>
  );
}

const NAMES: Readonly<Record<Entry['kind'], string>> = {
  user: 'Message',
  assistant: 'Answer of the agent',
  tool: 'Call',
  ask: 'Question to a person',
  file: 'File',
  note: 'Note',
  end: 'End of the turn',
};

function EntryBody({ sessionId, entry, isPast }: EntryProps): ReactNode {
  switch (entry.kind) {
    case 'user':
      return <UserView entry={entry} />;
    case 'assistant':
      return (
        <>
          <Reasoning text={entry.reasoning} />
          <PlainText text={entry.text} />
          {entry.isTruncated && <p className="small muted">Cut off at the limit of the model.</p>}
        </>
      );
    case 'tool':
      return <ToolView entry={entry} />;
    case 'ask':
      return <AskView sessionId={sessionId} entry={entry} isPast={isPast} />;
    case 'file':
      return <FileView entry={entry} />;
    case 'note':
      return (
        <p className="small note" data-tone={entry.tone}>
          {entry.text}
          {entry.detail !== undefined && (
            <>
              : <PlainText text={entry.detail} />
            </>
          )}
        </p>
      );
    case 'end':
      return <EndView entry={entry} />;
  }
}

function UserView({ entry }: { readonly entry: UserEntry }): ReactNode {
  const { text, subject, behind, files, hasManifest, at } = entry;
  return (
    <>
      <div className="row small muted">
        {subject === undefined ? 'Message' : <bdi>{subject}</bdi>}
        <time dateTime={at} title={dateTime(at)}>
          {clock(at)}
        </time>
        {behind !== null && <Status of="waiting">waits for the turn before</Status>}
        {hasManifest && <span>with a manifest of its own</span>}
      </div>
      <PlainText text={text} />
      {files.map(({ artifactId, version }) => (
        <code key={`${artifactId} ${version}`} className="small">
          {artifactId} v{version}
        </code>
      ))}
    </>
  );
}

function Reasoning({ text }: { readonly text: string | undefined }): ReactNode {
  if (text === undefined || text === '') return null;
  return (
    <Fold className="small muted" summary={<summary>Reasoning</summary>}>
      {() => <PlainText text={text} />}
    </Fold>
  );
}

function FileView({ entry }: { readonly entry: FileEntry }): ReactNode {
  const { name, artifactId, version, size, isDeleted, isFolder } = entry;
  const address = `/api/v1/artifacts/${encodeURIComponent(artifactId)}/versions/${version}/${isFolder ? 'zip' : 'content'}`;
  return (
    <div className="row">
      <span className="muted small">{isDeleted ? 'Deleted' : isFolder ? 'Folder' : 'File'}</span>
      <bdi>{name}</bdi>
      {!isDeleted && (
        <>
          <span className="muted small">
            v{version}, {bytes(size ?? 0)}
          </span>
          <a href={address} download={name}>
            Download
          </a>
        </>
      )}
    </div>
  );
}

function EndView({ entry }: { readonly entry: EndEntry }): ReactNode {
  const { outcome, text, output, usage, durationMs } = entry;
  return (
    <>
      {output !== undefined && <Value value={output} />}
      <div className="row small muted">
        <Status of={outcome} />
        {text !== null && <PlainText text={text} />}
        {durationMs !== null && <span>{duration(durationMs)}</span>}
        {usage !== undefined && (
          <span>
            {short(usage.totalTokens)} tokens, {usd(usage.costUsd)}
            {usage.costKnown ? '' : ' ?'}
          </span>
        )}
      </div>
    </>
  );
}

/** What a model is writing, before its record is there. */
export function WritingView({ written }: { readonly written: Written }): ReactNode {
  return (
    <article className="entry" data-kind="assistant" data-writing="" aria-label="Answer that is being written">
      {written.agent !== undefined && <div className="small muted">{written.agent.path}</div>}
      <Reasoning text={written.reasoning} />
      {written.isPartial && <span className="muted">… </span>}
      <PlainText text={written.text} />
      {written.toolCalls.map(({ name, input }, index) => (
        // Calls of one answer are told by their place.
        <p key={index} className="small">
          <code>{name}</code> <code className="muted">{input.slice(-200)}</code>
        </p>
      ))}
    </article>
  );
}

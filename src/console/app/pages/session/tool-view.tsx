import type { ReactNode } from 'react';
import type { ToolEntry } from '../../fold/entries.ts';
import { duration } from '../../lib/format.ts';
import { jsonText } from '../../lib/json-text.ts';
import { oneLine } from '../../lib/plain-text.ts';
import { Fold } from '../../parts/fold.tsx';
import { Value } from '../../parts/plain-text.tsx';
import { Status } from '../../parts/status.tsx';
import { DiffView } from './diff-view.tsx';

const SUMMARY_CHARS = 90;

/** A call with what went in and what came out; what a sandbox ran as a terminal and an editor show it. */
export function ToolView({ entry }: { readonly entry: ToolEntry }): ReactNode {
  const { name, runner, state, exec } = entry;
  return (
    <Fold
      className="tool"
      summary={
        <summary>
          <span className="tool-name">{runner === 'agent' ? `agent ${name}` : name}</span>
          <code className="tool-gist">{gistOf(entry.input)}</code>
          {exec !== undefined && <span className="muted small">{duration(exec.durationMs)}</span>}
          <Status of={state} />
        </summary>
      }
    >
      {() => <ToolBody entry={entry} />}
    </Fold>
  );
}

function ToolBody({ entry }: { readonly entry: ToolEntry }): ReactNode {
  const { runner, exec, error, delegationId } = entry;
  return (
    <div className="stack tool-body">
      {runner === 'sandbox' ? <SandboxInput entry={entry} /> : <Named name="Input" value={entry.input} />}
      {error !== undefined && <Named name="Error" value={`${error.code}: ${error.message}`} />}
      {entry.output !== undefined && <Output entry={entry} />}
      {exec !== undefined && (
        <p className="small muted">
          {exec.outcome}
          {exec.exitCode === undefined ? '' : `, exit code ${exec.exitCode}`}, CPU {duration(exec.cpuMs)}
        </p>
      )}
      {delegationId !== undefined && <p className="small muted">Delegation {delegationId}</p>}
    </div>
  );
}

function Named({ name, value }: { readonly name: string; readonly value: unknown }): ReactNode {
  if (value === undefined) return null;
  return (
    <figure>
      <figcaption className="small muted">{name}</figcaption>
      <Value value={value} />
    </figure>
  );
}

/** A command, a written file, or the lines of an edit. */
function SandboxInput({ entry }: { readonly entry: ToolEntry }): ReactNode {
  const command = memberOf(entry.input, 'command');
  const path = memberOf(entry.input, 'path');
  const oldText = memberOf(entry.input, 'oldText');
  const newText = memberOf(entry.input, 'newText');
  const content = memberOf(entry.input, 'content');
  if (command !== undefined) return <Named name="Command" value={command} />;
  if (oldText !== undefined && newText !== undefined)
    return <DiffView title={path ?? 'edit'} before={oldText} after={newText} />;
  if (content !== undefined) return <DiffView title={path ?? 'file'} before="" after={content} />;
  return <Named name="Input" value={entry.input} />;
}

function Output({ entry }: { readonly entry: ToolEntry }): ReactNode {
  const stdout = memberOf(entry.output, 'stdout');
  const stderr = memberOf(entry.output, 'stderr');
  const content = memberOf(entry.output, 'content');
  if (entry.runner === 'sandbox' && stdout !== undefined)
    return (
      <>
        <Named name="Output" value={stdout === '' ? '(nothing)' : stdout} />
        {stderr !== undefined && stderr !== '' && <Named name="Errors" value={stderr} />}
      </>
    );
  return <Named name="Output" value={entry.runner === 'sandbox' && content !== undefined ? content : entry.output} />;
}

function gistOf(input: unknown): string {
  if (input === undefined) return '';
  const told = memberOf(input, 'command') ?? memberOf(input, 'path') ?? memberOf(input, 'task');
  return oneLine(told ?? (typeof input === 'string' ? input : jsonText(input, SUMMARY_CHARS * 4).text), SUMMARY_CHARS);
}

/** A text in an object that somebody else made. */
function memberOf(value: unknown, name: string): string | undefined {
  if (typeof value !== 'object' || value === null || !Object.hasOwn(value, name)) return undefined;
  const member: unknown = Reflect.get(value, name);
  return typeof member === 'string' ? member : undefined;
}

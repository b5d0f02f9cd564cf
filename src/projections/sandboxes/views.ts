import { changeOf } from '../../domain/sandbox/changes.ts';
import { evolveSandbox, initialSandbox } from '../../domain/sandbox/state.ts';
import type { OpenSandbox } from '../../domain/sandbox/state.ts';
import type { FilesRef, SandboxEvent } from '../../domain/sandbox/events.ts';
import type { EventMeta } from '../../domain/kernel/decision.ts';

/** A sandbox as lists show it. */
export type SandboxView = Omit<OpenSandbox, 'lastCall' | 'begun' | 'status'> & { readonly removed: boolean };

export function evolveSandboxView(
  view: SandboxView | undefined,
  event: SandboxEvent,
  meta: EventMeta,
): SandboxView | undefined {
  if (event.type === 'sandbox.deleted') return view === undefined ? undefined : { ...view, removed: true };
  const known = view === undefined || view.removed ? null : view;
  const state = known === null ? initialSandbox : { ...known, status: 'open' as const, lastCall: null };
  const next = evolveSandbox(state, event, meta);
  if (next.status === 'absent') return view;
  const { lastCall: _lastCall, begun: _begun, status: _status, ...shown } = next;
  return { ...shown, removed: false };
}

/** The change of files that an event records; null: none. */
export function recordedChange(event: SandboxEvent): string | null {
  const ref: FilesRef | null = 'files' in event.data ? event.data.files : null;
  return ref === null ? null : changeOf(ref.object);
}

export interface WorkspaceUse {
  readonly workspace: string;
  readonly sandbox_id: string;
  /** Empty: the sandbox itself. */
  readonly session_id: string;
}

/**
 * Who may name what is in a workspace, after an event. A sandbox's files are in its own and in those of what it began with;
 * sessions that work in it name them too, for as long as they are there.
 */
export function usesOf(view: SandboxView | undefined, event: SandboxEvent): WorkspaceUse[] {
  if (view === undefined || (event.type !== 'sandbox.created' && event.type !== 'sandbox.attached')) return [];
  const users = event.type === 'sandbox.created' ? ['', ...view.sessions] : [event.data.sessionId];
  const workspaces = [view.workspace, ...(view.first?.workspaces ?? [])];
  const { sandboxId: sandbox_id } = view;
  return workspaces.flatMap((workspace) => users.map((session_id) => ({ workspace, sandbox_id, session_id })));
}

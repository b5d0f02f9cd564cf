import { evolveSandbox, initialSandbox } from '../../domain/sandbox/state.ts';
import type { OpenSandbox } from '../../domain/sandbox/state.ts';
import type { FilesRef, SandboxEvent } from '../../domain/sandbox/events.ts';
import type { EventMeta } from '../../domain/kernel/decision.ts';

/** A sandbox as lists show it. */
export type SandboxView = Omit<OpenSandbox, 'lastCall' | 'status'> & { readonly removed: boolean };

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
  const { lastCall: _lastCall, status: _status, ...shown } = next;
  return { ...shown, removed: false };
}

/** The manifest that an event brings under a sandbox's name; null: none. */
export function namedManifest(event: SandboxEvent): string | null {
  const ref: FilesRef | null = 'files' in event.data ? event.data.files : null;
  return ref?.manifest ?? null;
}

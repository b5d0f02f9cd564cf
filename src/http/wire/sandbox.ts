import type { z } from 'zod';
import { shownState } from '../../domain/sandbox/shown.ts';
import type { OpenSandbox } from '../../domain/sandbox/state.ts';
import type { sandbox } from './sandboxes.ts';

/** A sandbox as its routes show it, from its fold or from a list's row. */
export function shownSandbox(view: Omit<OpenSandbox, 'status' | 'lastCall'>): z.input<typeof sandbox> {
  const { sandboxId, kind, labels, spec, subject, machine, sessions, holder, files } = view;
  const state = shownState(view);
  return {
    ...{ id: sandboxId, kind, labels: { ...labels }, spec: { ...spec }, state, subject },
    ...(machine === null ? {} : { pod: shownMachine(machine) }),
    sessions: sessions.map((id) => ({ id, activeTurnId: holder?.sessionId === id ? holder.turnId : null })),
    files: { count: files?.files ?? 0, bytes: files?.bytes ?? 0 },
    createdAt: view.createdAt,
    updatedAt: view.updatedAt,
  };
}

function shownMachine({ desired, volumeGeneration, hostEpoch }: NonNullable<OpenSandbox['machine']>) {
  const observed = desired === 'suspended' ? ('suspended' as const) : ('creating' as const);
  return { desired, observed, volumeGeneration, hostEpoch };
}

import type { z } from 'zod';
import { withoutNulls } from '../../domain/kernel/optional.ts';
import { statusOf } from '../../domain/sandbox/shown.ts';
import type { OpenSandbox } from '../../domain/sandbox/state.ts';
import type { sandbox } from './sandboxes.ts';

/** A sandbox as its routes show it, from its fold or from a list's row. */
export function toSandboxResponse(view: Omit<OpenSandbox, 'status' | 'lastCall'>): z.input<typeof sandbox> {
  const { sandboxId, kind, labels, spec, subject, machine, sessions, holder, files } = view;
  const state = statusOf(view);
  return {
    ...{ id: sandboxId, kind, labels: { ...labels }, spec: { ...spec }, state, subject },
    ...withoutNulls({ pod: machine && machineOf(machine) }),
    sessions: sessions.map((id) => ({ id, activeTurnId: holder?.sessionId === id ? holder.turnId : null })),
    files: { count: files?.files ?? 0, bytes: files?.bytes ?? 0 },
    createdAt: view.createdAt,
    updatedAt: view.updatedAt,
  };
}

function machineOf({ desired, volumeGeneration, hostEpoch }: NonNullable<OpenSandbox['machine']>) {
  const observed = desired === 'suspended' ? ('suspended' as const) : ('creating' as const);
  return { desired, observed, volumeGeneration, hostEpoch };
}

import type { z } from 'zod';
import { withoutNulls } from '../../domain/kernel/optional.ts';
import { expiryOf } from '../../domain/sandbox/pod.ts';
import { observedOf, statusOf } from '../../domain/sandbox/shown.ts';
import type { OpenSandbox } from '../../domain/sandbox/state.ts';
import type { sandbox } from './sandboxes.ts';

/** A sandbox as its routes show it, from its fold or from a list's row. */
export function toSandboxResponse(view: Omit<OpenSandbox, 'status' | 'lastCall' | 'begun'>): z.input<typeof sandbox> {
  const { sandboxId, kind, labels, spec, subject, machine, sessions, holder, files, createdAt } = view;
  const state = statusOf(view);
  return {
    ...{ id: sandboxId, kind, labels: { ...labels }, spec: { ...spec }, state, subject },
    ...withoutNulls({ pod: machine && podOf(machine, expiryOf(spec, createdAt)) }),
    sessions: sessions.map((id) => ({ id, activeTurnId: holder?.sessionId === id ? holder.turnId : null })),
    files: { count: files?.files ?? 0, bytes: files?.bytes ?? 0 },
    createdAt,
    updatedAt: view.updatedAt,
  };
}

function podOf(machine: NonNullable<OpenSandbox['machine']>, expiresAt: string | null) {
  const { desired, volumeGeneration, hostEpoch, reason } = machine;
  const shown = { desired, observed: observedOf(machine), volumeGeneration, hostEpoch };
  return { ...shown, ...withoutNulls({ expiresAt, reason: reason ?? null }) };
}

import type { Decision } from '../kernel/decision.ts';
import { reject } from '../kernel/rejection.ts';
import type { Rejection } from '../kernel/rejection.ts';
import { WORKSPACE_PREFIX } from '../sandbox/changes.ts';
import type { QuotaEvent } from './events.ts';
import { reservedBytesOf } from './state.ts';
import type { QuotaState } from './state.ts';

/**
 * Workspaces in a tenant's account. Each holds bytes like an upload that does not expire: those that its sandbox has brought into
 * the store, with everything that its history names. A fork names what is there, and holds what it adds. They are held in
 * steps, so that few changes of files need the account, and held before they are recorded.
 */

/** A reservation that nothing but the end of its workspace ends. */
const NO_EXPIRY = '9999-12-31T23:59:59.999Z';
/** What is held beyond the need: an eighth of it, but no less than this, bytes. */
const STEP_BYTES_MIN = 65_536;
/** Maximum workspaces of one tenant, also those whose sandboxes are gone and whose sessions are not: all are in the account's fold. */
export const WORKSPACES_MAX = 10_000;

export function isWorkspace(holder: string): boolean {
  return holder.startsWith(WORKSPACE_PREFIX);
}

/** Bytes that all workspaces hold. */
export function workspaceBytesOf({ reservations }: QuotaState): number {
  return Object.entries(reservations).reduce((sum, [holder, { bytes }]) => sum + (isWorkspace(holder) ? bytes : 0), 0);
}

export interface HoldWorkspace {
  readonly workspace: string;
  /** All that it has in the store and is about to have. */
  readonly bytes: number;
}

/** Holds at least these bytes for a workspace; past the tenant's total nothing changes. */
export function decideHoldWorkspace(
  state: QuotaState,
  { workspace, bytes }: HoldWorkspace,
  totalBytes: number,
): Decision<QuotaEvent, null> {
  const held = heldBy(state, workspace);
  if (bytes <= held) return { kind: 'unchanged', reply: null };
  const free = totalBytes - state.usedBytes - reservedBytesOf(state) + held;
  if (bytes > free) return storageFull(totalBytes);
  const next = Math.min(free, bytes + Math.max(STEP_BYTES_MIN, Math.ceil(bytes / 8)));
  if (state.reservations[workspace] !== undefined) {
    const renewed = { uploadId: workspace, bytes: next, expiresAt: NO_EXPIRY };
    return { kind: 'accepted', events: [{ type: 'quota.renewed', data: renewed }], reply: null };
  }
  if (Object.keys(state.reservations).filter(isWorkspace).length >= WORKSPACES_MAX) return tooMany();
  const reserved = { uploadId: workspace, artifactId: workspace, bytes: next, expiresAt: NO_EXPIRY };
  return { kind: 'accepted', events: [{ type: 'quota.reserved', data: reserved }], reply: null };
}

export function heldBy({ reservations }: QuotaState, workspace: string): number {
  return reservations[workspace]?.bytes ?? 0;
}

function storageFull(limitBytes: number): Rejection {
  const message =
    `The tenant's storage is full: its artifacts and sandboxes hold ${limitBytes} bytes at most. No file was changed. ` +
    'Removing files of a workspace frees nothing, because its history keeps them: artifacts, or sessions with their sandboxes, have to be deleted.';
  return reject('limit_exceeded', message, { details: { limit: 'total', limitBytes } });
}

function tooMany(): Rejection {
  const message = `The tenant has files of ${WORKSPACES_MAX} sandboxes, deleted ones included. Delete sessions that worked in them.`;
  return reject('limit_exceeded', message, { details: { limit: 'workspaces' } });
}

import type { Decision } from '../kernel/decision.ts';
import { reject } from '../kernel/rejection.ts';
import type { Rejection } from '../kernel/rejection.ts';
import type { QuotaEvent } from './events.ts';
import { reservedBytesOf } from './state.ts';
import type { QuotaState } from './state.ts';
import { isWorkspace } from './workspaces.ts';

/** Limits of a tenant's artifacts, bytes. */
export interface ArtifactLimits {
  readonly fileBytes: number;
  readonly totalBytes: number;
}

/** Maximum operations of one tenant in progress at the same time: each is part of the account's fold. */
export const OPERATIONS_MAX = 2_000;

/** What applies to the tenant: its own limits if it has any, otherwise the Host's. */
export function limitsOf(state: QuotaState, defaults: ArtifactLimits): ArtifactLimits {
  return {
    fileBytes: state.fileBytes ?? defaults.fileBytes,
    totalBytes: state.totalBytes ?? defaults.totalBytes,
  };
}

export function fileTooLarge(limitBytes: number): Rejection {
  const message = `The file is larger than ${limitBytes} bytes, the tenant's limit for a file. Nothing was stored.`;
  return reject('limit_exceeded', message, { details: { limit: 'file', limitBytes } });
}

function totalPassed(limitBytes: number): Rejection {
  const message = `The tenant's artifacts and sandboxes would exceed ${limitBytes} bytes together. Nothing was stored; delete some first.`;
  return reject('limit_exceeded', message, { details: { limit: 'total', limitBytes } });
}

export interface Reserve {
  readonly uploadId: string;
  readonly artifactId: string;
  /** What the upload will hold at least. */
  readonly bytes: number;
  readonly expiresAt: string;
}

/**
 * Takes bytes of the total before they are stored. Used and reserved bytes together never exceed it, so neither can
 * concurrent uploads together; what an upload did not need is returned when it settles.
 */
export function decideReserve(
  state: QuotaState,
  command: Reserve,
  defaults: ArtifactLimits,
): Decision<QuotaEvent, ArtifactLimits> {
  const limits = limitsOf(state, defaults);
  if (command.bytes > limits.fileBytes) return fileTooLarge(limits.fileBytes);
  if (uploadsOf(state) >= OPERATIONS_MAX) return tooManyAtOnce();
  if (state.usedBytes + reservedBytesOf(state) + command.bytes > limits.totalBytes)
    return totalPassed(limits.totalBytes);
  return { kind: 'accepted', events: [{ type: 'quota.reserved', data: { ...command } }], reply: limits };
}

function uploadsOf({ reservations }: QuotaState): number {
  return Object.keys(reservations).filter((holder) => !isWorkspace(holder)).length;
}

function tooManyAtOnce(): Rejection {
  const message = `The tenant has ${OPERATIONS_MAX} uploads or removals in progress. Wait for some to end, then send it again.`;
  return reject('limit_exceeded', message, { details: { limit: 'operations' } });
}

/** Renews a reservation, and extends it if the upload has turned out larger. */
export function decideRenew(
  state: QuotaState,
  command: Omit<Reserve, 'artifactId'>,
  defaults: ArtifactLimits,
): Decision<QuotaEvent, null> {
  const { uploadId, bytes, expiresAt } = command;
  const known = state.reservations[uploadId];
  if (known === undefined) return reject('conflict', 'The upload was aborted. Send it again.');
  const held = Math.max(known.bytes, bytes);
  const { totalBytes } = limitsOf(state, defaults);
  const others = state.usedBytes + reservedBytesOf(state) - known.bytes;
  if (held > known.bytes && others + held > totalBytes) return totalPassed(totalBytes);
  return {
    kind: 'accepted',
    events: [{ type: 'quota.renewed', data: { uploadId, bytes: held, expiresAt } }],
    reply: null,
  };
}

/** Returns everything; a reservation that was already settled stays settled. */
export function decideRelease(state: QuotaState, uploadId: string): Decision<QuotaEvent, null> {
  if (state.reservations[uploadId] === undefined) return { kind: 'unchanged', reply: null };
  return { kind: 'accepted', events: [{ type: 'quota.released', data: { uploadId } }], reply: null };
}

/** Counts what was stored, once. */
export function decideCommit(state: QuotaState, uploadId: string, bytes: number): Decision<QuotaEvent, null> {
  if (state.reservations[uploadId] === undefined) return { kind: 'unchanged', reply: null };
  return { kind: 'accepted', events: [{ type: 'quota.committed', data: { uploadId, bytes } }], reply: null };
}

/** Announces a removal before it begins, so that a crash midway leaves a trace. */
export function decideBeginRemoval(
  state: QuotaState,
  removal: { readonly removalId: string; readonly artifactId: string; readonly expiresAt: string },
): Decision<QuotaEvent, null> {
  if (Object.keys(state.removals).length >= OPERATIONS_MAX) return tooManyAtOnce();
  return { kind: 'accepted', events: [{ type: 'quota.removal_begun', data: removal }], reply: null };
}

/** Returns the bytes of a removed artifact, once. */
export function decideEndRemoval(state: QuotaState, removalId: string, bytes: number): Decision<QuotaEvent, null> {
  if (state.removals[removalId] === undefined) return { kind: 'unchanged', reply: null };
  return { kind: 'accepted', events: [{ type: 'quota.removed', data: { removalId, bytes } }], reply: null };
}

/**
 * Sets the tenant's own limits; those not named are kept. What is already stored is kept too, whatever the new total.
 */
export function decideLimit(
  state: QuotaState,
  limits: { readonly fileBytes?: number | undefined; readonly totalBytes?: number | undefined },
): Decision<QuotaEvent, null> {
  const { fileBytes = state.fileBytes, totalBytes = state.totalBytes } = limits;
  if (fileBytes === state.fileBytes && totalBytes === state.totalBytes) return { kind: 'unchanged', reply: null };
  return { kind: 'accepted', events: [{ type: 'quota.limited', data: { fileBytes, totalBytes } }], reply: null };
}

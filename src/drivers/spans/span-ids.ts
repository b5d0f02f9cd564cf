import { hash } from 'node:crypto';
import type { SpanOwner } from './port.ts';

/**
 * Ids are derived, not drawn, so that every process gives a turn and its parts the same ones (docs/telemetry.md): the
 * first bytes of the SHA-256 of the names as a JSON array. The trace is the turn, whichever worker ran it and however often.
 */
export function traceIdOf({ tenantId, sessionId }: SpanOwner, turnId: string): string {
  return derived(['trace', tenantId, sessionId, turnId], 16);
}

export function spanIdOf({ tenantId, sessionId }: SpanOwner, turnId: string, key: string): string {
  return derived(['span', tenantId, sessionId, turnId, key], 8);
}

function derived(names: readonly string[], bytes: number): string {
  return hash('sha256', JSON.stringify(names), 'hex').slice(0, 2 * bytes);
}

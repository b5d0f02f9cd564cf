import type { UpcasterTable } from '../streams/codec.ts';

/**
 * Upcasters of published events (docs/adding-an-event.md). An entry is added when a published shape must change, with a
 * test beside it, and is never removed.
 */
export const UPCASTERS: UpcasterTable = {
  // The instructions are the manifest's, which the session or this event has anyway.
  'turn.started': { 1: ({ instructions: _instructions, ...data }) => data },
};

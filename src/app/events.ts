import type { UpcasterTable } from '../streams/codec.ts';

/**
 * Upcasters of published events (docs/adding-an-event.md). None yet: every event is in its first version. An entry is
 * added when a published shape must change, with a test beside it, and is never taken away.
 */
export const UPCASTERS: UpcasterTable = {};

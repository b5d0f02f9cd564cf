/** Maximum keys, issuers and executors of one tenant: every node holds them all in memory. */
export const KEYS_MAX = 200;
export const ISSUERS_MAX = 20;
export const EXECUTORS_MAX = 500;
/** The longest that a deletion waits for running turns. */
export const DRAIN_MS_MAX = 600_000;
/**
 * A drain is over so much after its end, also while its node lives: longer than counting active turns takes (30 s), and than
 * the clocks of two nodes differ.
 */
export const DRAIN_MARGIN_MS = 45_000;

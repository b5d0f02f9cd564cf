/** Maximum keys, issuers and executors of one tenant: every node holds them all in memory. */
export const KEYS_MAX = 200;
export const ISSUERS_MAX = 20;
export const EXECUTORS_MAX = 500;

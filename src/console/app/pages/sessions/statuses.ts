/** What a session can be doing, as the list takes it. */
export const STATUSES = ['idle', 'running', 'waiting', 'paused', 'uncertain'] as const;

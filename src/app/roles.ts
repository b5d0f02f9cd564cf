/** What a node does; docs/operations/running.md says what one without a role lacks. */
export const ROLES = ['commands', 'reads', 'projector', 'engine'] as const;
export type Role = (typeof ROLES)[number];
